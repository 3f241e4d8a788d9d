//go:build linux && verbena_rxevm

package outage

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rxevm"
)

// TestOutages boots machines: scripts/rxe.sh runs it (make test-rxe). One boot serves all subtests;
// the last one powers a machine off.
func TestOutages(t *testing.T) {
	g := bootGuests(t)
	t.Run("loss, duplicates, reordering", g.testLossyNetwork)
	t.Run("the device is removed", g.testRemoval)
	t.Run("the interface goes down, without CM", g.testInterfaceDown)
	t.Run("a short cut", g.testShortCut)
	t.Run("the cable is cut", g.testCut)
	t.Run("the carrier is lost", g.testCarrier)
	t.Run("the peer is killed", g.testKilled)
	t.Run("the peer loses power", g.testPowerLoss)
}

// netem is the impairment of frames that leave a machine, in each direction.
const netem = "delay 1ms loss 1% duplicate 1% reorder 2% 50%"

// givenUp is how a connection ends, besides as a failed queue pair (see gaveUp), that Soft-RoCE
// gives up where packets are lost, or so late that they are retransmitted: req_retry in rxe_req.c
// continues at another packet than the peer expects. The peer refuses that (check_op_seq and
// check_rkey in rxe_resp.c), or its answer finds another request at the head of the queue
// (check_ack in rxe_comp.c: READ answers).
var givenUp = []Class{ClassInvalid, ClassFatal}

// lossyDials is how many connections a peer may have to dial again on such a network: those that
// the device itself gives up, one in many runs. Beside a busy loop it was up to two in a run; this
// is twice that.
const lossyDials = 4

// Rule: on a network that loses, repeats and reorders packets a fixed amount of work is completed,
// with every byte right, over the initial connections. A connection that the device gives up ends
// with an error that says so, and its work begins again.
func (g *guests) testLossyNetwork(t *testing.T) {
	const rounds = 12
	for i := range g.m {
		g.shell(t, i, "tc qdisc add dev "+rxevm.CableNIC+" root netem "+netem)
		defer g.shell(t, i, "tc qdisc del dev "+rxevm.CableNIC+" root")
	}
	a, b := g.onCable(t, "-work", "12")
	a.out.must(t, 2*time.Minute, "worked")
	b.out.must(t, 2*time.Minute, "worked")
	if out := g.shell(t, 0, "tc -s qdisc show dev "+rxevm.CableNIC); strings.Contains(out, "dropped 0,") {
		t.Errorf("nothing was lost, so nothing is shown:\n%s", out)
	}
	for _, r := range stop(t, a, b) {
		for k, want := range map[Kind]int{
			KindWrite: 3 * rounds, KindRead: 2 * rounds, KindWriteImm: rounds, KindBig: 2 * rounds,
			KindBind: rounds, KindInvalidate: rounds, KindEcho: 4 * rounds, KindSend: 7 * rounds, KindDial: len(roles),
		} {
			if got := r.OK(k); got < want || got > want && r.OK(KindDial) == len(roles) {
				t.Errorf("%d of %q, want %d", got, k, want)
			}
		}
		dialledAgain(t, r)
		if got := r.OK(KindAtomic) + r.Failures(ClassUnanswered); got < rounds+1 {
			t.Errorf("%d atomics, want %d", got, rounds+1)
		}
		ended(t, r, ClassClosed, ClassPeerClosed, ClassContext, ClassTimeout, ClassUnreachable, ClassRejected, ClassFlushed, ClassQueuePair)
	}
}

// dialledAgain checks that the device gave up few connections, or none.
func dialledAgain(t *testing.T, r *Report) {
	t.Helper()
	if again := r.OK(KindDial) - len(roles); again > lossyDials {
		t.Errorf("%d connections were dialled again", again)
	} else if again > 0 {
		t.Logf("%d connections were dialled again:\n%s", again, r.classes())
	}
}

// ended checks that operations failed only with the allowed classes, or with a connection that
// Soft-RoCE gave up, or that it completed an atomic without its answer. It may do the last two
// whenever a packet is late.
func ended(t *testing.T, r *Report, allowed ...Class) {
	t.Helper()
	ok := r.Failures(append(givenUp, allowed...)...)
	if atomics := r.Ops[KindAtomic]; atomics != nil {
		ok += atomics.Failed[ClassUnanswered]
	}
	if all := r.Failures(); all != ok {
		t.Errorf("%d operations failed otherwise than %v:\n%s", all-ok, allowed, r.classes())
	}
}

// shortCut is how long a cable is cut without harm: many retries of 0.13 s, and less than the
// bound. Soft-RoCE itself treats 7 retries as unlimited (drivers/infiniband/sw/rxe/rxe_comp.c,
// COMPST_ERROR_RETRY).
const shortCut = 2 * time.Second

