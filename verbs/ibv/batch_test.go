//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule: a post that fails splits its list: the requests before bad_wr are posted, whatever the
// position (semantics 22).
func TestBadWRSplitsTheList(t *testing.T) {
	const n = 5
	r := newRig(t, Config{})
	for at := range n {
		r.fault(nulldev.Fault{Kind: nulldev.BadWR, Call: "ibv_post_send", Err: syscall.EINVAL, At: uint32(at)})
		turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(n), Count: n}}}
		r.turn(&turn)
		if g := turn.Sends[0]; g.Accepted != at || g.Errno != syscall.EINVAL {
			t.Errorf("bad_wr at %d: %d accepted, errno %v", at, g.Accepted, g.Errno)
		}
		for i, id := range r.poll(at) {
			if id != uint64(i+1) {
				t.Errorf("bad_wr at %d: completion %d is of request %d", at, i, id)
			}
		}
		r.fault(nulldev.Fault{Kind: nulldev.BadWR, Call: "ibv_post_recv", Err: syscall.ENOMEM, At: uint32(at)})
		turn = verbs.IOBatch{Recvs: []verbs.RecvGroup{{QP: r.qp, Head: r.receives(2), Count: 2}}}
		r.turn(&turn)
		wantN, wantErr := min(at, 2), syscall.ENOMEM
		if at >= 2 {
			wantErr = 0
		}
		if g := turn.Recvs[0]; g.Accepted != wantN || g.Errno != wantErr {
			t.Errorf("bad_wr at receive %d of 2: %d accepted, errno %v", at, g.Accepted, g.Errno)
		}
		r.null.Clear()
	}
}

// Rule: extended posting fails as a whole (semantics 22), and a plain request in an extended list
// is posted with it.
func TestExtendedPostingFailsWhole(t *testing.T) {
	r := newRig(t, Config{})
	if r.qp.ex == nil {
		t.Fatal("the null device has extended posting, the queue pair was made without")
	}
	turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(3), Count: 3, Extended: true}}}
	r.turn(&turn)
	if g := turn.Sends[0]; g.Accepted != 3 || g.Errno != 0 {
		t.Errorf("extended: %d accepted, errno %v", g.Accepted, g.Errno)
	}
	if ids := r.poll(3); !slices.Equal(ids, []uint64{1, 2, 3}) {
		t.Errorf("extended: completions of %v", ids)
	}
	r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_wr_complete", Err: syscall.ENOMEM})
	r.writes(3)
	r.turn(&turn)
	if g := turn.Sends[0]; g.Accepted != 0 || g.Errno != syscall.ENOMEM {
		t.Errorf("a failed wr_complete: %d accepted, errno %v", g.Accepted, g.Errno)
	}
	r.poll(0)
	// An opcode that extended posting lacks must start nothing.
	r.writes(3)
	r.sends[2].Opcode = verbs.WRDriver1
	r.turn(&turn)
	if g := turn.Sends[0]; g.Accepted != 0 || g.Errno != syscall.EOPNOTSUPP {
		t.Errorf("an unknown opcode: %d accepted, errno %v", g.Accepted, g.Errno)
	}
	r.poll(0)
}

// Rule: -1 with errno, the negative errno and the errno are equivalent (semantics 23).
func TestErrnosAreNormalised(t *testing.T) {
	r := newRig(t, Config{})
	for _, how := range []nulldev.How{nulldev.ByErrno, nulldev.MinusOne, nulldev.Negative} {
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_post_send", Err: syscall.ENOMEM, How: how})
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_req_notify_cq", Err: syscall.EINVAL, How: how})
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_modify_qp", Err: syscall.EAGAIN, How: how})
		turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(2), Count: 2}}, Arms: []verbs.ArmGroup{{CQ: r.cq}}}
		r.turn(&turn)
		if g := turn.Sends[0]; g.Errno != syscall.ENOMEM || g.Accepted != 0 {
			t.Errorf("how %d: posting answers %v, %d accepted", how, g.Errno, g.Accepted)
		}
		if e := turn.Arms[0].Errno; e != syscall.EINVAL {
			t.Errorf("how %d: arming answers %v", how, e)
		}
		err := r.qp.Modify(&verbs.QPAttr{MinRNRTimer: 3}, verbs.QPMMinRNRTimer)
		var op *verbs.OpError
		if !errors.As(err, &op) || op.Op != "ibv_modify_qp" || op.Errno != syscall.EAGAIN {
			t.Errorf("how %d: modify answers %v", how, err)
		}
	}
}

