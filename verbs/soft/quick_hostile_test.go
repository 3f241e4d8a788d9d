package soft

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// farAway is an address that the recorder tells from the beginning of b's memory,
// which is elsewhere in each world.
var farAway = regexp.MustCompile(`at \+\d{12,}`)

// plain is a packet that the quick way takes, until a case below spoils it.
type plain struct {
	h       wire.Header
	payload []byte
	from    *queuePair // whose port sends it
}

// other is a region of all of b's memory in another domain, closed in the end.
func (e *peer) other(access verbs.AccessFlags) verbs.MR {
	pd, err := e.ctx.AllocPD()
	must(e.w.t, err)
	m, err := pd.RegMR(e.arena.Addr(), uint64(e.arena.Len()), e.arena.Addr(), access)
	must(e.w.t, err)
	e.w.before = append(e.w.before, m, pd)
	return m
}

// region is one more region of all of b's memory in its own domain, closed in the
// end.
func (e *peer) region(access verbs.AccessFlags) verbs.MR {
	m := e.register(access)
	e.w.before = append(e.w.before, m)
	return m
}

// established has a message of a's executed at b, so that what follows may go the
// quick way.
func (w *world) established() {
	w.inject(wire.Header{Opcode: wire.RCWriteOnly, PSN: narrow(w.next()), AckReq: true}, nil)
}

