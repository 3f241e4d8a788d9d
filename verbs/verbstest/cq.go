package verbstest

import (
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// pollBatch is the size of one poll.
const pollBatch = 16

// CQ is a completion queue of a case and the completions polled from it.
type CQ struct {
	verbs.CQ
	end  *End
	ch   verbs.CompChannel
	buf  []verbs.WC // off-heap
	got  []verbs.WC // polled, not yet taken
	dead error      // the error of a poll that failed
}

func (e *End) cq(cqe int, ch verbs.CompChannel) *CQ {
	e.c.t.Helper()
	cq, err := e.ctx.CreateCQ(cqe, ch, 0, 0)
	e.c.must(err, "create_cq of %d entries", cqe)
	e.c.defers(cq.Close)
	return &CQ{CQ: cq, end: e, ch: ch, buf: e.wcBuffer(pollBatch)}
}

// wcBuffer returns off-heap room for n completions.
func (e *End) wcBuffer(n int) []verbs.WC {
	buf, ok := mem.Array[verbs.WC](e.scratch.Arena(), e.alloc(n*verbs.SizeofWC), n)
	if !ok {
		e.c.failf("no room for %d completions", n)
	}
	return buf
}

// channel makes a completion channel.
func (e *End) channel() verbs.CompChannel {
	ch, err := e.ctx.CreateCompChannel()
	e.c.must(err, "create_comp_channel")
	e.c.defers(ch.Close)
	return ch
}

// poll takes the completions that are there now.
func (q *CQ) poll() int {
	for i := range q.buf {
		q.buf[i] = verbs.WC{WRID: ^uint64(0), Status: ^verbs.WCStatus(0)} // must be written
	}
	n, err := verbs.Poll(q.CQ, q.buf)
	if err != nil {
		q.dead = err
	}
	q.got = append(q.got, q.buf[:n]...)
	return n
}

// take waits for n completions and returns them in the order they came.
func (q *CQ) take(n int) []verbs.WC {
	q.end.c.t.Helper()
	if err := q.end.c.wait(q.end.c.pair.Patience, func() bool {
		for q.poll() > 0 {
		}
		return len(q.got) >= n || q.dead != nil
	}); err != nil {
		q.end.c.failf("%d of %d completions at %s: %v", len(q.got), n, q.end.name, err)
	}
	if len(q.got) < n {
		q.end.c.failf("poll_cq at %s after %d of %d completions: %v", q.end.name, len(q.got), n, q.dead)
	}
	out := q.got[:n:n]
	q.got = q.got[n:]
	return out
}

// one waits for one completion.
func (q *CQ) one() verbs.WC { q.end.c.t.Helper(); return q.take(1)[0] }

// none settles and checks that nothing more completed.
func (q *CQ) none(why string) {
	q.end.c.t.Helper()
	q.end.c.settle()
	for q.poll() > 0 {
	}
	if len(q.got) > 0 {
		q.end.c.failf("%s, but %s has the completion %s", why, q.end.name, show(q.got[0]))
	}
}

// arm asks for one event.
func (q *CQ) arm(solicited bool) {
	q.end.c.t.Helper()
	q.end.c.must(verbs.Arm(q.CQ, solicited), "req_notify_cq")
}

// event takes and acknowledges one event if there is one.
func (q *CQ) event() bool {
	q.end.c.t.Helper()
	cq, ok, err := q.ch.GetEvent()
	q.end.c.must(err, "get_cq_event")
	if !ok {
		return false
	}
	if cq != q.CQ {
		q.end.c.failf("the event is about %v, the only queue of the channel is %v", cq, q.CQ)
	}
	cq.AckEvents(1)
	return true
}

// untilEvent waits for an event.
func (q *CQ) untilEvent(why string) {
	q.end.c.t.Helper()
	q.end.c.until("a completion event: "+why, q.event)
}

// noEvent settles and checks that no event was raised.
func (q *CQ) noEvent(why string) {
	q.end.c.t.Helper()
	q.end.c.settle()
	if q.event() {
		q.end.c.failf("%s, but an event was raised", why)
	}
}
