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
	arena  *mem.Arena // of the last request
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

// request returns the request at addr, which may be in another arena than the last one.
func (d *null) request(addr uint64) (w *verbs.SendWR, ok bool) {
	if d.arena != nil {
		if w, ok = mem.At[verbs.SendWR](d.arena, addr); ok {
			return w, true
		}
	}
	if d.arena, ok = mem.Find(addr, verbs.SizeofSendWR); !ok {
		return nil, false
	}
	return mem.At[verbs.SendWR](d.arena, addr)
}

// Execute implements verbs.Context. One goroutine at a time.
func (d *null) Execute(t *verbs.IOBatch) error {
	for i := range t.Sends {
		g := &t.Sends[i]
		for addr := g.Head; addr != 0; g.Accepted++ {
			w, ok := d.request(addr)
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
