//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// returns makes a call that must not block forever; libibverbs' destroying calls do when events
// were acknowledged that were never taken.
func returns(t testing.TB, what string, call func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(patience):
		t.Fatalf("%s blocks", what)
	}
}

// Rule: the properties of an object read the same after Close, and do not come from freed C
// memory.
func TestClosedObjectsSayWhatTheySaid(t *testing.T) {
	r := newRig(t, Config{})
	make1 := func() (verbs.QP, verbs.CompChannel, verbs.MW, verbs.CMChannel) {
		qp := must.Get(r.pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
		ch := must.Get(r.ctx.CreateCompChannel())(t)
		mw := must.Get(r.pd.AllocMW(verbs.MWType2))(t)
		cm := must.Get(r.ctx.p.CreateCMChannel())(t)
		return qp, ch, mw, cm
	}
	qp, ch, mw, cm := make1()
	num, fd, key, cmfd := qp.Num(), ch.FD(), mw.RKey(), cm.FD()
	for _, o := range []verbs.Object{qp, ch, mw, cm} {
		must.Do(t, o.Close())
	}
	for range 8 { // in the freed memory
		keep, err := r.ctx.CreateCompChannel() // and with other descriptors
		must.Do(t, err)
		t.Cleanup(func() { _ = keep.Close() })
		a, b, c, d := make1()
		for _, o := range []verbs.Object{a, b, c, d} {
			t.Cleanup(func() { _ = o.Close() })
		}
	}
	if qp.Num() != num || ch.FD() != fd || mw.RKey() != key || cm.FD() != cmfd {
		t.Errorf("closed: QP number %x, descriptors %d and %d, key %x; were %x, %d, %d, %x",
			qp.Num(), ch.FD(), cm.FD(), mw.RKey(), num, fd, cmfd, key)
	}
}

// Rule: an acknowledgement of an event that was not taken, or a second one, is ignored: C would
// count it, and the destroy would wait forever.
func TestAcksOfWhatWasNotTaken(t *testing.T) {
	r := newRig(t, Config{})
	cq := must.Get(r.ctx.CreateCQ(4, r.ch, 0, 0))(t)
	cq.AckEvents(3)
	returns(t, "closing a queue after three acknowledgements of nothing", cq.Close)

	r.fault(nulldev.Fault{Kind: nulldev.Overrun})
	turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(1), Count: 1}}}
	r.turn(&turn)
	taken := 0
	for {
		ev, ok, err := r.ctx.Async().Get()
		must.Do(t, err)
		if !ok {
			break
		}
		taken++
		r.ctx.Async().Ack(ev)
		r.ctx.Async().Ack(ev)
	}
	if taken == 0 {
		t.Fatal("the overrun raised no event")
	}
	r.cq.AckEvents(1) // the overrun's completion event was not taken
	returns(t, "closing the queue pair after two acknowledgements of each event", r.qp.Close)
	returns(t, "closing the completion queue", r.cq.Close)
}

// Rule: a context that forgot an object because the device is gone executes no further batch: the
// user may have reused the object's memory.
func TestForgottenObjectEndsTurns(t *testing.T) {
	r := newRig(t, Config{})
	defer func() { _ = r.null.Revive("null0") }()
	must.Do(t, r.null.Kill("null0"))
	ev, ok, err := r.ctx.Async().Get()
	if err != nil || !ok || ev.Type != verbs.EventDeviceFatal {
		t.Fatalf("event %+v, %v, %v", ev, ok, err)
	}
	r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_dereg_mr", Err: syscall.ENODEV})
	must.Do(t, r.mr.Close())
	posts := r.null.Stats().Sends
	turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(1), Count: 1}}}
	if err := r.ctx.Execute(&turn); !errors.Is(err, verbs.ErrDeviceRemoved) || r.null.Stats().Sends != posts {
		t.Errorf("a turn after a region was forgotten: %v", err)
	}
	// Closing the domain fails in C, because C still has the region; that does not matter any
	// more.
	must.Do(t, r.qp.Close())
	must.Do(t, r.pd.Close())
}

