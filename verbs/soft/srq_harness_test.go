package soft

import (
	"errors"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// sharing is a world whose b has a shared receive queue and n queue pairs that
// take from it, each connected to one of a's.
type sharing struct {
	*world
	o      options
	s      *sharedQueue
	as, bs []*peer // by connection; b's complete receives to queues of their own
}

// newSRQ makes a shared receive queue.
func (e *peer) newSRQ(attr verbs.SRQAttr) *sharedQueue {
	e.w.t.Helper()
	s, err := e.pd.CreateSRQ(&attr)
	must(e.w.t, err)
	return s.(*sharedQueue)
}

// share makes n connections into a shared receive queue of attr.
func share(t tb, n int, attr verbs.SRQAttr, o options) *sharing {
	t.Helper()
	x := &sharing{world: newWorld(t, o), o: o}
	if x.o.mtu == 0 {
		x.o.mtu, x.o.access = verbs.MTU1024, allAccess
	}
	x.s = x.b.newSRQ(attr)
	t.Cleanup(func() {
		for i := range x.as {
			x.drop(i)
		}
		x.b.events()
		must(t, x.s.Close())
	})
	for range n {
		x.add()
	}
	return x
}

// add makes one more connection.
func (x *sharing) add() {
	x.t.Helper()
	cap := verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4}
	a, b := *x.a, *x.b
	a.qp = a.newQP(cap)
	var err error
	b.rcq, err = b.ctx.CreateCQ(64, b.ch, 0, 0)
	must(x.t, err)
	init := verbs.QPInitAttr{SendCQ: b.scq, RecvCQ: b.rcq, SRQ: x.s, Type: verbs.QPTRC, Cap: cap}
	q, err := b.pd.CreateQP(&init)
	must(x.t, err)
	b.qp = q.(*queuePair)
	x.as, x.bs = append(x.as, &a), append(x.bs, &b)
	x.join(len(x.as) - 1)
}

// join connects connection i.
func (x *sharing) join(i int) {
	x.t.Helper()
	(&world{t: x.t, fab: x.fab, p: x.p, a: x.as[i], b: x.bs[i]}).connect(x.o)
}

// drop closes connection i.
func (x *sharing) drop(i int) {
	x.t.Helper()
	x.a.events()
	x.b.events()
	for _, o := range []verbs.Object{x.as[i].qp, x.bs[i].qp, x.bs[i].rcq} {
		must(x.t, o.Close())
	}
}

// tryPost posts one receive to the shared queue.
func (x *sharing) tryPost(id uint64, sges ...verbs.SGE) error {
	e := x.b
	addr := e.alloc(verbs.SizeofRecvWR)
	wr, _ := mem.At[verbs.RecvWR](e.wrs, addr)
	*wr = verbs.RecvWR{WRID: id, NumSGE: uint32(len(sges)), SGList: e.list(sges)}
	_, err := verbs.PostSRQRecv(x.s, addr, 1)
	return err
}

// post posts receives of 4096 bytes with ids from first on.
func (x *sharing) post(first uint64, n int) {
	x.t.Helper()
	for id := first; id < first+uint64(n); id++ {
		must(x.t, x.tryPost(id, x.b.sge(int(id%64)*4096, 4096)))
	}
}

// full tells whether the shared queue takes no more; it does not post.
func (x *sharing) full() bool {
	x.t.Helper()
	err := x.tryPost(0, verbs.SGE{}, verbs.SGE{}, verbs.SGE{}, verbs.SGE{}, verbs.SGE{}) // too many elements
	switch {
	case errors.Is(err, syscall.ENOMEM):
		return true
	case errors.Is(err, syscall.EINVAL):
		return false
	}
	x.t.Fatalf("posting too many elements: %v", err)
	return false
}

// send sends n bytes over connection i.
func (x *sharing) send(i int, id uint64, n int) {
	x.t.Helper()
	a := x.as[i]
	a.mustPost(a.send(id, verbs.WRSend, 0, a.sge(0, n)))
}

// got are the receives that have completed on connection i, and checks that
// they carry its number.
func (x *sharing) got(i int) string {
	x.t.Helper()
	wcs := x.bs[i].poll(x.bs[i].rcq)
	for _, c := range wcs {
		if c.QPNum != x.bs[i].qp.Num() {
			x.t.Fatalf("receive %d carries queue pair 0x%x, taken by 0x%x", c.WRID, c.QPNum, x.bs[i].qp.Num())
		}
	}
	return statuses(wcs)
}

// has counts events of a type among b's, which it takes.
func (x *sharing) has(t verbs.AsyncEventType) int {
	return len(slices.DeleteFunc(x.b.events(), func(e verbs.AsyncEventType) bool { return e != t }))
}