// Rule: an outage shorter than the device's retries ends no operation and no connection, except
// those that the device gives up; the work continues.
func (g *guests) testShortCut(t *testing.T) {
	a, b := g.onCable(t)
	g.cable.Cut()
	<-time.After(shortCut) // the length of the outage
	g.cable.Restore()
	mark(t, a, b)              // later successes are counted apart
	<-time.After(2 * shortCut) // the work continues for this long
	for _, r := range stop(t, a, b) {
		for _, k := range []Kind{KindSend, KindEcho, KindWrite, KindRead, KindAtomic, KindBig, KindBind} {
			if tally := r.Ops[k]; tally == nil || tally.OKSinceMark == 0 {
				t.Errorf("no %q after the outage", k)
			}
		}
		dialledAgain(t, r) // all would have been dialed again if the outage had ended connections
		ended(t, r, ClassClosed, ClassPeerClosed, ClassContext, ClassTimeout, ClassUnreachable, ClassRejected, ClassFlushed, ClassQueuePair)
	}
}

// Rule: when the cable is cut, every operation of both ends fails within its bound, a lone receive
// included; when it is restored, both connect again and continue.
func (g *guests) testCut(t *testing.T) {
	a, b := g.onCable(t)
	g.cable.Cut()
	defer g.cable.Restore()
	mark(t, a, b)
	a.out.must(t, guestOutage, "ended")
	b.out.must(t, guestOutage, "ended")
	g.cable.Restore()
	heal(t, a, b)
	a.out.must(t, guestStart, "connected again")
	b.out.must(t, guestStart, "connected again")
	for _, r := range stop(t, a, b) {
		unreached(t, r)
	}
}

// unreached checks that a connection of every role, served and dialed, reported that its peer did
// not answer.
func unreached(t *testing.T, r *Report) {
	t.Helper()
	if n := r.Failures(ClassRetries, ClassPeerTimeout); n < len(roles) {
		t.Errorf("%d operations say that the peer did not answer:\n%s", n, r.classes())
	}
	if tally := r.Ops[KindRecv]; tally == nil || tally.SinceMarkMS == 0 {
		t.Error("no receive was under way when it happened")
	}
}

// Rule: when a machine loses its carrier, all outstanding operations at both ends fail within their
// bounds; when it is back, both connect again. Soft-RoCE moves queue pairs whose packets it cannot
// send to ERR, so that this machine's are flushed at once; its peer sees the same as with a cut
// cable.
func (g *guests) testCarrier(t *testing.T) {
	a, b := g.onCable(t)
	if err := g.m[0].SetCarrier(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	mark(t, a, b)
	a.out.must(t, guestOutage, "ended")
	b.out.must(t, guestOutage, "ended")
	if err := g.m[0].SetCarrier(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	heal(t, a, b)
	a.out.must(t, guestStart, "connected again")
	b.out.must(t, guestStart, "connected again")
	rs := stop(t, a, b)
	if n := rs[0].Failures(ClassFlushed, ClassQueuePair, ClassRetries, ClassPeerTimeout); n < len(roles) {
		t.Errorf("%d operations failed:\n%s", n, rs[0].classes())
	}
	unreached(t, rs[1])
}

// Rule: when a process is killed, its kernel disconnects for it and frees everything: the peer's
// outstanding operations end soon, and the next process can connect.
func (g *guests) testKilled(t *testing.T) {
	a, b := g.onCable(t)
	mark(t, a)
	signal(t, syscall.SIGKILL, b)
	a.out.must(t, guestOutage, "ended")
	<-b.p.Done()
	if out := g.shell(t, 1, "rdma resource show qp | grep -w peer || echo nothing"); out != "nothing\n" {
		t.Errorf("the kernel keeps of the killed process:\n%s", out)
	}
	heal(t, a)
	b = g.onEnd(t, 1)
	b.out.must(t, guestStart, "connected")
	a.out.must(t, guestStart, "connected again")
	rs := stop(t, a, b)
	if n := rs[0].Failures(ClassPeerClosed); n == 0 {
		t.Errorf("no operation says that the peer has closed:\n%s", rs[0].classes())
	}
}

// Rule: a machine that disappears without a message is detected within the bound.
func (g *guests) testPowerLoss(t *testing.T) {
	a, _ := g.onCable(t)
	mark(t, a)
	g.off = true
	_, _ = g.m[1].Shell(t.Context(), "echo o >/proc/sysrq-trigger; sleep 60") // the shell is lost with the machine
	a.out.must(t, guestOutage, "ended")
	unreached(t, stop(t, a)[0])
}