// Rule: a failed poll means that the queue is dead, whatever number the library returns.
func TestDeadQueue(t *testing.T) {
	for _, extended := range []bool{false, true} {
		t.Run(fmt.Sprint("extended=", extended), func(t *testing.T) {
			r := newRig(t, Config{ExtendedCQ: extended})
			call := "ibv_poll_cq"
			if extended {
				call = "ibv_start_poll"
			}
			r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: call, Err: syscall.ENOMEM, How: nulldev.Negative})
			turn := verbs.IOBatch{Polls: []verbs.PollGroup{{CQ: r.cq, WC: r.wc}}}
			r.turn(&turn)
			if g := turn.Polls[0]; g.N != 0 || g.Errno != syscall.EIO {
				t.Errorf("polled %d, errno %v", g.N, g.Errno)
			}
			r.turn(&turn)
			if g := turn.Polls[0]; g.N != 0 || g.Errno != 0 {
				t.Errorf("after the fault: polled %d, errno %v", g.N, g.Errno)
			}
		})
	}
}

// Rule: EBUSY of ibv_start_poll is reported as such. The queue is neither empty nor dead, and the next poll finds
// its completion. (The bug: it counted as an empty queue, so a loop that had armed the queue slept over a completion.)
func TestBusyQueueIsNotEmpty(t *testing.T) {
	for spin, want := range []verbs.PollGroup{{N: 0, Errno: syscall.EBUSY}, {N: 1}} { // a spin polls again
		r := newRig(t, Config{ExtendedCQ: true})
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_start_poll", Count: 1, Err: syscall.EBUSY})
		turn := verbs.IOBatch{
			Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(1), Count: 1}},
			Polls: []verbs.PollGroup{{CQ: r.cq, WC: r.wc}}, Spin: spin,
		}
		r.turn(&turn)
		if g := turn.Polls[0]; g.N != want.N || g.Errno != want.Errno {
			t.Errorf("spin %d: while the queue was busy: polled %d, errno %d; want %d, %d", spin, g.N, g.Errno, want.N, want.Errno)
		}
		turn.Sends = nil
		r.turn(&turn)
		if g := turn.Polls[0]; g.N != 1-want.N || g.Errno != 0 {
			t.Errorf("spin %d: after that: polled %d, errno %d; want %d, 0", spin, g.N, g.Errno, 1-want.N)
		}
	}
}

// Rule: a batch posts receives, posts sends, arms and polls, in this order and in one cgo call,
// whether its groups fit the small frame or not; it allocates nothing.
func TestTurnInOneCrossing(t *testing.T) {
	for _, groups := range []int{1, smallFrame, 3 * smallFrame} {
		t.Run(fmt.Sprint(groups), func(t *testing.T) {
			r := newRig(t, Config{})
			turn := verbs.IOBatch{Arms: make([]verbs.ArmGroup, groups-1)}
			for i := range turn.Arms {
				turn.Arms[i].CQ = r.cq
			}
			if groups > 2 {
				turn.Arms = turn.Arms[:groups-3]
				turn.Recvs = []verbs.RecvGroup{{QP: r.qp, Head: r.receives(1), Count: 1}}
				turn.Sends = []verbs.SendGroup{{QP: r.qp, Head: r.writes(1), Count: 1}}
				r.sends[0].Opcode, r.sends[0].RemoteAddr, r.sends[0].W1 = verbs.WRSend, 0, 0
			}
			turn.Polls = []verbs.PollGroup{{CQ: r.cq, WC: r.wc}}
			r.turn(&turn)
			if want := min(groups/2, 1) * 2; turn.Polls[0].N != want {
				t.Errorf("polled %d completions in the turn of their posting, want %d", turn.Polls[0].N, want)
			}
			if n := testing.AllocsPerRun(200, func() { r.turn(&turn) }); n != 0 && !raceEnabled {
				t.Errorf("a turn of %d groups allocates %v times", groups, n)
			}
		})
	}
}

