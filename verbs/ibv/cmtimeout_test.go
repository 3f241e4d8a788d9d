//go:build linux && cgo && !portable

package ibv

import (
	"cmp"
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

// Rule: in its step to RTS an end's queue pair gets this end's own timeout, at least the device's delay,
// whichever end it is, whatever the other asks for, and whatever the lifetime of the path. Without an own
// timeout it is verbs.DefaultAckTimeout. The null device gives a dialer what it has set, without the
// delay, and an acceptor what the request asks for, as the kernel does: on InfiniBand code 19.
func TestEachEndsQueuePairGetsItsOwnTimeout(t *testing.T) {
	const none = verbs.DefaultAckTimeout
	for profile, delay := range map[string]uint8{nulldev.Plain: 12, "mlx5": 16, "mlx5_ib": 16} {
		profiled(t, profile)
		for _, set := range [][2]uint8{{18, 15}, {15, 18}, {31, 1}, {1, 31}, {0, 0}, {31, 0}, {0, 31}, {1, 0}, {13, 13}} {
			r := newCMRig(t)
			e := r.connect(set, [2]uint8{1, 6})
			for i, id := range []verbs.CMID{e.a, e.b} {
				want := max(cmp.Or(set[i], none), delay)
				attr := must.Get(id.QP().Query())(t)
				if retries := []uint8{1, 6}[i]; attr.Timeout != want || attr.RetryCnt != retries {
					t.Errorf("%s: codes %d set: end %d got code %d and %d retries, want %d and %d",
						profile, set, i, attr.Timeout, attr.RetryCnt, want, retries)
				}
			}
		}
	}
}

// Rule: a queue pair of the program's own gets the same timeouts from InitQPAttr.
func TestTheProgramsQueuePairGetsTheDevicesDelay(t *testing.T) {
	profiled(t, "mlx5_ib")
	const delay = 16
	r := newCMRig(t)
	for set, want := range map[uint8]uint8{0: verbs.DefaultAckTimeout, 13: delay, 20: 20} {
		_, idb := r.requested(1, func(verbs.CMID) {})
		if set != 0 {
			must.Do(t, idb.SetAckTimeout(set))
		}
		if a, _, err := idb.InitQPAttr(verbs.QPSRTS); err != nil || a.Timeout != want {
			t.Errorf("code %d set: code %d (%v), want %d", set, a.Timeout, err, want)
		}
	}
}

// Rule: an end can set its own timeout although the kernel cannot send it to the peer.
func TestAckTimeoutWithoutTheKernelsHelp(t *testing.T) {
	r := newCMRig(t)
	r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "rdma_set_option", Err: syscall.ENOSYS})
	e := r.connect([2]uint8{18, 0}, [2]uint8{})
	for id, want := range map[verbs.CMID]uint8{e.a: 18, e.b: verbs.DefaultAckTimeout} {
		if attr, err := id.QP().Query(); err != nil || attr.Timeout != want {
			t.Errorf("%v has code %d (%v), want %d", id, attr.Timeout, err, want)
		}
	}
}
