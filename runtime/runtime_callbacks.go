package runtime

import (
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/seam"
	"github.com/verbena-rdma/verbena/verbs"
)

// DeviceEvent is something that happened to the device or a port of it.
type DeviceEvent struct {
	Type verbs.AsyncEventType
	Port uint8 // for the events of a port
}

// watcher is one WatchDevice.
type watcher struct{ fn func(DeviceEvent) }

// WatchDevice has fn called with every event of the device and its ports from
// now on: port up and down, changes of its addresses, the device's end. fn runs
// holding a reactor's turn: it must not block. What if it panics: Config.OnPanic. stop ends that; an event that is
// being told may still come. The events of queues and connections are not told:
// they show in their results.
func (rt *Runtime) WatchDevice(fn func(DeviceEvent)) (stop func()) {
	w := &watcher{fn}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.watchers = append(rt.watchers, w)
	return func() {
		rt.mu.Lock()
		defer rt.mu.Unlock()
		kept := make([]*watcher, 0, len(rt.watchers)) // tellWatchers may be reading the old one
		for _, o := range rt.watchers {
			if o != w {
				kept = append(kept, o)
			}
		}
		rt.watchers = kept
	}
}

// tellWatchers passes on what is not of one queue.
func (s *shard) tellWatchers(ev *verbs.AsyncEvent) {
	rt := s.rt
	if ev.QP != nil || ev.CQ != nil || ev.SRQ != nil {
		return
	}
	rt.mu.Lock()
	all := rt.watchers
	rt.mu.Unlock()
	for _, w := range all {
		told := DeviceEvent{Type: ev.Type, Port: ev.Port}
		s.r.Notify(func() { w.fn(told) })
	}
}

// Now is the runtime's time.
func (rt *Runtime) Now() time.Time { return rt.cfg.now() }

// After runs fn once, d from now on the runtime's clock, holding a reactor's
// turn: it must not block. stop keeps it from running if it has not begun, soon;
// it does not wait. Nothing runs after Close. What if fn panics: Config.OnPanic. Both
// allocate; any goroutine.
func (rt *Runtime) After(d time.Duration, fn func()) (stop func()) {
	r := rt.shards[0].r
	t := r.After(d, func() { r.Notify(fn) })
	return func() { r.Defer(func() { r.StopTimer(t) }) }
}

// Loop names where one reactor runs callbacks: a goroutine beside its event loop. Actors may
// be placed there.
type Loop struct{ r *reactor.Reactor }

func init() {
	seam.EndConn = func(conn any) { conn.(*Conn).end(false) }
	seam.LoopReactor = func(loop any) *reactor.Reactor { return loop.(Loop).r }
}

// Loops are those of all reactors, at least one; the same order every time.
func (rt *Runtime) Loops() []Loop {
	all := make([]Loop, len(rt.shards))
	for i, s := range rt.shards {
		all[i].r = s.r
	}
	return all
}

// Loop is that of the connection's reactor.
func (c *Conn) Loop() Loop { return Loop{c.sh.r} }

// Gone is closed when the connection has given everything back.
func (c *Conn) Gone() <-chan struct{} { return c.closed }

// Raw tells whether the connection leaves receives to the caller.
func (c *Conn) Raw() bool { return c.opts.Raw }
