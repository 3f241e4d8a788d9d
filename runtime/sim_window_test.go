package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// simWindow is a window of one end, the owner. The owner binds the window to a slot of the area that
// the peer accesses. The window is invalidated by the owner (invalidate), or by a message of the peer
// (sendInvalidate).
//
//	                                      invalidate               completed
//	      bind            completed       sendInvalidate           shutBy
//	free ──────> binding ───────────> bound ──────────────> unbinding ───────> free
type simWindow struct {
	owner *simEnd
	w     *Window
	slot  int
	at    Remote
	state windowState
	using int    // number of outstanding operations of the peer that use the window
	dead  Remote // the descriptor that was last invalidated; Length 0: none was invalidated
}

// simWindows is how many windows an end has.
const simWindows = 2

// window makes a new window if the end has fewer than simWindows windows. Then it chooses one of the
// end's windows at random. If this window is free, window() binds it. If this window was bound before and
// no operation uses it, window() sometimes invalidates it.
func (e *simEnd) window() {
	if len(e.windows) < simWindows {
		w, err := e.c.NewWindow()
		if err != nil {
			if e.c.Err() == nil {
				e.w.fail("%v: NewWindow: %v, but the connection has not failed", e.p, err)
			}
			return
		}
		e.windows = append(e.windows, &simWindow{owner: e, w: w})
	}
	switch s := e.windows[e.w.r.IntN(len(e.windows))]; {
	case s.state == windowFree:
		s.bind()
	case s.state == windowBound && s.using == 0 && e.w.r.one(3):
		s.invalidate()
	}
}

// bind starts to bind the window to a random slot.
func (s *simWindow) bind() {
	e := s.owner
	own := e.p.areas[e.side]
	if !own.alive() {
		return
	}
	s.slot = e.w.r.IntN(simSlots)
	access := verbs.AccessRemoteWrite | verbs.AccessRemoteRead
	at, f, err := s.w.Bind(e.w.ended, e.n.target, own.at+slotAt(s.slot), simSlotSize, access)
	if !e.begin(opBind, err) {
		return
	}
	if at.RKey == s.at.RKey {
		e.w.fail("%v: a window was bound with the key of its last binding, want a new key", e.p)
	}
	s.at, s.state = at, windowBinding
	e.follow(opBind, f, func(Result) error { s.state = windowBound; return nil }, func(error) { s.state = windowClosed })
}

// invalidate starts to invalidate the window, on behalf of the owner.
func (s *simWindow) invalidate() {
	e := s.owner
	f, err := s.w.Invalidate(e.w.ended)
	if !e.begin(opInvalidate, err) {
		return
	}
	s.state = windowUnbinding
	e.follow(opInvalidate, f, func(Result) error { s.shut(); return nil }, func(error) { s.state = windowClosed })
}

func (s *simWindow) shut() { s.state, s.dead = windowFree, s.at }

// reach returns a descriptor of bytes [at, at+n) of the peer's area. These bytes must be in slot i. If
// reach also returns a window, the descriptor has the key of that window, and the caller must call
// left() of the window when the operation has ended. Otherwise the descriptor has the key of the region.
// If the area's memory is gone, ok is false.
func (e *simEnd) reach(i, at, n int) (r Remote, through *simWindow, ok bool) {
	peer := e.p.ends[1-e.side]
	if peer != nil && e.w.r.one(2) {
		for _, s := range peer.windows {
			if s.state != windowBound || s.slot != i {
				continue
			}
			r, err := s.at.At(uint64(at-slotAt(i)), uint64(n))
			if err != nil {
				e.w.fail("%v: describing a part of a window: %v", e.p, err)
			}
			s.using++
			return r, s, e.to.alive()
		}
	}
	r, ok = e.to.remote(at, n)
	return r, nil, ok
}

// left() ends an operation's use of the window. It does nothing if s is nil.
func (s *simWindow) left() {
	if s != nil {
		s.using--
	}
}