// Rule: a packet that is in order but for one thing is treated as the general way
// treats it, whatever that thing is.
func TestQuickWayIsGuarded(t *testing.T) {
	write := func(w *world) plain {
		h := wire.Header{Opcode: wire.RCWriteOnly, VA: w.b.at(4096), RKey: w.b.mr.RKey(), Length: 8, AckReq: true, PSN: narrow(w.next())}
		return plain{h, []byte("12345678"), w.a.qp}
	}
	send := func(w *world) plain {
		return plain{wire.Header{Opcode: wire.RCSendOnly, AckReq: true, PSN: narrow(w.next())}, []byte("12345678"), w.a.qp}
	}
	// before is a packet that comes first, in sequence.
	before := func(w *world, op wire.Opcode, payload int) {
		h := wire.Header{Opcode: op, PSN: narrow(w.next()), VA: w.b.at(0), RKey: w.b.mr.RKey(), Length: 3000}
		w.inject(h, make([]byte, payload))
	}
	for _, c := range []struct {
		name  string
		of    func(w *world) plain
		spoil func(w *world, p *plain)
	}{
		{"write", write, func(*world, *plain) {}},
		{"write, solicited, not to be acknowledged", write, func(_ *world, p *plain) { p.h.Solicited, p.h.AckReq = true, false }},
		{"write of a packet before", write, func(_ *world, p *plain) { p.h.PSN = p.h.PSN.Sub(1) }},
		{"write behind a gap", write, func(_ *world, p *plain) { p.h.PSN = p.h.PSN.Add(1) }},
		{"write half the PSNs away", write, func(_ *world, p *plain) { p.h.PSN = p.h.PSN.Add(wire.PSNWindow) }},
		{"write within a write", write, func(w *world, p *plain) { before(w, wire.RCWriteFirst, 1024); p.h.PSN = narrow(w.next()) }},
		{"write within a send", write, func(w *world, p *plain) { before(w, wire.RCSendFirst, 1024); p.h.PSN = narrow(w.next()) }},
		{"write that was waited for", write, func(w *world, p *plain) {
			w.inject(wire.Header{Opcode: wire.RCWriteOnly, PSN: p.h.PSN.Add(2)}, nil)
		}},
		{"write behind a refusal", write, func(w *world, p *plain) {
			h := p.h
			h.RKey ^= 1 << 20
			w.a.qp.dev.exclusive(func() { // both in one turn of b's
				k := w.a.qp.dev.p.Get()
				k.AddCopy(p.payload)
				w.a.qp.transmit(k, &h)
			})
			p.h.PSN = p.h.PSN.Add(1)
		}},
		{"write that was refused, again", write, func(w *world, p *plain) {
			h := p.h
			h.RKey ^= 1 << 20
			w.a.qp.dev.exclusive(func() {
				k := w.a.qp.dev.p.Get()
				k.AddCopy(p.payload)
				w.a.qp.transmit(k, &h)
			})
		}},
		{"write longer than its payload", write, func(_ *world, p *plain) { p.h.Length = 9 }},
		{"write shorter than its payload", write, func(_ *world, p *plain) { p.h.Length = 7 }},
		{"write longer than the MTU", write, func(_ *world, p *plain) { p.h.Length, p.payload = 1025, make([]byte, 1025) }},
		{"write with another key", write, func(_ *world, p *plain) { p.h.RKey ^= 1 << 20 }},
		{"write with another tag", write, func(_ *world, p *plain) { p.h.RKey ^= 1 }},
		{"write beyond the region", write, func(w *world, p *plain) { p.h.VA = w.b.at(w.b.arena.Len() - 7) }},
		{"write before the region", write, func(w *world, p *plain) { p.h.VA = w.b.at(0) - 1 }},
		{"write around the end of addresses", write, func(_ *world, p *plain) { p.h.VA = ^uint64(0) - 3 }},
		{"write into another domain", write, func(w *world, p *plain) { p.h.RKey = w.b.other(allAccess).RKey() }},
		{"write where one may only read", write, func(w *world, p *plain) { p.h.RKey = w.b.region(verbs.AccessRemoteRead).RKey() }},
		{"write where the queue pair may not", write, func(w *world, _ *plain) { w.b.qp.attr.AccessFlags = verbs.AccessRemoteRead }},
		{"write on another partition", write, func(w *world, p *plain) {
			p.from.dev.exclusive(func() { w.raw(p, func(h *wire.Header) { h.PKey = 0x7fff }) })
		}},
		{"write of another transport", write, func(_ *world, p *plain) { p.h.Opcode = wire.UCWriteOnly }},
		{"write from another port", write, func(w *world, p *plain) { p.from = w.b.qp }},
		{"write to a queue pair in ERR", write, func(w *world, _ *plain) {
			must(w.t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
		}},
		{"write to a queue pair in SQD", write, func(w *world, _ *plain) {
			must(w.t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSSQD}, verbs.QPMState))
		}},
		{"write behind a FLUSH", write, func(w *world, _ *plain) { w.b.qp.resp.sync = &persistence{q: w.b.qp} }},
		{"first write of all", write, func(w *world, _ *plain) { w.b.qp.resp.established = false }},
		{"send", send, func(w *world, _ *plain) { w.b.recv(1, w.b.sge(4096, 8)) }},
		{"send, solicited", send, func(w *world, p *plain) { w.b.recv(1, w.b.sge(4096, 8)); p.h.Solicited = true }},
		{"send without a receive", send, func(*world, *plain) {}},
		{"send without elements", send, func(w *world, _ *plain) { w.b.recv(1) }},
		{"send without elements where there were some", send, func(w *world, _ *plain) {
			w.b.recv(1)
			rq := w.b.qp.rq.Load()
			place, _ := rq.front()
			rq.sge[(place&rq.mask)*uint64(rq.maxSGE)] = w.b.sge(4096, 8)
		}},
		{"send longer than the receive", send, func(w *world, _ *plain) { w.b.recv(1, w.b.sge(4096, 7)) }},
		{"send of two elements", send, func(w *world, _ *plain) { w.b.recv(1, w.b.sge(4096, 4), w.b.sge(8192, 4)) }},
		{"send behind an empty element", send, func(w *world, _ *plain) { w.b.recv(1, w.b.sge(4096, 0), w.b.sge(8192, 8)) }},
		{"send of nothing", send, func(w *world, p *plain) { w.b.recv(1, w.b.sge(4096, 8)); p.payload = nil }},
		{"send into a region that may not be written", send, func(w *world, _ *plain) {
			s := w.b.sge(4096, 8)
			s.LKey = w.b.region(verbs.AccessRemoteRead).LKey()
			w.b.recv(1, s)
		}},
		{"send into another domain", send, func(w *world, _ *plain) {
			s := w.b.sge(4096, 8)
			s.LKey = w.b.other(allAccess).LKey()
			w.b.recv(1, s)
		}},
		{"send within a send", send, func(w *world, p *plain) {
			w.b.recv(1, w.b.sge(4096, 2048))
			w.b.recv(2, w.b.sge(8192, 2048))
			before(w, wire.RCSendFirst, 1024)
			p.h.PSN = narrow(w.next())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func(quick bool) string {
				w := newWorld(t, options{seed: 1})
				mem.Poison(w.b.data())
				w.established()
				if !quick {
					w.b.qp.quickMax = 0
				}
				r := &recorder{w: w}
				w.fab.SetTrace(r.packet, true)
				p := c.of(w)
				c.spoil(w, &p)
				p.from.dev.exclusive(func() { w.raw(&p, nil) })
				w.settle()
				for _, wc := range append(w.b.poll(w.b.rcq), w.b.poll(w.b.scq)...) {
					wc.QPNum, wc.SrcQP = 0, 0 // random
					fmt.Fprintf(r, "completion %+v\n", wc)
				}
				w.b.qp.dropParked()
				fmt.Fprintf(r, "%v, expects %x, msn %d, established %v, events %v, memory %x\n", w.b.state(), w.next(), w.b.qp.resp.msn,
					w.b.qp.resp.established, w.b.events(), xxhash.Sum64(w.b.data()))
				w.fab.SetTrace(nil, false)
				return farAway.ReplaceAllString(r.String(), "far away")
			}
			if quick, general := run(true), run(false); quick != general {
				t.Fatalf("the quick way\n%s\nthe general way\n%s", quick, general)
			}
		})
	}
}

// raw sends p as it is, but for what change changes. In the turn of p.from's device.
func (w *world) raw(p *plain, change func(h *wire.Header)) {
	h := p.h
	h.PKey, h.DestQP, h.MigReq = wire.DefaultPKey, w.b.qp.number, true
	if change != nil {
		change(&h)
	}
	k := p.from.dev.p.Get()
	k.AddCopy(p.payload)
	k.SetHeader(&h)
	k.Dst = w.b.gid
	p.from.dev.p.Send(k)
}
