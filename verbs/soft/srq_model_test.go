package soft

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"pgregory.net/rapid"
)

// srqModel holds the expected state of a shared receive queue, independent of the queue pairs
// that take from it.
type srqModel struct {
	*sharing
	t        *rapid.T
	order    []uint64        // ids in the order of posting
	out      map[uint64]bool // posted and not polled
	size     int
	limit    uint32 // 0: not armed
	taken    uint64 // receives taken, as of the last look
	resized  uint64 // taken from the previous rings
	messages uint64
}

// look polls all completions and checks the invariants.
func (m *srqModel) look() {
	for i := range m.bs {
		m.poll(i)
	}
	m.a.poll(m.a.scq)
	m.a.events()
	fired := m.has(verbs.EventSRQLimitReached)
	a := must.Get(m.s.Query())(m.t)
	rq := m.s.rq.Load()
	taken := m.resized + rq.next
	switch {
	case m.limit == 0 && fired > 0:
		m.t.Fatalf("%d limit events, not armed", fired)
	case m.limit > 0 && a.Limit == 0 && fired != 1:
		m.t.Fatalf("%d limit events of one arming", fired)
	case m.limit > 0 && a.Limit != 0 && fired != 0:
		m.t.Fatalf("a limit event, and still armed")
	case a.Limit > 0 && taken > m.taken && rq.posted() < uint64(a.Limit):
		m.t.Fatalf("armed with %d, %d left behind a receive taken, and no event", a.Limit, rq.posted())
	}
	m.limit, m.taken = a.Limit, taken
}

// poll takes the completions of connection i: each must be of an outstanding receive, once.
func (m *srqModel) poll(i int) {
	for _, c := range m.bs[i].poll(m.bs[i].rcq) {
		if !m.out[c.WRID] {
			m.t.Fatalf("receive %d completes (%v), and is not outstanding", c.WRID, c.Status)
		}
		delete(m.out, c.WRID)
	}
}

// postOne posts a receive, which must be accepted while there is room.
func (m *srqModel) postOne() {
	id := uint64(len(m.order))
	err := m.tryPost(id, m.b.sge(int(id%64)*4096, 4096))
	if len(m.out) < m.size {
		must.Do(m.t, err)
		m.order, m.out[id] = append(m.order, id), true
	} else if !errors.Is(err, syscall.ENOMEM) {
		m.t.Fatalf("posting with %d of %d outstanding: %v, want ENOMEM", len(m.out), m.size, err)
	}
}

// message sends over connection i; one in five is too long for its receive.
func (m *srqModel) message(i int) {
	n := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 5000)).Draw(m.t, "bytes")
	m.messages++
	a := m.as[i]
	if _, err := a.post(a.send(m.messages, verbs.WRSend, verbs.SendSignaled, a.sge(0, n))); err != nil && !errors.Is(err, syscall.ENOMEM) {
		m.t.Fatalf("send: %v", err)
	}
}

// run processes up to n timed events.
func (m *srqModel) run(n int) {
	m.step()
	for ; n > 0; n-- {
		at, ok := m.fab.NextEvent()
		if !ok {
			return
		}
		m.fab.AdvanceTo(at)
		m.step()
	}
}

// end moves both ends of connection i to a state.
func (m *srqModel) end(i int, s verbs.QPState) {
	for _, e := range []*peer{m.as[i], m.bs[i]} {
		must.Do(m.t, e.qp.Modify(&verbs.QPAttr{State: s}, verbs.QPMState))
	}
}

func (m *srqModel) resize(n int) {
	rq := m.s.rq.Load()
	err := m.s.Resize(uint32(n))
	if len(m.out) > n || m.limit > uint32(n) {
		if !errors.Is(err, verbs.ErrInvalid) {
			m.t.Fatalf("resizing to %d with %d outstanding and limit %d: %v, want ErrInvalid", n, len(m.out), m.limit, err)
		}
		return
	}
	must.Do(m.t, err)
	m.size = n
	m.resized += rq.next - m.s.rq.Load().head.Load() // moving counts as taking in the old ring
}

// TestSRQModel: whatever is lost, refused, reset and destroyed, each receive completes at most
// once, receives are taken in the order of posting, none is lost, the limit event is raised once
// for each arming, and exactly the receives that are not outstanding leave room.
func TestSRQModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 12).Draw(t, "size")
		x := share(t, 3, verbs.SRQAttr{MaxWR: uint32(size), MaxSGE: 4}, options{seed: rapid.Uint64().Draw(t, "seed")})
		x.fab.SetAll(fabric.Link{Loss: rapid.SampledFrom([]float64{0, 0.05, 0.3}).Draw(t, "loss"), Dup: 0.05, Reorder: 0.05})
		m := &srqModel{sharing: x, t: t, out: map[uint64]bool{}, size: size}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, 2).Draw(t, "connection")
			switch rapid.IntRange(0, 12).Draw(t, "what") {
			case 0, 1, 2:
				for range rapid.IntRange(1, 5).Draw(t, "receives") {
					m.postOne()
				}
			case 3, 4, 5, 6:
				m.message(i)
			case 7:
				m.run(rapid.IntRange(0, 20).Draw(t, "events"))
			case 8:
				must.Do(t, m.bs[i].qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
			case 9:
				m.end(i, verbs.QPSReset)
				m.step()
				m.join(i)
			case 10:
				must.Do(t, m.bs[i].qp.Close())
				m.step() // its held receive is flushed
				m.look()
				m.drop(i)
				m.as, m.bs = append(m.as[:i], m.as[i+1:]...), append(m.bs[:i], m.bs[i+1:]...)
				m.add()
			case 11:
				limit := uint32(rapid.IntRange(0, m.size).Draw(t, "limit"))
				must.Do(t, m.s.SetLimit(limit))
				m.limit = limit
			case 12:
				m.resize(rapid.IntRange(1, 12).Draw(t, "new size"))
			}
			m.look()
		}
		for i := range m.as {
			if m.bs[i].state() != verbs.QPSReset {
				m.end(i, verbs.QPSErr)
			}
		}
		m.settle()
		m.look()
		left := int(m.s.rq.Load().posted())
		if len(m.out) != left {
			t.Fatalf("%d receives are outstanding, %d are still posted: the others were lost", len(m.out), left)
		}
		for _, id := range m.order[len(m.order)-left:] {
			if !m.out[id] {
				t.Fatalf("receive %d completed before one posted earlier was taken", id)
			}
		}
		for range m.size + 1 {
			m.postOne()
		}
	})
}