// sendInvalidate sends a message that invalidates a window of the peer.
func (e *simEnd) sendInvalidate() {
	w, peer := e.w, e.p.ends[1-e.side]
	if peer == nil || !e.mayDeliver() {
		return
	}
	for _, s := range peer.windows {
		if s.state != windowBound || !w.r.one(2) {
			continue
		}
		m := simMsg{seed: w.r.Uint64(), n: w.size(300), shuts: s}
		l := e.local(m.n, 1).put(w.fill(m.n, m.seed))
		f, err := e.c.Start(w.ended, new(SendInvalidateOp(l.slices[0], s.at)))
		if !e.begin(opSendInvalidate, err) {
			l.free()
			return
		}
		s.state = windowUnbinding
		out := e.out()
		out.push(m)
		number := out.accepted
		e.follow(opSendInvalidate, f, func(Result) error { out.okUpTo = number; l.free(); return nil }, func(error) { l.free() })
		return
	}
}

// shutBy checks which window an arrived message has invalidated. The second argument is this window, or nil
// if the message has invalidated no window. It must be the window of want.shuts. If want.shuts is nil, it
// must be nil.
func (e *simEnd) shutBy(want simMsg, got *Window) error {
	s := want.shuts
	switch {
	case s == nil && got == nil:
		return nil
	case s == nil || got != s.w:
		return fmt.Errorf("the message invalidated the window %p (nil: none), want the window in the field shuts of %+v (nil: none)", got, want)
	}
	s.w.mu.Lock()
	state := s.w.state
	s.w.mu.Unlock()
	if state != windowFree && state != windowClosed {
		return fmt.Errorf("a message invalidated a window whose state is %s, want free or closed", windowStates[state])
	}
	s.shut()
	return nil
}

// deadKey starts a WRITE with the key of an invalidated window. The peer's device must refuse the
// WRITE: the connection fails, and no byte is written.
func (e *simEnd) deadKey() {
	peer := e.p.ends[1-e.side]
	if peer == nil {
		return
	}
	for _, s := range peer.windows {
		if s.dead.Length == 0 || !e.to.alive() {
			continue
		}
		at, err := s.dead.At(0, 100)
		if err != nil {
			e.w.fail("%v: describing a part of an invalidated window: %v", e.p, err)
		}
		l := e.local(100, 1)
		f, err := e.c.Write(e.w.ended, l.slices[0], at)
		if !e.begin(opDeadKey, err) {
			l.free()
			return
		}
		e.p.excuse("it wrote with the key of an invalidated window")
		e.follow(opDeadKey, f, func(Result) error { return errors.New("a WRITE with the key of an invalidated window succeeded") }, func(err error) {
			l.free()
			e.refusedKey(err)
		})
		return
	}
}

// wrongKey starts a WRITE with a key that does not exist. The peer's device must refuse the WRITE: the
// connection fails, and no byte is written.
func (e *simEnd) wrongKey() {
	a := e.to
	remote, ok := a.remote(slotAt(0), 100)
	if !ok {
		return
	}
	remote.RKey ^= 0x5a5a5a5a
	l := e.local(100, 1)
	f, err := e.c.Write(e.w.ended, l.slices[0], remote)
	if !e.begin(opWrongKey, err) {
		l.free()
		return
	}
	e.p.excuse("it wrote with a key that does not exist")
	e.follow(opWrongKey, f, func(Result) error { return errors.New("a WRITE with a key that does not exist succeeded") }, func(err error) {
		l.free()
		e.refusedKey(err)
	})
}

// refusedKey checks the error of a WRITE with an invalid key. If the connection failed for another
// reason before the device refused the WRITE, the status is WR_FLUSH_ERR or RETRY_EXC_ERR.
func (e *simEnd) refusedKey(err error) {
	var wc *verbs.WCError
	if errors.As(err, &wc) && wc.Status != verbs.WCWRFlushErr && wc.Status != verbs.WCRemAccessErr && wc.Status != verbs.WCRetryExcErr {
		e.w.fail("%v: a WRITE with an invalid key ended with %v, want REM_ACCESS_ERR, WR_FLUSH_ERR or RETRY_EXC_ERR", e.p, err)
	}
}
