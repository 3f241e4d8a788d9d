package soft

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

var testGroup = verbs.GIDFromAddr(netip.MustParseAddr("239.1.2.3"))

// ready makes another UD queue pair of the peer, in RTR, and attaches it to gid.
func (e *peer) ready(gid verbs.GID) *queuePair {
	e.w.t.Helper()
	q := e.newQP(e.qp.granted)
	e.w.closing(q)
	a := verbs.QPAttr{State: verbs.QPSInit, Port: 1, QKey: testQKey}
	must.Do(e.w.t, q.Modify(&a, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMQKey))
	must.Do(e.w.t, q.Modify(&verbs.QPAttr{State: verbs.QPSRTR}, verbs.QPMState))
	must.Do(e.w.t, q.AttachMcast(gid, 0))
	return q
}

// recvOn posts one receive to another queue pair of the peer.
func (e *peer) recvOn(q *queuePair, id uint64, sges ...verbs.SGE) {
	own := e.qp
	e.qp = q
	e.recv(id, sges...)
	e.qp = own
}

// TestMulticastReachesEachThatIsAttached: attached queue pairs of every device receive a copy in
// their own memory, the sender too if it is attached; the network header contains the group's
// address.
func TestMulticastReachesEachThatIsAttached(t *testing.T) {
	for _, o := range []options{{}, {real: true}, {jumbo: true}} {
		w := newDatagrams(t, o)
		must.Do(t, w.a.qp.AttachMcast(testGroup, 0))
		more := []*queuePair{w.a.ready(testGroup), w.b.ready(testGroup), w.b.ready(testGroup)}
		_ = w.b.ready(verbs.GIDFromAddr(netip.MustParseAddr("239.1.2.4"))) // another group
		fill(w.a.data()[:500], 9)
		w.a.recv(1, w.a.sge(1000, 600))
		w.a.recvOn(more[0], 2, w.a.sge(2000, 600))
		w.b.recvOn(more[1], 3, w.b.sge(3000, 600))
		w.b.recvOn(more[2], 4, w.b.sge(4000, 600))
		w.b.recv(5, w.b.sge(5000, 600)) // b.qp is not attached
		w.a.mustPost(w.a.datagram(9, w.a.handle(testGroup), verbs.McastQPN, verbs.SendSignaled, w.a.sge(0, 500)))
		w.a.ok(w.a.want(w.a.scq, 1), 9)
		got := append(w.a.want(w.a.rcq, 2), w.b.want(w.b.rcq, 2)...)
		slices.SortFunc(got, func(x, y verbs.WC) int { return int(x.WRID) - int(y.WRID) })
		w.a.ok(got, 1)
		for i, data := range [][]byte{w.a.data(), w.a.data(), w.b.data(), w.b.data()} {
			at := 1000 * (i + 1)
			if string(data[at+grhLen:at+grhLen+500]) != string(w.a.data()[:500]) {
				t.Fatalf("receiver %d has other bytes", i+1)
			}
			if c := got[i]; c.SrcQP != w.a.qp.Num() || c.ByteLen != 540 || c.Flags != verbs.WCWithGRH {
				t.Fatalf("receiver %d got %+v", i+1, c)
			}
			if dst := netip.AddrFrom4([4]byte(data[at+36 : at+40])); dst != testGroup.Addr() {
				t.Fatalf("receiver %d finds %v as destination, want the group", i+1, dst)
			}
		}
	}
}

