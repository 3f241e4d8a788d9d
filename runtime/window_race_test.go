package runtime

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// noMW is a verbs.MW without a device.
type noMW struct{ verbs.MW }

func (noMW) RKey() uint32 { return 0 }
func (noMW) Close() error { return nil }

// Rule: if the connection ends at any point of a Bind, the lease on the region is ended exactly once.
// (The bug: Bind changed the window's state before it recorded the lease. If the connection ended
// between these two steps, the lease never ended, and the region could never be closed.)
func TestBindAtTheEndKeepsNoLease(t *testing.T) {
	_, b := connected(t, Config{})
	r := must.Get(b.rt.NewRegion(64, windowAccess))(t)
	if err := b.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	rounds := fewer(100_000)
	if testing.Short() {
		rounds /= 10
	}
	for round := range rounds {
		w := &Window{c: b, mw: noMW{}}
		b.windowMu.Lock()
		b.windows = map[*Window]struct{}{w: {}}
		b.windowMu.Unlock()
		var both sync.WaitGroup
		var begun atomic.Bool
		both.Go(func() {
			begun.Store(true)
			if _, _, err := w.Bind(t.Context(), r, 0, 8, verbs.AccessRemoteRead); err == nil {
				t.Error("Bind on a closed connection succeeded, want an error")
			}
		})
		for !begun.Load() {
			runtime.Gosched()
		}
		for range round % 512 { // delays closeWindows by a varying time, so that it runs at different points of Bind
			begun.Load()
		}
		if err := b.closeWindows(); err != nil {
			t.Fatal(err)
		}
		both.Wait()
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing the region after all windows were closed: %v, want nil", err)
	}
}

// Rule: if a binding is not posted yet when the connection's windows are closed, the binding is never
// posted. Its window is freed, and its region can be closed. (The bug: if the queue pair could not be
// destroyed at once, the binding was posted.)
func TestBindIsNotPostedBehindItsWindow(t *testing.T) {
	_, b := connected(t, Config{})
	r, w := opened(t, b, 64)
	sink := make(mailSink, 1)
	var err error
	if derr := b.sh.r.Do(testContext(t), func() {
		op := BindOp(w, r, 0, 8, verbs.AccessRemoteRead)
		if err = b.TryStartTo(&op, sink, 0); err != nil {
			return
		}
		b.setCause(ErrConnClosed)
		b.q.Fail(ErrConnClosed)
		err = b.closeWindows() // as Conn.destroy does before it closes the identifier, which may be busy
		b.sh.r.Flush()
	}); derr != nil || err != nil {
		t.Fatal(derr, err)
	}
	if got := <-sink; !errors.Is(got.err, reactor.ErrQueueFailed) {
		t.Errorf("the binding of a window that was closed before the posting ended with %v, want %v", got.err, reactor.ErrQueueFailed)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Rule: if the owner of a window closes the connection, the peer's WRITE through the window ends with
// ErrPeerClosed or WR_FLUSH_ERR, not with an access error. (The bug: the owner closed the window while
// its queue pair still answered, and the WRITE ended with REM_ACCESS_ERR. It was seen when a device of
// Soft-RoCE was removed, because such a device still answers for a moment.)
func TestWritingThroughAWindowMeetsTheEnd(t *testing.T) {
	rig := newPlugRig(t, Config{})
	a, b := rig.connect(rig.a, rig.b, Options{})
	beside, _ := rig.connect(rig.a, rig.b, Options{})
	r, w := opened(t, b, 64)
	to := bound(t, w, r, 0, 8, verbs.AccessRemoteWrite)
	word := bufferOf(t, a.rt, make([]byte, 8)).Slice()
	var f Future
	var err error
	// All of this with the turn of b held: as soon as b sees that its queue pair is in ERR, it disconnects.
	if derr := b.sh.r.Do(testContext(t), func() {
		b.setCause(ErrConnClosed)
		b.q.Fail(ErrConnClosed)
		if err = b.closeWindows(); err != nil { // as Conn.destroy does before it destroys the queue pair
			return
		}
		if f, err = a.Write(t.Context(), word, to); err != nil {
			return
		}
		var sent Future
		if sent, err = beside.SendBytes(t.Context(), []byte("behind it on the wire")); err == nil {
			_, err = sent.Await(t.Context())
		}
	}); derr != nil || err != nil {
		t.Fatal(derr, err)
	}
	if err := b.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err = f.Await(testContext(t)); !errors.Is(err, ErrPeerClosed) && !errors.Is(err, verbs.StatusError(verbs.WCWRFlushErr)) {
		t.Errorf("the WRITE ended with %v, want ErrPeerClosed or WR_FLUSH_ERR", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
