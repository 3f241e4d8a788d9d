package verbstest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// show formats the meaningful fields of a completion.
func show(w verbs.WC) string {
	if w.Status != verbs.WCSuccess {
		return fmt.Sprintf("wr_id %d %v (vendor error %#x)", w.WRID, w.Status, w.VendorErr)
	}
	return fmt.Sprintf("wr_id %d %v %v, %d bytes, flags %v", w.WRID, w.Status, w.Opcode, w.ByteLen, w.Flags)
}

// sent checks the success of a send-queue operation.
func (q *QP) sent(w verbs.WC, id uint64, op verbs.WCOpcode) {
	q.c.t.Helper()
	if w.Status != verbs.WCSuccess || w.WRID != id || w.Opcode != op {
		q.c.failf("%s's send completion is %s; want wr_id %d SUCCESS %v", q.end.name, show(w), id, op)
	}
	q.mine(w)
}

// received checks the success of a receive of n bytes.
func (q *QP) received(w verbs.WC, id uint64, op verbs.WCOpcode, n int) {
	q.c.t.Helper()
	if w.Status != verbs.WCSuccess || w.WRID != id || w.Opcode != op || w.ByteLen != uint32(n) {
		q.c.failf("%s's receive completion is %s; want wr_id %d SUCCESS %v, %d bytes", q.end.name, show(w), id, op, n)
	}
	q.mine(w)
}

// failed checks a completion with an error: only wr_id, status and qp_num are meaningful.
func (q *QP) failed(w verbs.WC, id uint64, want ...verbs.WCStatus) {
	q.c.t.Helper()
	if w.WRID != id || !slices.Contains(want, w.Status) {
		q.c.failf("%s's completion is %s; want wr_id %d with %v", q.end.name, show(w), id, want)
	}
	q.mine(w)
}

// flushed checks that the next completions are those of these requests, flushed, in this order.
func (q *QP) flushed(cq *CQ, ids ...uint64) {
	q.c.t.Helper()
	for i, w := range cq.take(len(ids)) {
		q.failed(w, ids[i], verbs.WCWRFlushErr)
	}
}

func (q *QP) mine(w verbs.WC) {
	q.c.t.Helper()
	if w.QPNum != q.Num() {
		q.c.failf("the completion names QP %#x, the queue pair is %#x", w.QPNum, q.Num())
	}
}

// tell formats the visible state of a queue pair, for a failure's message.
func (q *QP) tell() string {
	q.c.settle()
	q.end.drainAsync()
	s := fmt.Sprintf("\t%s in %v", q.end.name, q.state())
	for _, ev := range q.end.events {
		if ev.QP == q.QP {
			s += fmt.Sprintf("; event %v", ev.Type)
		}
	}
	for name, cq := range map[string]*CQ{"send": q.scq, "receive": q.rcq} {
		for cq.poll() > 0 {
		}
		for i, w := range cq.got {
			if i < pollBatch {
				s += fmt.Sprintf("; %s queue: %s", name, show(w))
			}
		}
	}
	return s
}

// same checks that two byte slices are equal.
func (c *Case) same(got, want []byte, what string) {
	c.t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range got {
		if i >= len(want) || got[i] != want[i] {
			c.failf("%s: byte %d of %d differs: %#x", what, i, len(got), got[i])
		}
	}
	c.failf("%s: %d bytes, want %d", what, len(got), len(want))
}

// untouched checks that poisoned memory was not written.
func (c *Case) untouched(b []byte, what string) {
	c.t.Helper()
	if at := mem.Poisoned(b); at >= 0 {
		c.failf("%s: byte %d was written", what, at)
	}
}

// bothDead checks that both queue pairs went to ERR.
func (c *Case) bothDead(a, b *QP) {
	c.t.Helper()
	a.untilState(verbs.QPSErr)
	b.untilState(verbs.QPSErr)
}
