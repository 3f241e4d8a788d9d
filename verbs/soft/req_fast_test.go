package soft

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
	"pgregory.net/rapid"
)

// deed is one request and its circumstances, executed in both worlds of the test below.
type deed struct {
	op      verbs.WROpcode
	n       int // bytes
	flags   verbs.SendFlags
	spoil   string // the kind of mistake in it; "": none
	receive int    // bytes of a receive that b posts before; -1: none
	steps   int    // steps of the fabric afterwards
}

// spoils are the possible mistakes of a request, mostly none.
var spoils = []string{"", "", "", "", "", "", "", "lkey", "rkey", "local range", "remote range", "long"}

func drawDeed(t *rapid.T) deed {
	d := deed{
		op:      rapid.SampledFrom([]verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMAWrite, verbs.WRSend, verbs.WRSend, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead}).Draw(t, "op"),
		n:       rapid.SampledFrom([]int{0, 1, 8, 8, 64, 65, 256, 257, 1024, 1025, 3000}).Draw(t, "n"),
		spoil:   rapid.SampledFrom(spoils).Draw(t, "spoil"),
		receive: rapid.SampledFrom([]int{4096, 4096, 4096, 8, -1}).Draw(t, "receive"),
		steps:   rapid.IntRange(0, 3).Draw(t, "steps"),
	}
	for _, f := range []verbs.SendFlags{verbs.SendSignaled, verbs.SendSolicited, verbs.SendFence, verbs.SendInline} {
		if rapid.IntRange(0, 3).Draw(t, f.String()) == 0 && (f != verbs.SendInline || d.op != verbs.WRRDMARead && d.n <= 256) {
			d.flags |= f
		}
	}
	return d
}

// play executes all deeds in a new world and returns a transcript: packets, completions and a
// hash of the memory.
func play(t *rapid.T, deeds []deed, o options, l fabric.Link, quick bool) string {
	w := newWorld(t, o)
	w.fab.SetAll(l)
	r := &recorder{w: w}
	w.fab.SetTrace(r.packet, true)
	for _, e := range []*peer{w.a, w.b} {
		fill(e.data(), byte(len(e.gid)))
		if !quick {
			e.qp.fastMax = 0
		}
	}
	for i, d := range deeds {
		if d.receive >= 0 {
			w.b.recv(uint64(i), w.b.sge(1<<18+i<<12, d.receive))
		}
		s := w.a.sge(i<<12, d.n)
		key, at := w.b.mr.RKey(), w.b.at(1<<19+i<<12)
		switch d.spoil {
		case "lkey":
			s.LKey ^= 1 << 20
		case "rkey":
			key ^= 1 << 20
		case "local range":
			s.Addr = w.a.at(w.a.arena.Len()) - 1
		case "remote range":
			at = w.b.at(w.b.arena.Len()) - 1
		case "long":
			s.Length = 100_000
		}
		if d.flags&verbs.SendInline != 0 && (d.spoil == "local range" || d.spoil == "long") {
			continue // refused by posting
		}
		wr := w.a.send(uint64(i), d.op, d.flags, s)
		switch d.op {
		case verbs.WRSend:
		default:
			wr.SetRDMA(at, key)
		}
		if _, err := w.a.post(wr); err != nil {
			fmt.Fprintf(r, "request %d refused: %v\n", i, err)
		}
		for range d.steps {
			w.fab.Step()
		}
	}
	w.settle()
	for _, wc := range w.a.poll(w.a.scq) {
		fmt.Fprintf(r, "completion %+v\n", wc)
	}
	for _, wc := range w.b.poll(w.b.rcq) {
		fmt.Fprintf(r, "receive %+v\n", wc)
	}
	fmt.Fprintf(r, "states %v %v events %v memory %x %x\n", w.a.qp.current(), w.b.qp.current(), w.b.events(), xxhash.Sum64(w.a.data()), xxhash.Sum64(w.b.data()))
	w.fab.SetTrace(nil, false)
	return strings.NewReplacer(fmt.Sprint(w.a.qp.Num()), "qp a", fmt.Sprint(w.b.qp.Num()), "qp b").Replace(r.String())
}

