//go:build linux && verbena_rxevm

package outage

import (
	"context"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rxevm"
)

// Addresses of the peers in one machine; each has its own ports.
const (
	removedOne   = "10.77.0.1:7000"
	removedTwo   = "10.77.0.1:7100"
	removedBoth  = "10.77.0.1:7200"
	removedAfter = "10.77.0.1:7300"
)

// Rule: when a device is removed under load, every process on it is told, all their outstanding
// operations end, and they close their contexts within 5 s (the report checks it). The removal is
// then over although the processes live on. The device can be used again when it is back under the
// same name.
func (g *guests) testRemoval(t *testing.T) {
	on := func(serve, dial string, args ...string) *process {
		return g.start(t, 0, append([]string{"-device", "ibv:rxe0", "-serve", serve, "-dial", dial}, args...)...)
	}
	one, two := on(removedOne, removedTwo), on(removedTwo, removedOne)
	both := on(removedBoth, removedBoth) // both ends in one process
	all := []*process{one, two, both}
	for _, p := range all {
		p.out.must(t, guestStart, "connected")
	}
	began := time.Now()
	removal, err := g.m[0].Start(context.WithoutCancel(t.Context()), rxevm.Cmd{Argv: []string{"rdma", "link", "delete", "rxe0"}})
	if err != nil {
		t.Fatal(err)
	}
	select { // not killed when late: it waits in the kernel for the processes
	case <-removal.Done():
	case <-time.After(guestStop):
		t.Fatalf("the removal was not over after %v, with all processes told", guestStop)
	}
	if err := removal.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the removal took %v", time.Since(began).Round(time.Millisecond))
	defer g.shell(t, 0, "rdma link | grep -q rxe0/ || rdma link add rxe0 type rxe netdev r0")
	for _, p := range all {
		select {
		case <-p.p.Done():
			t.Error("a process has ended: the removal may have waited for that")
		default:
		}
		p.out.must(t, guestStop, "removed")
	}
	for _, r := range stop(t, all...) {
		if !r.Removed || r.Failures(ClassRemoved) == 0 {
			t.Errorf("removed %v; operations that say so: %d", r.Removed, r.Failures(ClassRemoved))
		}
		ended(t, r, ClassRemoved, ClassPeerClosed, ClassContext, ClassClosed, ClassTimeout, ClassUnreachable, ClassFlushed, ClassQueuePair, ClassRejected)
		t.Logf("all had ended after %d ms, the context was closed after %d ms", r.EndedMS, r.ClosedMS)
	}
	g.shell(t, 0, "rdma link add rxe0 type rxe netdev r0")
	after := on(removedAfter, removedAfter, "-work", "2")
	after.out.must(t, guestStart, "worked")
	stop(t, after)
}

// Addresses where peers without CM exchange their queue pairs.
const (
	plainOne = "127.0.0.1:7400"
	plainTwo = "127.0.0.1:7401"
)

// Rule: without a connection manager there are no events; when the interface goes down, all
// outstanding operations at both ends fail within their bounds.
func (g *guests) testInterfaceDown(t *testing.T) {
	const conns = "4"
	on := func(device, serve, dial string) *process {
		return g.start(t, 0, "-device", "ibv:"+device, "-plain", serve, "-dialplain", dial, "-conns", conns)
	}
	one, two := on("rxe0", plainOne, plainTwo), on("rxe1", plainTwo, plainOne)
	one.out.must(t, guestStart, "connected")
	two.out.must(t, guestStart, "connected")
	g.shell(t, 0, "ip link set r0 down")
	defer g.shell(t, 0, "ip link set r0 up")
	mark(t, one, two)
	one.out.must(t, guestOutage, "ended")
	two.out.must(t, guestOutage, "ended")
	for _, r := range stop(t, one, two) {
		if n := r.Failures(ClassFlushed, ClassQueuePair, ClassRetries, ClassPeerTimeout); n == 0 {
			t.Errorf("no operation failed:\n%s", r.classes())
		}
		t.Logf("%s:\n%s", r.Device, r.classes())
	}
}
