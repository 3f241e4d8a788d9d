//go:build linux && cgo && !portable

package ibv

import (
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// cmEnds are the ends of a connection on the null device.
type cmEnds struct{ a, b verbs.CMID }

// connect connects two identifiers. ack is the code that each end sets, 0 for none; retries is
// each end's retry count.
func (r *cmRig) connect(ack, retries [2]uint8) (e cmEnds) {
	r.t.Helper()
	set := func(id verbs.CMID, code uint8) {
		r.t.Helper()
		if code != 0 {
			must.Do(r.t, id.SetAckTimeout(code))
		}
		must.Do(r.t, id.CreateQP(r.pd, &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	}
	e.a = r.routed(r.listener().LocalAddr().Port())
	set(e.a, ack[0])
	must.Do(r.t, e.a.Connect(&verbs.ConnParam{RetryCount: retries[0]}))
	e.b = r.event(verbs.CMConnectRequest).ID
	r.t.Cleanup(func() { _ = e.b.Close() })
	set(e.b, ack[1])
	must.Do(r.t, e.b.Accept(&verbs.ConnParam{RetryCount: retries[1]}))
	for range 2 {
		r.event(verbs.CMEstablished)
	}
	return e
}

// Rule: in its step to RTS an end's queue pair gets this end's own timeout, at least the device's
// delay, whichever end it is and whatever the other asks for. The null device gives the acceptor
// the dialer's values, as the kernel does.
func TestEachEndsQueuePairGetsItsOwnTimeout(t *testing.T) {
	const delay = 12    // ND_ACK_DELAY
	const kernels = 14  // CM_ACK_TIMEOUT
	const fromPeer = 20 // at most
	for _, c := range []struct{ set, want [2]uint8 }{
		{[2]uint8{18, 15}, [2]uint8{18, 15}},
		{[2]uint8{15, 18}, [2]uint8{15, 18}},
		{[2]uint8{31, 1}, [2]uint8{31, delay}},
		{[2]uint8{1, 31}, [2]uint8{delay, 31}},
		{[2]uint8{0, 0}, [2]uint8{kernels, kernels}},
		{[2]uint8{31, 0}, [2]uint8{31, fromPeer}},
		{[2]uint8{1, 0}, [2]uint8{delay, delay}},
	} {
		r := newCMRig(t)
		e := r.connect(c.set, [2]uint8{1, 6})
		for i, id := range []verbs.CMID{e.a, e.b} {
			attr := must.Get(id.QP().Query())(t)
			if retries := []uint8{1, 6}[i]; attr.Timeout != c.want[i] || attr.RetryCnt != retries {
				t.Errorf("codes %d set: end %d got code %d and %d retries, want %d and %d", c.set, i, attr.Timeout, attr.RetryCnt, c.want[i], retries)
			}
		}
	}
}

// Rule: a missing timeout, which a REQ may ask for, is replaced by a long one.
func TestNoTimeoutOfThePeersIsABound(t *testing.T) {
	r := newCMRig(t)
	id := r.connect([2]uint8{}, [2]uint8{}).b.(*cmID)
	if got := id.ackTimeout(0); got != verbs.MaxPeerAckTimeout {
		t.Errorf("of code 0 comes %d, want %d", got, verbs.MaxPeerAckTimeout)
	}
}

// Rule: an end can set its own timeout although the kernel cannot send it to the peer.
func TestAckTimeoutWithoutTheKernelsHelp(t *testing.T) {
	r := newCMRig(t)
	r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "rdma_set_option", Err: syscall.ENOSYS})
	e := r.connect([2]uint8{17, 0}, [2]uint8{})
	for id, want := range map[verbs.CMID]uint8{e.a: 17, e.b: 14} {
		if attr, err := id.QP().Query(); err != nil || attr.Timeout != want {
			t.Errorf("%v has code %d (%v), want %d", id, attr.Timeout, err, want)
		}
	}
}
