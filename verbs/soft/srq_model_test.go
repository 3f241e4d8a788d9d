package soft

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"pgregory.net/rapid"
)

// srqModel is what must be true of a shared receive queue, whatever happens to
// the queue pairs that take from it.
type srqModel struct {
	*sharing
	t        *rapid.T
	order    []uint64        // of posting
	out      map[uint64]bool // posted and not polled out
	size     int
	limit    uint32 // armed with; 0: not armed
	taken    uint64 // receives taken, as of the last look
	resized  uint64 // taken from the rings before the present one
	messages uint64
}

// look polls everything and checks what holds at any time.
func (m *srqModel) look() {
	for i := range m.bs {
		m.poll(i)
	}
	m.a.poll(m.a.scq)
	m.a.events()
	fired := m.has(verbs.EventSRQLimitReached)
	a, err := m.s.Query()
	must(m.t, err)
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

// poll takes the completions of connection i: each of a receive that is out,
// once.
func (m *srqModel) poll(i int) {
	for _, c := range m.bs[i].poll(m.bs[i].rcq) {
		if !m.out[c.WRID] {
			m.t.Fatalf("receive %d completes (%v), and is not outstanding", c.WRID, c.Status)
		}
		delete(m.out, c.WRID)
	}
}

// postOne posts a receive, which must be taken as long as there is room.
func (m *srqModel) postOne() {
	id := uint64(len(m.order))
	err := m.tryPost(id, m.b.sge(int(id%64)*4096, 4096))
	if len(m.out) < m.size {
		must(m.t, err)
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

// run lets n things happen that wait for time.
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
		must(m.t, e.qp.Modify(&verbs.QPAttr{State: s}, verbs.QPMState))
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
	must(m.t, err)
	m.size = n
	m.resized += rq.next - m.s.rq.Load().head.Load() // moving counts as taking in the old ring
}

// TestSRQModel: whatever is lost, refused, reset and destroyed on the way, each
// receive completes at most once, receives are taken in the order of posting and
// none is lost, the limit event comes once for each arming, and there is room
// for exactly what is not outstanding.
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
				must(t, m.bs[i].qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
			case 9:
				m.end(i, verbs.QPSReset)
				m.step()
				m.join(i)
			case 10:
				must(t, m.bs[i].qp.Close())
				m.step() // what it held is flushed
				m.look()
				m.drop(i)
				m.as, m.bs = append(m.as[:i], m.as[i+1:]...), append(m.bs[:i], m.bs[i+1:]...)
				m.add()
			case 11:
				limit := uint32(rapid.IntRange(0, m.size).Draw(t, "limit"))
				must(t, m.s.SetLimit(limit))
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