// Rule: the fast path does what the general path does: the same requests yield the same packets,
// completions and memory, also when a request is wrong or the link is bad. With fastMax 0, only
// empty messages take the fast path.
func TestQuickWayIsTheGeneralWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := options{
			seed: rapid.Uint64().Draw(t, "seed"), jumbo: true,
			mtu:    rapid.SampledFrom([]verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTUJumbo}).Draw(t, "mtu"),
			cap:    verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 256},
			attr:   func(a *verbs.QPAttr) { a.RNRRetry = 2 }, // seven is forever
			shared: rapid.Bool().Draw(t, "shared receives"),
		}
		if rapid.IntRange(0, 7).Draw(t, "no remote access") == 0 {
			o.access = verbs.AccessLocalWrite
		}
		l := fabric.Link{
			Loss:    rapid.SampledFrom([]float64{0, 0, 0.05}).Draw(t, "loss"),
			Dup:     rapid.SampledFrom([]float64{0, 0, 0.2}).Draw(t, "dup"),
			Reorder: rapid.SampledFrom([]float64{0, 0, 0.1}).Draw(t, "reorder"),
			Delay:   rapid.SampledFrom([]time.Duration{0, 2 * time.Microsecond}).Draw(t, "delay"),
		}
		deeds := rapid.SliceOfN(rapid.Custom(drawDeed), 1, 40).Draw(t, "deeds")
		one, other := play(t, deeds, o, l, true), play(t, deeds, o, l, false)
		if one != other {
			t.Fatalf("the quick way\n%s\nthe general way\n%s", one, other)
		}
	})
}

// Rule: the fast path is only for packets up to the MTU and queue pairs of RC.
func TestQuickWayIsForOnePacketOfRC(t *testing.T) {
	for _, c := range []struct {
		name string
		o    options
		n    uint32
	}{
		{"longer than the MTU", options{mtu: verbs.MTU256}, 257},
		{"on UC", options{kind: verbs.QPTUC}, 8},
		{"of nothing on UC", options{kind: verbs.QPTUC}, 0},
	} {
		w := newWorld(t, c.o)
		w.b.qp.resp.established = true
		p := plain{payload: make([]byte, c.n), from: w.a.qp}
		before := w.next()
		p.h = wire.Header{Opcode: wire.RCWriteOnly, VA: w.b.at(0), RKey: w.b.mr.RKey(), Length: c.n, PSN: narrow(before)}
		w.a.qp.dev.exclusive(func() { w.raw(&p, nil) })
		w.settle()
		if w.next() != before {
			t.Errorf("a packet %s was executed", c.name)
		}
	}
	for _, kind := range types {
		for _, state := range states {
			for _, route := range []*fabric.Route{nil, {}} {
				q := queuePair{kind: kind, mtu: 1024, route: route, dev: &device{cfg: DeviceConfig{Limits: Limits{MaxMsgSize: 512}}}}
				q.setState(state)
				want := uint32(0)
				if kind == verbs.QPTRC && state == verbs.QPSRTS && route != nil {
					want = 512
				}
				if q.fastMax != want {
					t.Errorf("messages of %d bytes are quick on %v in %v, with a route: %v; want %d", q.fastMax, kind, state, route != nil, want)
				}
			}
		}
	}
}

