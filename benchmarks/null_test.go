package main

import (
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// null is a device that does nothing: it accepts all requests, moves no data, and completes
// signaled ones at the next poll. The measured cost is the reactor's own. All methods except
// Execute are the software RNIC's.
type null struct {
	verbs.Context
	sendCQ verbs.CQ   // the first one made
	hold   bool       // polls find nothing yet
	done   []verbs.WC // completions not polled, a queue
	head   int
}

// CreateCQ records the queue for the completions.
func (d *null) CreateCQ(entries int, ch verbs.CompChannel, vector int, data uint64) (verbs.CQ, error) {
	cq, err := d.Context.CreateCQ(entries, ch, vector, data)
	if d.sendCQ == nil {
		d.sendCQ = cq
	}
	return cq, err
}

// Execute implements verbs.Context. One goroutine at a time.
func (d *null) Execute(t *verbs.IOBatch) error {
	for i := range t.Sends {
		g := &t.Sends[i]
		a, ok := mem.Find(g.Head, verbs.SizeofSendWR)
		if !ok {
			g.Accepted, g.Errno = 0, syscall.EINVAL
			continue
		}
		for addr := g.Head; addr != 0; g.Accepted++ {
			w, ok := mem.At[verbs.SendWR](a, addr)
			if !ok {
				g.Errno = syscall.EINVAL
				break
			}
			if w.Flags&verbs.SendSignaled != 0 {
				d.done = append(d.done, verbs.WC{WRID: w.WRID, Opcode: verbs.WCRDMAWrite, QPNum: g.QP.Num()})
			}
			addr = w.Next
		}
	}
	for i := range t.Polls {
		p := &t.Polls[i]
		if p.N = 0; d.hold || p.CQ != d.sendCQ {
			continue
		}
		p.N = copy(p.WC, d.done[d.head:])
		if d.head += p.N; d.head == len(d.done) {
			d.head, d.done = 0, d.done[:0]
		}
	}
	return nil
}