// Rule: Execute skips groups that it cannot use, and executes the rest.
func TestTurnRefusesForeignObjects(t *testing.T) {
	r, other := newRig(t, Config{}), newRig(t, Config{})
	turn := verbs.IOBatch{
		Recvs: []verbs.RecvGroup{{QP: other.qp, Head: r.receives(1), Count: 1}, {}},
		Sends: []verbs.SendGroup{{Head: r.writes(1), Count: 1}, {QP: r.qp, Head: r.writes(1), Count: 1}},
		Arms:  []verbs.ArmGroup{{CQ: other.cq}},
		Polls: []verbs.PollGroup{{CQ: other.cq, WC: r.wc}, {CQ: r.cq, WC: r.wc}, {CQ: r.cq}},
	}
	r.turn(&turn)
	for what, e := range map[string]syscall.Errno{
		"a receive of another context": turn.Recvs[0].Errno, "a send of nobody": turn.Sends[0].Errno,
		"arming another context's queue": turn.Arms[0].Errno, "polling it": turn.Polls[0].Errno,
	} {
		if e != syscall.EINVAL {
			t.Errorf("%s answers %v", what, e)
		}
	}
	if turn.Recvs[0].Accepted+turn.Sends[0].Accepted+turn.Polls[0].N != 0 {
		t.Error("something was done for a group that was refused")
	}
	if turn.Recvs[1].Errno != 0 || turn.Sends[1].Accepted != 1 || turn.Polls[1].N != 1 || turn.Polls[2].Errno != 0 {
		t.Errorf("the good groups: %+v", turn)
	}
}

// Rule: a batch on a dead device returns ErrDeviceRemoved, although DEVICE_FATAL is not taken
// yet; later ones do nothing, and all objects can still be closed.
func TestDeviceFatalEndsTheContext(t *testing.T) {
	r := newRig(t, Config{})
	defer func() { _ = r.null.Revive("null0") }()
	if err := r.null.Kill("null0"); err != nil {
		t.Fatal(err)
	}
	turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(1), Count: 1}}}
	if err := r.ctx.Execute(&turn); !errors.Is(err, verbs.ErrDeviceRemoved) || turn.Sends[0].Accepted != 0 {
		t.Fatalf("posting to a dead device: %d accepted, %v", turn.Sends[0].Accepted, err)
	}
	ev, ok, err := r.ctx.Async().Get()
	if err != nil || !ok || ev.Type != verbs.EventDeviceFatal {
		t.Fatalf("event %+v, %v, %v", ev, ok, err)
	}
	r.ctx.Async().Ack(ev)
	posts := r.null.Stats().Sends
	if err := r.ctx.Execute(&turn); !errors.Is(err, verbs.ErrDeviceRemoved) {
		t.Errorf("a turn after the end: %v", err)
	}
	if n := r.null.Stats().Sends; n != posts {
		t.Error("a turn after the end posted")
	}
	if err := r.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState); !errors.Is(err, verbs.ErrDeviceRemoved) {
		t.Errorf("modify after the end: %v", err)
	}
}

// Rule: a dead queue on a live device affects that queue only.
func TestDeadQueueIsNoDeadDevice(t *testing.T) {
	r := newRig(t, Config{})
	r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_poll_cq", Count: 2, Err: syscall.EIO, How: nulldev.Negative})
	turn := verbs.IOBatch{Polls: []verbs.PollGroup{{CQ: r.cq, WC: r.wc}}}
	for range 3 {
		if err := r.ctx.Execute(&turn); err != nil {
			t.Fatalf("a turn with a dead queue: %v", err)
		}
	}
}