// Rule: the fast path reads no buffer that its owner has back (see guard).
func TestQuickWayReadsNothingTakenBack(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRSend} {
		w := newWorld(t, options{jumbo: true})
		write := func(id uint64, n int) request {
			wr := w.b.send(id, op, 0, w.b.sge(0, n))
			if w.a.recv(id, w.a.sge(0, n)); op == verbs.WRRDMAWrite {
				wr.SetRDMA(w.a.at(0), w.a.mr.RKey())
			}
			return wr
		}
		w.b.mustPost(write(1, 8)) // from now on the fast path is open
		w.settle()
		mem.Poison(w.a.data())
		fill(w.b.data(), 3)
		w.b.mustPost(write(2, 5000))
		inFlight(w)
		must.Do(t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
		fill(w.b.data(), 99) // its owner has it back
		w.settle()
		if at := mem.Poisoned(w.a.data()); at >= 0 {
			t.Errorf("%v: the buffer was read after its completion: byte %d came over", op, at)
		}
	}
}

// Rule: a fenced request leaves after the READ before it is answered, on either path.
func TestQuickWayHonoursAFence(t *testing.T) {
	for _, flags := range []verbs.SendFlags{verbs.SendFence, verbs.SendFence | verbs.SendInline} {
		w := newWorld(t, options{})
		var order []wire.Opcode
		w.fab.SetTrace(func(ev fabric.Event) {
			if o := wire.Opcode(ev.Hdr[0]); o == wire.RCReadRespLast || o == wire.RCWriteOnly {
				order = append(order, o)
			}
		}, false)
		read := w.a.send(1, verbs.WRRDMARead, 0, w.a.sge(0, 3000))
		read.SetRDMA(w.b.at(0), w.b.mr.RKey())
		write := w.a.send(2, verbs.WRRDMAWrite, verbs.SendSignaled|flags, w.a.sge(0, 8))
		write.SetRDMA(w.b.at(4096), w.b.mr.RKey())
		w.a.mustPost(read, write)
		w.a.ok(w.a.want(w.a.scq, 1), 2)
		if want := []wire.Opcode{wire.RCReadRespLast, wire.RCWriteOnly}; !slices.Equal(order, want) {
			t.Errorf("with %v the packets went %v, want %v", flags, order, want)
		}
		w.fab.SetTrace(nil, false)
	}
}

// Rule: in SQD no request starts, on either path.
func TestQuickWayWaitsInSQD(t *testing.T) {
	w := newWorld(t, options{})
	must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSSQD}, verbs.QPMState))
	wr := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 8))
	wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
	w.a.mustPost(wr)
	w.settle()
	if w.a.qp.req.fresh != 0 {
		t.Error("a request was begun in SQD")
	}
	must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState))
	w.a.ok(w.a.want(w.a.scq, 1), 1)
}

