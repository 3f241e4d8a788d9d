package soft

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// readTo reads n bytes at off of b, through shared queue i and with the key of its domain.
func (x *xrcWorld) readTo(i int, id uint64, off, n int) request {
	wr := x.to(x.srqs[i].Num(), id, verbs.WRRDMARead, n)
	wr.SetRDMA(x.b.at(off), x.mrs[i].RKey())
	return wr
}

// TestXRCReadKeepsItsDomain: a READ is answered with the keys of the queue that it named,
// whatever queues later requests name: while it is being answered, when an answer is requested
// again, and in the middle of a message to the other queue, which continues in its own domain.
func TestXRCReadKeepsItsDomain(t *testing.T) {
	const n = readChunk << 10 // the full budget of one Progress call
	for _, c := range []struct {
		name  string
		rules []fabric.Rule // of packets to b
		back  []fabric.Rule // of packets to a
		apart bool          // the READs are answered before the other requests are posted
	}{
		{"answered over several turns", nil, nil, false},
		{"the last answer lost", nil, []fabric.Rule{{Opcodes: []wire.Opcode{wire.XRCReadRespLast}, From: 2, To: 2, Drop: true}}, true},
		{"an answer lost", nil, []fabric.Rule{{Opcodes: []wire.Opcode{wire.XRCReadRespMiddle}, From: 100, To: 100, Drop: true}}, false},
		{"an answer and the end of a WRITE lost", []fabric.Rule{{Opcodes: []wire.Opcode{wire.XRCWriteLast}, To: 1, Drop: true}},
			[]fabric.Rule{{Opcodes: []wire.Opcode{wire.XRCReadRespMiddle}, From: 100, To: 100, Drop: true}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newXRC(t)
			x.fab.SetLink(x.a.gid, x.b.gid, fabric.Link{Rules: c.rules})
			x.fab.SetLink(x.b.gid, x.a.gid, fabric.Link{Rules: c.back})
			fill(x.b.data()[:2*n], 3)
			x.post(1, 20, 1<<19, 8)
			write := x.to(x.srqs[1].Num(), 3, verbs.WRRDMAWrite, 3000)
			write.SetRDMA(x.b.at(1<<18+8192), x.mrs[1].RKey())
			x.a.mustPost(x.readTo(0, 1, 0, n), x.readTo(0, 2, n, n))
			if c.apart {
				x.step()
			}
			x.a.mustPost(write, x.to(x.srqs[1].Num(), 4, verbs.WRSend, 8))
			x.settle()
			x.a.ok(x.a.poll(x.a.scq), 1)
			if got := x.got(1); got != "20:SUCCESS " {
				t.Fatalf("received %q", got)
			}
			if !slices.Equal(x.a.data()[:n], x.b.data()[n:2*n]) {
				t.Fatal("the second READ brought other bytes")
			}
		})
	}
}