// Rule: nothing is posted to a queue that a queue pair of its type does not have. Drivers do not
// check, and crash.
func TestPostsToQueuesThatAreNotThere(t *testing.T) {
	r := newRig(t, Config{})
	x := must.Get(r.ctx.OpenXRCD(-1, 0))(t)
	defer x.Close()
	target := must.Get(x.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTXRCRecv}))(t)
	defer target.Close()
	source := must.Get(r.pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, Type: verbs.QPTXRCSend, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}}))(t)
	defer source.Close()
	before := r.null.Stats()
	turn := verbs.IOBatch{
		Recvs: []verbs.RecvGroup{{QP: target, Head: r.receives(1), Count: 1}, {QP: source, Head: r.receives(1), Count: 1}},
		Sends: []verbs.SendGroup{{QP: target, Head: r.writes(1), Count: 1}, {QP: target, Head: r.writes(1), Count: 1, Extended: true}},
	}
	r.turn(&turn)
	for _, e := range []syscall.Errno{turn.Recvs[0].Errno, turn.Recvs[1].Errno, turn.Sends[0].Errno, turn.Sends[1].Errno} {
		if e != syscall.EINVAL {
			t.Errorf("answers %v, want EINVAL", e)
		}
	}
	if now := r.null.Stats(); now.Sends != before.Sends || now.Recvs != before.Recvs {
		t.Error("the library was asked to post")
	}
}

// Rule: the longest duration gives the longest timeout, not the shortest.
func TestTimeoutsDoNotWrap(t *testing.T) {
	for d, want := range map[time.Duration]int{-1: 1, 0: 1, 1: 1, 1500 * time.Microsecond: 2, time.Second: 1000, math.MaxInt64: math.MaxInt32} {
		if got := milliseconds(d); int(got) != want {
			t.Errorf("%v is %d ms, want %d", d, got, want)
		}
	}
}

// Rule: descriptors do not block, and child processes do not inherit them.
func TestDescriptorFlags(t *testing.T) {
	r := newRig(t, Config{})
	cm := must.Get(r.ctx.p.CreateCMChannel())(t)
	defer cm.Close()
	for what, fd := range map[string]int{"completion": r.ch.FD(), "asynchronous": r.ctx.Async().FD(), "connection": cm.FD()} {
		status, _, e1 := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
		flags, _, e2 := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if e1 != 0 || e2 != 0 || status&syscall.O_NONBLOCK == 0 || flags&syscall.FD_CLOEXEC == 0 {
			t.Errorf("the descriptor of %s events: status %#x (%v), flags %#x (%v)", what, status, e1, flags, e2)
		}
	}
}

// Rule: the addresses are those of the table, which is read at once, and entry by entry where the library cannot; a
// table that cannot be read is an error.
func TestATableIsReadAtOnceOrByEntry(t *testing.T) {
	r := newRig(t, Config{})
	want := must.Get(r.ctx.Addrs())(t)
	for _, call := range []string{"ibv_query_gid", "ibv_query_gid_ex"} {
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: call, Err: syscall.EIO})
	}
	if got, err := r.ctx.Addrs(); err != nil || !slices.Equal(got, want) {
		t.Errorf("the addresses were %v, %v where no single entry can be read, want %v", got, err, want)
	}
	r.null.Clear()
	for errno, ok := range map[syscall.Errno]bool{syscall.EOPNOTSUPP: true, syscall.EIO: false} {
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_query_gid_table", Err: errno})
		got, err := r.ctx.Addrs()
		if ok && (err != nil || !slices.Equal(got, want)) {
			t.Errorf("the addresses were %v, %v where the table cannot be read at once, want %v", got, err, want)
		}
		if !ok && !errors.Is(err, errno) {
			t.Errorf("a table that cannot be read: %v, %v; want %v", got, err, errno)
		}
		r.null.Clear()
	}
}

// Rule: the kernel's errors for an empty entry mean an entry without an address; it does not hide
// later entries and is not an error of its own.
func TestAnEmptyEntryIsNoAddress(t *testing.T) {
	r := newRig(t, Config{})
	for _, errno := range []syscall.Errno{syscall.ENODATA, syscall.ENOENT} {
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_query_gid_ex", Err: errno})
		if e, err := r.ctx.QueryGIDEntry(1, 0); !errors.Is(err, verbs.ErrNoGID) || !errors.Is(err, errno) {
			t.Errorf("%v: read %+v, %v; want ErrNoGID", errno, e, err)
		}
		r.null.Clear()
	}
	if e, err := r.ctx.QueryGIDEntry(1, 0); err != nil {
		t.Errorf("an entry that is there: %+v, %v", e, err)
	}
}