// TestMulticastEndsWithDetach: detaching or closing a queue pair ends delivery to it; other queue
// pairs of the device stay attached.
func TestMulticastEndsWithDetach(t *testing.T) {
	w := newDatagrams(t, options{})
	first, second := w.b.ready(testGroup), w.b.ready(testGroup)
	must.Do(t, first.AttachMcast(testGroup, 0)) // the second has no effect
	ah := w.a.handle(testGroup)
	id := uint64(0)
	arrive := func(want int, when string) {
		t.Helper()
		for _, q := range []*queuePair{first, second} {
			if !q.closed.Load() {
				w.b.recvOn(q, 1, w.b.sge(0, 100))
			}
		}
		id++
		w.a.mustPost(w.a.datagram(id, ah, verbs.McastQPN, verbs.SendSignaled, w.a.sge(0, 8)))
		w.a.ok(w.a.want(w.a.scq, 1), id)
		if got := w.b.poll(w.b.rcq); len(got) != want {
			t.Fatalf("%s: %d copies, want %d", when, len(got), want)
		}
	}
	arrive(2, "two attached")
	must.Do(t, first.DetachMcast(testGroup, 0))
	arrive(1, "one detached")
	if err := first.DetachMcast(testGroup, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("detaching what is not attached: %v, want ErrInvalid", err)
	}
	must.Do(t, first.AttachMcast(testGroup, 0))
	arrive(2, "attached again")
	must.Do(t, second.Close())
	arrive(1, "one closed")
	must.Do(t, first.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
	must.Do(t, first.Close())
	w.a.mustPost(w.a.datagram(id, ah, verbs.McastQPN, verbs.SendSignaled, w.a.sge(0, 8)))
	w.a.ok(w.a.want(w.a.scq, 1), id)
	if n := w.a.qp.dev.p.Stats().Unknown; n != 1 || len(w.b.ctx.dev.groups) != 0 {
		t.Fatalf("the device must leave a group with its last queue pair: %d packets to nobody", n)
	}
}

// TestMulticastLimits: invalid attachments, and the maximum number of valid ones.
func TestMulticastLimits(t *testing.T) {
	w := newDatagrams(t, options{})
	l := &w.a.ctx.dev.cfg.Limits
	l.MaxMcastGrp, l.MaxMcastQP = 2, 1
	if err := w.a.qp.AttachMcast(w.b.gid, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("attaching to a unicast address: %v, want ErrInvalid", err)
	}
	rc := must.Get(w.a.pd.CreateQP(&verbs.QPInitAttr{SendCQ: w.a.scq, RecvCQ: w.a.rcq, Type: verbs.QPTRC}))(t)
	w.closing(rc)
	if err := rc.AttachMcast(testGroup, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("attaching an RC queue pair: %v, want ErrInvalid", err)
	}
	q := w.a.ready(testGroup)
	if err := w.a.qp.AttachMcast(testGroup, 0); !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("one more than MaxMcastQP: %v, want ENOMEM", err)
	}
	must.Do(t, w.a.qp.AttachMcast(verbs.GIDFromAddr(netip.MustParseAddr("ff0e::1")), 0))
	third := verbs.GIDFromAddr(netip.MustParseAddr("ff0e::2"))
	if err := q.AttachMcast(third, 0); !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("one more than MaxMcastGrp: %v, want ENOMEM", err)
	}
	must.Do(t, q.DetachMcast(testGroup, 0))
	must.Do(t, q.AttachMcast(third, 0))
	must.Do(t, q.Close())
	if err := q.AttachMcast(third, 0); !errors.Is(err, verbs.ErrClosed) {
		t.Fatalf("attaching a closed queue pair: %v, want ErrClosed", err)
	}
	d := must.Get(w.a.ctx.QueryDevice())(t)
	if d.MaxMcastGrp != 2 || d.MaxMcastQP != 1 || d.MaxAH != l.MaxAH {
		t.Fatalf("the device tells limits %+v", d)
	}
}

// TestMulticastFaultsAreOfEachLink: one receiver's link loses its copy, the other's duplicates
// it.
func TestMulticastFaultsAreOfEachLink(t *testing.T) {
	w := newDatagrams(t, options{})
	here, there := w.a.ready(testGroup), w.b.ready(testGroup)
	w.fab.SetLink(w.a.gid, w.a.gid, fabric.Link{Rules: []fabric.Rule{{Dup: true}}})
	w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Rules: []fabric.Rule{{To: 1, Drop: true}}})
	for i := range 4 {
		w.a.recvOn(here, uint64(i), w.a.sge(1000, 100))
		w.b.recvOn(there, uint64(i), w.b.sge(1000, 100))
	}
	ah := w.a.handle(testGroup)
	w.a.mustPost(
		w.a.datagram(1, ah, verbs.McastQPN, verbs.SendSignaled, w.a.sge(0, 8)),
		w.a.datagram(2, ah, verbs.McastQPN, verbs.SendSignaled, w.a.sge(0, 8)))
	w.a.ok(w.a.want(w.a.scq, 2), 1)
	w.a.ok(w.a.want(w.a.rcq, 4), 0)
	w.b.ok(w.b.want(w.b.rcq, 1), 0)
}