// TestXRCReadNeverCrossesDomains: a READ that names one queue with the key of the other queue's
// region is refused; one that repeats an executed READ in this way gets no data and changes nothing.
func TestXRCReadNeverCrossesDomains(t *testing.T) {
	x, r := besieged(t)
	mem.Poison(x.b.data())
	read := func(psn uint32, srq, key int) wire.Header {
		return wire.Header{Opcode: wire.XRCReadRequest, DestQP: x.recv.Num(), PSN: wire.NewPSN(psn),
			XRCSRQ: x.srqs[srq].Num(), VA: x.b.at(0), RKey: x.mrs[key].RKey(), Length: 100}
	}
	q := x.recv.q
	for _, c := range []struct {
		what    string
		h       wire.Header
		answers []wire.Opcode
		state   verbs.QPState
	}{
		{"one by each queue", read(0x10, 0, 0), []wire.Opcode{wire.RCReadRespOnly}, verbs.QPSRTR},
		{"one by each queue", read(0x11, 1, 1), []wire.Opcode{wire.RCReadRespOnly}, verbs.QPSRTR},
		{"the first again", read(0x10, 0, 0), []wire.Opcode{wire.RCReadRespOnly}, verbs.QPSRTR},
		{"the first again by the other queue", read(0x10, 1, 0), []wire.Opcode{wire.RCAcknowledge}, verbs.QPSRTR},
		{"the first again with the other key", read(0x10, 0, 1), nil, verbs.QPSRTR},
		{"one by a queue with the other's key", read(0x12, 0, 1), []wire.Opcode{wire.RCAcknowledge}, verbs.QPSErr},
	} {
		var got []wire.Opcode
		r.got = func(k *fabric.Packet) { got = append(got, wire.TransportRC.With(wire.Opcode(k.Hdr[0]).Op())) }
		x.shoot(r, c.h)
		if !slices.Equal(got, c.answers) || q.current() != c.state {
			t.Errorf("%s: answered by %v, the queue pair in %v; want %v, %v", c.what, got, q.current(), c.answers, c.state)
		}
	}
	if ev := x.b.events(); !slices.Contains(ev, verbs.EventQPAccessErr) {
		t.Fatalf("events %v, want QP_ACCESS_ERR", ev)
	}
}

// flushable permits FLUSH on the connection and makes regions of 4096 bytes, one in each queue's
// domain.
func (x *xrcWorld) flushable() (mrs [2]verbs.MR) {
	x.t.Helper()
	x.recv.q.attr.AccessFlags |= verbs.AccessFlushGlobal // the engine is idle
	for i := range mrs {
		var err error
		mrs[i], err = x.pds[i].RegMR(x.b.at(0), 4096, x.b.at(0), flushGlobal|verbs.AccessMWBind)
		must.Do(x.t, err)
		x.ends = append(x.ends, mrs[i])
	}
	return mrs
}

// TestXRCFlushAndAtomicWrite: both are checked in the domain of the queue that they name.
func TestXRCFlushAndAtomicWrite(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRFlush, verbs.WRAtomicWrite} {
		for key, want := range []string{"1:REM_ACCESS_ERR ", "1:SUCCESS "} {
			x := newXRC(t)
			mrs := x.flushable()
			wr := x.a.atomicWR(1, x.b.at(64), mrs[key].RKey(), 42)
			if op == verbs.WRFlush {
				wr = x.a.flushWR(1, x.b.at(64), mrs[key].RKey(), 8, verbs.FlushGlobal, verbs.FlushRange)
			}
			wr.RemoteSRQN = x.srqs[1].Num()
			x.a.mustPostExtended(wr)
			x.settle()
			if got := statuses(x.a.poll(x.a.scq)); got != want {
				t.Fatalf("%v with the key of queue %d's domain, to queue 1: %q, want %q", op, key, got, want)
			}
			if wrote := x.b.word(64) == 42; wrote != (op == verbs.WRAtomicWrite && key == 1) {
				t.Fatalf("%v with the key of queue %d's domain wrote: %v", op, key, wrote)
			}
		}
	}
}

// binder returns a queue pair in the domain of queue i, only usable for BIND_MW.
func (x *xrcWorld) binder(i int) *peer {
	x.t.Helper()
	e := *x.b
	e.pd, e.kind, e.mr = x.pds[i], verbs.QPTUC, x.mrs[i]
	e.qp = e.newQP(verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1})
	e.toRTS(verbs.QPAttr{Port: 1, PathMTU: verbs.MTU1024}, x.a)
	x.ends = append(x.ends, e.qp)
	return &e
}