// sharing is a world in which b has a shared receive queue and n queue pairs that take from it,
// each connected to one of a's.
type sharing struct {
	*world
	o      options
	s      *sharedQueue
	as, bs []*peer // by connection; those of b complete receives to queues of their own
}

// newSRQ makes a shared receive queue.
func (e *peer) newSRQ(attr verbs.SRQAttr) *sharedQueue {
	e.w.t.Helper()
	s := must.Get(e.pd.CreateSRQ(&attr))(e.w.t)
	return s.(*sharedQueue)
}

// share makes n connections into a shared receive queue with attr.
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
		must.Do(t, x.s.Close())
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
	must.Do(x.t, err)
	init := verbs.QPInitAttr{SendCQ: b.scq, RecvCQ: b.rcq, SRQ: x.s, Type: verbs.QPTRC, Cap: cap}
	q := must.Get(b.pd.CreateQP(&init))(x.t)
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
		must.Do(x.t, o.Close())
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
		must.Do(x.t, x.tryPost(id, x.b.sge(int(id%64)*4096, 4096)))
	}
}

// full reports whether the shared queue is full; it does not post.
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

// got returns the receives that have completed on connection i, and checks that they carry its
// number.
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

// has takes b's events and counts those of type t.
func (x *sharing) has(t verbs.AsyncEventType) int {
	return len(slices.DeleteFunc(x.b.events(), func(e verbs.AsyncEventType) bool { return e != t }))
}

// TestSRQStressRealTime: one goroutine posts, one per connection polls, others run the engine by
// sending: each message takes one receive and each receive completes once. Under the race
// detector it also checks that they share atomic words only.
func TestSRQStressRealTime(t *testing.T) {
	const connections, messages, size = 3, 2000, 16
	x := share(t, connections, verbs.SRQAttr{MaxWR: size, MaxSGE: 4}, options{real: true, mtu: verbs.MTU1024})
	var received atomic.Int64 // counted by pollers, read by all to detect the end
	var wg sync.WaitGroup
	end := time.Now().Add(stressEnd)
	late := func() bool { runtime.Gosched(); return time.Now().After(end) }
	const total = connections * messages
	wg.Go(func() { // the holder of the turn
		for id := uint64(0); received.Load() < total; {
			switch err := x.tryPost(id, x.b.sge(int(id%size)*2048, 2048)); {
			case err == nil:
				id++
			case !errors.Is(err, syscall.ENOMEM) || late():
				t.Errorf("posting receive %d: %v", id, err)
				return
			}
		}
	})
	var seen sync.Map
	for i := range connections {
		wg.Go(func() {
			b := x.bs[i]
			buf, _ := mem.Array[verbs.WC](b.wcs, b.wcs.Addr()+uint64(i)*8*verbs.SizeofWC, 8)
			for n := 0; n < messages; {
				got, err := verbs.Poll(b.rcq, buf)
				if err != nil || got == 0 && late() {
					t.Errorf("connection %d: %d of %d received: %v", i, n, messages, err)
					return
				}
				for _, c := range buf[:got] {
					if _, twice := seen.LoadOrStore(c.WRID, i); twice || c.Status != verbs.WCSuccess || c.QPNum != b.qp.Num() {
						t.Errorf("connection %d: receive %d, %v, queue pair 0x%x, twice %v", i, c.WRID, c.Status, c.QPNum, twice)
						return
					}
				}
				n += got
				received.Add(int64(got))
			}
		})
	}
	wg.Go(func() {
		if err := x.stressSends(messages, late); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
}

// stressSends sends n messages over each connection, round robin.
func (x *sharing) stressSends(n int, late func() bool) error {
	buf, _ := mem.Array[verbs.WC](x.a.wcs, x.a.wcs.Addr(), 64)
	sent, done, all := 0, 0, n*len(x.as)
	for done < all {
		if sent < all && sent-done < 32 {
			a := x.as[sent%len(x.as)]
			if _, err := a.post(a.send(uint64(sent), verbs.WRSend, verbs.SendSignaled, a.sge(0, 1500))); err != nil {
				return err
			}
			sent++
		}
		got, err := verbs.Poll(x.a.scq, buf)
		if err != nil || got == 0 && late() {
			return fmt.Errorf("%d of %d sends completed: %w", done, all, err)
		}
		for _, c := range buf[:got] {
			if c.Status != verbs.WCSuccess {
				return c.Err()
			}
		}
		done += got
	}
	return nil
}