// TestMulticastOnlyToItsNumber: a datagram to a group's address with another queue pair number,
// and one to McastQPN at a port's address, have no receiver.
func TestMulticastOnlyToItsNumber(t *testing.T) {
	w := newDatagrams(t, options{})
	q := w.b.ready(testGroup)
	w.b.recvOn(q, 1, w.b.sge(0, 100))
	w.a.mustPost(
		w.a.datagram(1, w.a.handle(testGroup), q.Num(), verbs.SendSignaled, w.a.sge(0, 8)),
		w.a.datagram(2, w.a.handle(w.b.gid), verbs.McastQPN, verbs.SendSignaled, w.a.sge(0, 8)))
	w.a.ok(w.a.want(w.a.scq, 2), 1)
	if got := w.b.poll(w.b.rcq); len(got) > 0 || w.b.counters().NoQueuePair != 2 {
		t.Fatalf("both must be dropped: %+v, %+v", got, w.b.counters())
	}
}

// TestDatagramsWhileGroupsChange is for the race detector: two ends send to a group and to each
// other, each on its own goroutine, while queue pairs are attached and detached and address
// handles are made and closed. Every send completes with success.
func TestDatagramsWhileGroupsChange(t *testing.T) {
	w := newDatagrams(t, options{real: true})
	const rounds = 400
	ends := []*peer{w.a, w.b}
	extra := []*queuePair{w.a.ready(testGroup), w.b.ready(testGroup)}
	group := []verbs.AH{w.a.handle(testGroup), w.b.handle(testGroup)}
	other := []verbs.AH{w.a.handle(w.b.gid), w.b.handle(w.a.gid)}
	for _, e := range ends {
		must.Do(t, e.qp.AttachMcast(testGroup, 0))
	}
	number := []uint32{w.b.qp.Num(), w.a.qp.Num()}
	var senders, changer sync.WaitGroup
	for i, e := range ends {
		senders.Go(func() {
			for id, at := uint64(0), 0; id < 2*rounds; id += 2 {
				if id < 2*60 { // the others find no receive: dropped
					e.recv(id, e.sge(10000+at, 600))
				}
				at = (at + 600) % 60000
				e.mustPost(
					e.datagram(id, group[i], verbs.McastQPN, verbs.SendSignaled, e.sge(0, 500)),
					e.datagram(id+1, other[i], number[i], verbs.SendSignaled, e.sge(0, 500)))
				var got []verbs.WC
				for end := time.Now().Add(10 * time.Second); len(got) < 2 && time.Now().Before(end); {
					got = append(got, e.poll(e.scq)...)
				}
				if len(got) != 2 || got[0].Status != verbs.WCSuccess || got[1].Status != verbs.WCSuccess {
					t.Errorf("round %d of end %d: %+v, want two successes", id/2, i, got)
					return
				}
				e.poll(e.rcq)
			}
		})
	}
	stop := make(chan struct{})
	changer.Go(func() {
		for i := 0; ; i = 1 - i {
			select {
			case <-stop:
				return
			default:
			}
			h, err := ends[i].pd.CreateAH(&verbs.AHAttr{DGID: testGroup, Port: 1})
			if err != nil || extra[i].DetachMcast(testGroup, 0) != nil || extra[i].AttachMcast(testGroup, 0) != nil || h.Close() != nil {
				t.Errorf("a change failed: %v", err)
				return
			}
		}
	})
	senders.Wait()
	close(stop)
	changer.Wait()
}