// TestXRCWindows: a window of type 1 opens memory to requests that name a queue of its domain.
// One of type 2 belongs to the queue pair that bound it, which is never the XRC_RECV one: no
// request gets access through it, and a SEND_WITH_INV cannot invalidate it (class J: delivered,
// acknowledged, the receive fails).
func TestXRCWindows(t *testing.T) {
	for _, c := range []struct {
		kind verbs.MWType
		to   int
		inv  bool
		want string
	}{
		{verbs.MWType1, 1, false, "1:SUCCESS "},
		{verbs.MWType1, 0, false, "1:REM_ACCESS_ERR "},
		{verbs.MWType2, 1, false, "1:REM_ACCESS_ERR "},
		{verbs.MWType2, 1, true, "1:SUCCESS "},
		{verbs.MWType1, 1, true, "1:SUCCESS "},
	} {
		x := newXRC(t)
		mrs := x.flushable()
		e := x.binder(1)
		w := must.Get(e.pd.AllocMW(c.kind))(t)
		mw := w.(*memoryWindow)
		x.ends = append([]verbs.Object{mw}, x.ends...)
		bind := e.send(9, verbs.WRBindMW, verbs.SendSignaled)
		bind.SetBind(mw.Handle(), verbs.IncRKey(mw.RKey()), mrs[1].Handle(), x.b.at(1024), 64, verbs.AccessRemoteWrite)
		e.mustPost(bind)
		x.settle()
		e.ok(e.poll(e.scq), 9)
		mem.Poison(x.b.data())
		x.post(1, 5, 8192, 64)
		wr := x.to(x.srqs[c.to].Num(), 1, verbs.WRRDMAWrite, 64)
		wr.SetRDMA(x.b.at(1024), mw.RKey())
		if c.inv {
			wr = x.to(x.srqs[c.to].Num(), 1, verbs.WRSendWithInv, 8)
			wr.SetInvalidate(mw.RKey())
		}
		x.a.mustPost(wr)
		x.settle()
		if got := statuses(x.a.poll(x.a.scq)); got != c.want {
			t.Fatalf("%+v: the request completes %q", c, got)
		}
		wrote := mem.Poisoned(x.b.data()[:8192]) >= 0
		if want := !c.inv && c.want == "1:SUCCESS "; wrote != want {
			t.Fatalf("%+v: written through the window: %v", c, wrote)
		}
		if mw.mr == nil {
			t.Fatalf("%+v: the window was taken away", c)
		}
		if got := x.got(1); c.inv && got != "5:REM_INV_REQ_ERR " {
			t.Fatalf("%+v: the receive of the SEND_WITH_INV completes %q", c, got)
		}
	}
}

// besieged returns an xrcWorld whose XRC_RECV queue pair is connected to a rogue in place of a.
func besieged(t tb) (*xrcWorld, *rogue) {
	t.Helper()
	x := newXRC(t)
	r := &rogue{to: x.b.gid}
	gid := verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.9"))
	port := must.Get(x.fab.Attach(gid, "rogue", r))(t)
	r.port = port
	t.Cleanup(port.Detach)
	for _, q := range []*queuePair{x.recv.q, x.send} { // the engine is idle
		q.attr.AH.DGID = gid
		q.takeRoute()
	}
	return x, r
}

// shoot sends packets, after filling in their common fields.
func (x *xrcWorld) shoot(r *rogue, hs ...wire.Header) {
	for _, h := range hs {
		h.PKey = wire.DefaultPKey
		n := 8
		if !h.Opcode.Ends() {
			n = 1024
		}
		if !h.Opcode.HasPayload() {
			n = 0
		}
		r.send = append(r.send, func(k *fabric.Packet) {
			k.SetHeader(&h)
			k.AddCopy(make([]byte, n))
		})
	}
	r.port.Kick()
	x.settle()
}

