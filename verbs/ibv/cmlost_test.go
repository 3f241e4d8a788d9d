//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// later is event for one that may not be there yet.
func (r *cmRig) later(want verbs.CMEventType) verbs.CMEvent {
	r.t.Helper()
	p := []unix.PollFd{{Fd: int32(r.ch.FD()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 10_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 {
			r.t.Fatalf("no event within 10 s (%v), want %v", err, want)
		}
		return r.event(want)
	}
}

// Rule (of the null device): a lost request arrives when it is sent again, with its private data.
func TestNullLostRequestIsSentAgain(t *testing.T) {
	r := newCMRig(t)
	const after = 20
	r.fault(nulldev.Fault{Kind: nulldev.LostRequest, Count: 1, At: after})
	l := r.listener()
	ida := r.routed(l.LocalAddr().Port())
	from := time.Now()
	must.Do(t, ida.Connect(&verbs.ConnParam{QPNum: 1, PrivateData: []byte("again")}))
	ev := r.later(verbs.CMConnectRequest)
	t.Cleanup(func() { _ = ev.ID.Close() })
	if took := time.Since(from); string(ev.Conn.PrivateData[:5]) != "again" || took < after*time.Millisecond {
		t.Errorf("a request with %q came after %v, want %q after %d ms", ev.Conn.PrivateData[:5], took, "again", after)
	}
}

// Rule (of the null device): a request of a stale connection is rejected with reason 10, and so is each other one with
// the number of its queue pair.
func TestNullStaleConnectionIsRejected(t *testing.T) {
	r := newCMRig(t)
	r.fault(nulldev.Fault{Kind: nulldev.StaleConnection, Count: 1})
	port := r.listener().LocalAddr().Port()
	for range 2 {
		must.Do(t, r.routed(port).Connect(&verbs.ConnParam{QPNum: 1}))
		if ev := r.event(verbs.CMRejected); ev.Status != verbs.RejStaleConn {
			t.Errorf("rejected with reason %d, want %d", ev.Status, verbs.RejStaleConn)
		}
	}
	must.Do(t, r.routed(port).Connect(&verbs.ConnParam{QPNum: 2}))
	must.Do(t, r.event(verbs.CMConnectRequest).ID.Close())
}

// Rule (of the null device): the number of a queue pair that was destroyed is that of the next one, as a device may do.
func TestNullQueuePairNumbersAreReused(t *testing.T) {
	r := newRig(t, Config{})
	first, kept := r.loop(r.pd), r.loop(r.pd)
	num := first.Num()
	must.Do(t, first.Close())
	if again := r.loop(r.pd).Num(); again != num || kept.Num() == num {
		t.Errorf("after 0x%x was destroyed the next queue pair is 0x%x, want the same", num, again)
	}
}

// Rule (of the null device): without the last message of a handshake the accepting end is not established,
// until it is sent again.
func TestNullLostReady(t *testing.T) {
	r := newCMRig(t)
	r.fault(nulldev.Fault{Kind: nulldev.LostReady, Count: 1, At: 20})
	ida, idb := r.requested(1, func(verbs.CMID) {})
	must.Do(t, idb.Accept(&verbs.ConnParam{QPNum: 2}))
	r.event(verbs.CMConnectResponse)
	must.Do(t, ida.Accept(nil))
	if ev, ok, err := r.ch.GetEvent(); ok || err != nil {
		t.Fatalf("%v, %v at once, want nothing", ev.Type, err)
	}
	if ev := r.later(verbs.CMEstablished); ev.ID != idb {
		t.Errorf("ESTABLISHED of %v, want %v", ev.ID, idb)
	}
}