// Rule: a requester never has more packets outstanding than the window, on either path.
func TestQuickWayKeepsTheWindow(t *testing.T) {
	w := newWorld(t, options{cap: verbs.QPCap{MaxSendWR: 1024, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	w.fab.SetAll(fabric.Link{Delay: time.Millisecond})
	for i := range 2 * windowPSNs {
		wr := w.a.send(uint64(i), verbs.WRRDMAWrite, 0, w.a.sge(0, 8))
		wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		w.a.mustPost(wr)
	}
	w.step()
	if r := &w.a.qp.req; r.next-r.acked != windowPSNs {
		t.Fatalf("%d packets are outstanding, want %d", r.next-r.acked, windowPSNs)
	}
	w.settle()
}

// farAway matches an address outside b's memory as the recorder prints it: relative to the start
// of b's memory, which differs in each world.
var farAway = regexp.MustCompile(`at \+\d{12,}`)

// plain is a packet that the fast path accepts, until a case below changes it.
type plain struct {
	h       wire.Header
	payload []byte
	from    *queuePair // its port sends it
}

// other registers all of b's memory in another domain; the world closes the region.
func (e *peer) other(access verbs.AccessFlags) verbs.MR {
	pd := must.Get(e.ctx.AllocPD())(e.w.t)
	m := must.Get(pd.RegMR(e.arena.Addr(), uint64(e.arena.Len()), e.arena.Addr(), access))(e.w.t)
	e.w.before = append(e.w.before, m, pd)
	return m
}

// region registers all of b's memory again in its own domain; the world closes the region.
func (e *peer) region(access verbs.AccessFlags) verbs.MR {
	m := e.register(access)
	e.w.before = append(e.w.before, m)
	return m
}

// established sends b a message from a, so that later packets may take the fast path.
func (w *world) established() {
	w.inject(wire.Header{Opcode: wire.RCWriteOnly, PSN: narrow(w.next()), AckReq: true}, nil)
}

// Rule: a valid packet with any one property changed has the same result as on the general path.
func TestQuickWayIsGuarded(t *testing.T) {
	write := func(w *world) plain {
		h := wire.Header{Opcode: wire.RCWriteOnly, VA: w.b.at(4096), RKey: w.b.mr.RKey(), Length: 8, AckReq: true, PSN: narrow(w.next())}
		return plain{h, []byte("12345678"), w.a.qp}
	}
	send := func(w *world) plain {
		return plain{wire.Header{Opcode: wire.RCSendOnly, AckReq: true, PSN: narrow(w.next())}, []byte("12345678"), w.a.qp}
	}
	// before sends a preceding packet, in sequence.
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
			w.a.qp.dev.exclusive(func() { // both in one Progress call of b
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
			must.Do(w.t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
		}},
		{"write to a queue pair in SQD", write, func(w *world, _ *plain) {
			must.Do(w.t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSSQD}, verbs.QPMState))
		}},
		{"write behind a FLUSH", write, func(w *world, _ *plain) {
			w.b.qp.resp.disk = &diskJob{q: w.b.qp, spans: []span{{mr: w.b.mr.(*memoryRegion)}}}
		}},
		{"first write of all", write, func(w *world, _ *plain) { w.b.qp.resp.established = false }},
		{"send", send, func(w *world, _ *plain) { w.b.recv(1, w.b.sge(4096, 8)) }},
		{"send, solicited", send, func(w *world, p *plain) { w.b.recv(1, w.b.sge(4096, 8)); p.h.Solicited = true }},
		{"send without a receive", send, func(*world, *plain) {}},
		{"send without elements", send, func(w *world, _ *plain) { w.b.recv(1) }},
		{"send without elements where there were some", send, func(w *world, _ *plain) {
			w.b.recv(1)
			rq := w.b.qp.rq.Load()
			if s, ok := w.b.srq.(*sharedQueue); ok {
				rq = s.rq.Load()
			}
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
		{"send into the queue pair's domain, which is not that of shared receives", send, func(w *world, _ *plain) {
			s := w.b.sge(4096, 8)
			s.LKey = w.b.region(allAccess).LKey()
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
			run := func(quick, shared bool) string {
				w := newWorld(t, options{seed: 1, shared: shared})
				mem.Poison(w.b.data())
				w.established()
				if !quick {
					w.b.qp.fastMax = 0
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
				w.b.qp.forget(&w.b.qp.resp.disk)
				fmt.Fprintf(r, "%v, expects %x, msn %d, established %v, events %v, memory %x\n", w.b.state(), w.next(), w.b.qp.resp.msn,
					w.b.qp.resp.established, w.b.events(), xxhash.Sum64(w.b.data()))
				w.fab.SetTrace(nil, false)
				return farAway.ReplaceAllString(r.String(), "far away")
			}
			for _, shared := range []bool{false, true} {
				if quick, general := run(true, shared), run(false, shared); quick != general {
					t.Errorf("shared receives %v: the quick way\n%s\nthe general way\n%s", shared, quick, general)
				}
			}
		})
	}
}

// raw sends p unchanged except for change. The caller holds the token of p.from's device.
func (w *world) raw(p *plain, change func(h *wire.Header)) {
	h := p.h
	h.PKey, h.DestQP, h.MigReq = wire.DefaultPKey, w.b.qp.number, true
	if change != nil {
		change(&h)
	}
	k := p.from.dev.p.Get()
	k.AddCopy(p.payload)
	k.SetHeader(&h)
	p.from.dev.p.Send(wire.To(w.b.gid), k)
}