// TestXRCMessageStaysWithItsQueue: a message whose packets name different queues is refused: the
// receive that it took completes with the reason, the other queue keeps its receive.
func TestXRCMessageStaysWithItsQueue(t *testing.T) {
	x, r := besieged(t)
	x.post(0, 1, 0, 4096)
	x.post(1, 2, 0, 4096)
	x.shoot(r,
		wire.Header{Opcode: wire.XRCSendFirst, DestQP: x.recv.Num(), PSN: wire.NewPSN(0x10), XRCSRQ: x.srqs[0].Num()},
		wire.Header{Opcode: wire.XRCSendLast, DestQP: x.recv.Num(), PSN: wire.NewPSN(0x11), XRCSRQ: x.srqs[1].Num()})
	if a, b := x.got(0), x.got(1); a != "1:REM_INV_REQ_ERR " || b != "" {
		t.Fatalf("completions %q and %q, want the first receive refused and the second untouched", a, b)
	}
}

// TestXRCHalves: an XRC_SEND queue pair accepts no requests, an XRC_RECV one no answers.
func TestXRCHalves(t *testing.T) {
	x, r := besieged(t)
	x.a.poll(x.a.scq)
	before := x.recv.q.req
	r.to = x.b.gid
	x.shoot(r, wire.Header{Opcode: wire.XRCAcknowledge, DestQP: x.recv.Num(), PSN: wire.NewPSN(0x1f), Syndrome: wire.Nak(wire.NakInvalid)})
	if x.recv.q.req != before {
		t.Fatalf("an answer moved an XRC_RECV queue pair: %+v", x.recv.q.req)
	}
	r.to = x.a.gid
	x.shoot(r, wire.Header{Opcode: wire.XRCSendOnly, DestQP: x.send.Num(), PSN: wire.NewPSN(0x20), AckReq: true, XRCSRQ: x.srqs[0].Num()})
	if s := x.a.state(); s != verbs.QPSRTS || x.send.resp.established {
		t.Fatalf("a request reached an XRC_SEND queue pair, now in %v", s)
	}
}

// FuzzHostileXRC: whatever a peer sends in XRC requests, nothing outside the region of the named
// queue is written, and no receive completes twice.
func FuzzHostileXRC(f *testing.F) {
	const record = 8
	for op := range byte(0x1e) {
		f.Add([]byte{op, 0, 0, 0, 8, 0, 0, 0, op, 0, 1, 1, 0, 4, 0, 1})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x, r := besieged(t)
		mem.Poison(x.b.data())
		x.post(0, 1, 8192, 2048)
		x.post(1, 2, 12288, 2048)
		open := must.Get(x.pds[0].RegMR(x.b.at(0), 4096, x.b.at(0), allAccess))(t)
		psn := uint32(0x10)
		for i := 0; len(data) >= record && i < 32; i++ {
			b := data[:record]
			data = data[record:]
			h := wire.Header{
				Opcode: wire.TransportXRC.With(wire.Op(b[0] & 0x1f)), DestQP: x.recv.Num(), PSN: wire.NewPSN(psn + uint32(b[2]&3) - uint32(b[2]>>6)),
				XRCSRQ: x.srqs[b[3]&1].Num() + uint32(b[3]>>5), VA: open.Addr() + uint64(b[1])*32, RKey: open.RKey(),
				Length: uint32(binary.LittleEndian.Uint16(b[4:])), AckReq: b[6]&1 != 0, SwapAdd: uint64(b[7]),
			}
			if !h.Opcode.Valid() {
				continue
			}
			x.shoot(r, h)
			psn++
		}
		_ = x.recv.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)
		x.settle()
		for i, id := range []uint64{1, 2} {
			if wcs := x.b.poll(x.cqs[i]); len(wcs) > 1 || len(wcs) == 1 && wcs[0].WRID != id {
				t.Fatalf("completions %+v at queue %d, want receive %d at most once", wcs, i, id)
			}
		}
		for _, free := range [][2]int{{4096, 8192}, {8192 + 2048, 12288}, {12288 + 2048, len(x.b.data())}} {
			if at := mem.Poisoned(x.b.data()[free[0]:free[1]]); at >= 0 {
				t.Fatalf("a byte outside every buffer was written, at %d", free[0]+at)
			}
		}
		must.Do(t, open.Close())
	})
}
