package soft

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// The fabric's limits for one link: a share, and half of it for senders that can wait (fabric,
// room.go).
const (
	linkShare = 2048
	linkRoom  = linkShare / 2
	// mostHeap is much more than a share takes, and much less than these tests request.
	mostHeap = 4 << 20
)

// plugRogue attaches a rogue endpoint with an address of its own that sends to device to.
func plugRogue(t *testing.T, f *fabric.Fabric, node int, to verbs.GID) *rogue {
	t.Helper()
	r := &rogue{to: to}
	port := must.Get(f.Attach(verbs.GIDFromAddr(netip.AddrFrom4([4]byte{10, 0, byte(1 + node>>8), byte(node)})), "rogue", r))(t)
	t.Cleanup(port.Detach)
	r.port = port
	return r
}

// as returns the rogue as a peer to connect to.
func (r *rogue) as(number uint32) *peer {
	return &peer{gid: r.port.GID(), qp: &queuePair{number: number}}
}

// say makes the rogue send packets with these headers.
func (r *rogue) say(hs ...wire.Header) {
	for i := range hs {
		r.send = append(r.send, func(k *fabric.Packet) { k.SetHeader(&hs[i]) })
	}
	r.port.Kick()
}

func slowAttr(mtu verbs.MTU) verbs.QPAttr {
	return verbs.QPAttr{
		PathMTU: mtu, RQPSN: 100, SQPSN: 100, AccessFlags: allAccess, Port: 1,
		MaxRdAtomic: 16, MaxDestRdAtomic: 16, MinRNRTimer: 1, Timeout: 8, RetryCnt: 2, RNRRetry: 1,
	}
}

// Rule: requests of a peer that takes no packets occupy no memory for it: READ responses are made
// as the link takes them, and all arrive once it takes packets.
func TestReadsOfADeafPeer(t *testing.T) {
	const size, reads, mtu = 4 << 20, 4, 256
	w := newWorld(t, options{memory: size, apart: true})
	r := plugRogue(t, w.fab, 0, w.a.gid)
	w.a.toRTS(slowAttr(verbs.MTU256), r.as(7))
	fill(w.a.data(), 3)
	psn := uint32(100)
	var ask []wire.Header
	for range reads {
		ask = append(ask, wire.Header{Opcode: wire.RCReadRequest, PKey: wire.DefaultPKey, DestQP: w.a.qp.Num(), AckReq: true,
			PSN: wire.NewPSN(psn), VA: w.a.at(0), RKey: w.a.mr.RKey(), Length: size})
		psn += size / mtu
	}
	before := liveHeap()
	r.deaf = true
	r.say(ask...)
	r.say(ask...) // and again
	w.settle()
	if grown := liveHeap() - before; grown > mostHeap {
		t.Errorf("%d READs of %d MiB by a peer that takes nothing hold %d KiB", reads, size>>20, grown>>10)
	}
	s := w.a.ctx.dev.p.Stats()
	const most = linkRoom + emitPerProgress // the first Progress call finds the inbox empty
	if s.TxPackets != most || s.Overflow != 0 {
		t.Errorf("%d packets were sent to it, %d of them dropped; want %d", s.TxPackets, s.Overflow, most)
	}
	n := 0
	r.got = func(k *fabric.Packet) {
		var h wire.Header
		if _, err := wire.Parse(k.Header(), &h); err != nil {
			t.Fatal(err)
		}
		if want := uint32(100 + n%(reads*size/mtu)); uint32(h.PSN) != want || k.PayloadLen != mtu || k.Payload[0][0] != w.a.data()[int(want-100)*mtu%size] {
			t.Fatalf("response %d has PSN %d and %d bytes, want PSN %d", n, h.PSN, k.PayloadLen, want)
		}
		n++
	}
	r.deaf = false
	r.port.Kick()
	w.settle()
	// The repetition meets answers that are still unsent: it adds none.
	if n != reads*size/mtu {
		t.Errorf("%d responses in the end, want %d", n, reads*size/mtu)
	}
	if s := w.a.state(); s != verbs.QPSRTS {
		t.Errorf("the queue pair is in %v", s)
	}
}

// Rule: the same holds for other packets that a peer can cause: acknowledgements, NAKs, answers
// to duplicates.
func TestAnswersToADeafPeer(t *testing.T) {
	const rounds, each = 1000, 40
	w := newWorld(t, options{apart: true})
	r := plugRogue(t, w.fab, 0, w.a.gid)
	w.a.toRTS(slowAttr(verbs.MTU256), r.as(7))
	base := wire.Header{PKey: wire.DefaultPKey, DestQP: w.a.qp.Num(), AckReq: true, VA: w.a.at(0), RKey: w.a.mr.RKey()}
	say := func(op wire.Opcode, psn uint32, length uint32) {
		var hs []wire.Header
		for range each {
			h := base
			h.Opcode, h.PSN, h.Length = op, wire.NewPSN(psn), length
			hs = append(hs, h)
		}
		r.say(hs...)
		w.step()
	}
	r.deaf = true
	before := liveHeap()
	for range rounds {
		say(wire.RCFetchAdd, 100, 0)    // executed once, then repeated
		say(wire.RCWriteOnly, 100, 0)   // old
		say(wire.RCReadRequest, 99, 99) // old, and not answered before
		say(wire.RCWriteOnly, 300, 0)   // too new: a NAK
	}
	if grown := liveHeap() - before; grown > mostHeap {
		t.Errorf("%d packets of a peer that takes nothing hold %d KiB", 4*rounds*each, grown>>10)
	}
	if s := w.a.ctx.dev.p.Stats(); s.TxPackets > linkShare || s.Overflow != 0 {
		t.Errorf("%d packets were sent to it, %d of them dropped; want at most %d", s.TxPackets, s.Overflow, linkShare)
	}
	if n := w.a.qp.resp.pending(); n > 3*16 {
		t.Errorf("%d answers wait for the peer, which may have 16 outstanding", n)
	}
	answers := 0
	r.got = func(*fabric.Packet) { answers++ }
	r.deaf = false
	r.port.Kick()
	w.settle()
	if answers == 0 || w.a.state() != verbs.QPSRTS || w.a.qp.resp.pending() != 0 || w.a.qp.stalled != nil {
		t.Errorf("when the peer takes again it gets %d answers, %d are left; the queue pair is in %v", answers, w.a.qp.resp.pending(), w.a.state())
	}
}

// Rule: a request that finds no room on a link that others have filled ends when its retries are
// used up, like one whose packets are lost.
func TestRetriesEndWithoutRoom(t *testing.T) {
	const writers = 4 // the last finds no room at all
	w := newWorld(t, options{memory: 4 << 20, apart: true})
	r := plugRogue(t, w.fab, 0, w.a.gid)
	r.deaf = true
	first := w.a.qp
	var qps []*queuePair
	for i := range writers {
		if i > 0 {
			w.a.qp = w.a.newQP(first.granted)
			w.before = append(w.before, w.a.qp)
		}
		if i == writers-1 {
			w.step()
		}
		qps = append(qps, w.a.qp)
		w.a.toRTS(slowAttr(verbs.MTU256), r.as(uint32(7+i)))
		wr := w.a.send(uint64(i), verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 1<<20))
		wr.SetRDMA(0x1000, 1)
		w.a.mustPost(wr)
	}
	w.a.qp = first
	w.step()
	const most = linkRoom + (writers-1)*emitPerProgress // the first Progress call finds the inbox empty
	if s := w.a.ctx.dev.p.Stats(); s.TxPackets != most || s.Overflow != 0 {
		t.Errorf("%d packets were sent, %d of them dropped; want %d", s.TxPackets, s.Overflow, most)
	}
	if q := qps[writers-1]; q.req.sent != q.req.acked || q.stalled == nil {
		t.Fatalf("the last queue pair has sent %d packets: this tests nothing", q.req.sent-q.req.acked)
	}
	began := w.fab.Now()
	wcs := w.a.want(w.a.scq, writers)
	for _, c := range wcs {
		if c.Status != verbs.WCRetryExcErr {
			t.Errorf("request %d ended with %v, want RETRY_EXC_ERR", c.WRID, c.Status)
		}
	}
	if took, want := w.fab.Now()-began, 3*verbs.AckTimeout(8); took < want || took > want+want/5 {
		t.Errorf("it took %v, 3 timeouts are %v", took, want)
	}
	if n := len(w.a.ctx.dev.stalls); n != 0 {
		t.Errorf("somebody waits for %d links", n)
	}
}

// Rule: a queue pair that waits for room leaves the line when it is reset or destroyed, and
// nothing keeps it alive.
func TestStalledQueuePairGoes(t *testing.T) {
	for _, destroy := range []bool{false, true} {
		t.Run(fmt.Sprintf("destroy=%v", destroy), func(t *testing.T) {
			w := newWorld(t, options{memory: 4 << 20, apart: true})
			r := plugRogue(t, w.fab, 0, w.a.gid)
			r.deaf = true
			first := w.a.qp
			for i := range 4 {
				if i > 0 {
					w.a.qp = w.a.newQP(first.granted)
				}
				q := w.a.qp
				w.a.toRTS(slowAttr(verbs.MTU256), r.as(uint32(7+i)))
				wr := w.a.send(uint64(i), verbs.WRRDMAWrite, 0, w.a.sge(0, 1<<20))
				wr.SetRDMA(0x1000, 1)
				w.a.mustPost(wr)
				if i == 0 {
					continue
				}
				defer func() {
					if !destroy {
						must.Do(t, q.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
						if q.stalled != nil {
							t.Errorf("%v stands in line after a reset", q)
						}
					}
					must.Do(t, q.Close())
					if q.stalled != nil {
						t.Errorf("%v stands in line after Close", q)
					}
				}()
			}
			w.a.qp = first
			w.step()
			if n := len(w.a.ctx.dev.stalls); n != 1 {
				t.Fatalf("somebody waits for %d links, want 1", n)
			}
			if s := w.a.ctx.dev.stalls[0]; len(s.qps)-s.head < 2 {
				t.Fatalf("%d queue pairs stand in line: this tests nothing", len(s.qps)-s.head)
			}
		})
	}
}

// floodREQ makes a rogue send n connection requests, each of another connection.
func (r *rogue) floodREQ(t *testing.T, n int, service uint64) {
	for i := range uint32(n) {
		r.send = append(r.send, func(k *fabric.Packet) {
			var m cm.MAD
			q := &cm.REQ{TID: uint64(i), LocalID: i + 1, ServiceID: service, QPN: 2 + i, RemoteTimeout: 15, LocalTimeout: 15, PathMTU: 3, MaxCMRetries: 15, PKey: wire.DefaultPKey}
			cm.ConnHeader{SrcPort: 9, Src: r.port.GID().Addr(), Dst: r.to.Addr()}.Put(&q.Private)
			must.Do(t, q.Put(&m))
			k.SetHeader(&wire.Header{Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQP: gsiQP, MigReq: true, QKey: wire.GSIQKey, SrcQP: gsiQP})
			k.AddCopy(m[:])
		})
	}
	r.port.Kick()
}

// Rule: management datagrams have a budget for each source. A flood of them, from one source or
// many, occupies bounded memory, is dropped and counted beyond that, and does not delay other
// connections. The same holds for the answers when the flooders take none.
func TestFloodOfManagementDatagrams(t *testing.T) {
	const flood = 100_000
	const mostFlood = 96 << 20 // an inbox, and as much taken out at once
	for _, c := range []struct {
		sources int
		deaf    bool
		served  bool
	}{{1, false, true}, {1, true, true}, {1, true, false}, {100, false, false}, {100, true, true}} {
		t.Run(fmt.Sprintf("sources=%d,deaf=%v,served=%v", c.sources, c.deaf, c.served), func(t *testing.T) {
			r := newRig(t, false)
			l := r.b.listen(8)
			service := cm.ServiceID(verbs.PSTCP, 9)
			if c.served {
				service = cm.ServiceID(verbs.PSTCP, l.LocalAddr().Port())
			}
			var rogues []*rogue
			for i := range c.sources {
				f := plugRogue(t, r.fab, i, verbs.GIDFromAddr(r.b.addr))
				f.deaf = c.deaf
				rogues = append(rogues, f)
			}
			before := liveHeap()
			for range 3 { // answers accumulate, too
				for _, f := range rogues {
					f.floodREQ(t, flood/c.sources, service)
				}
				for range 10 {
					r.fab.Step()
				}
			}
			if grown := liveHeap() - before; grown > mostFlood {
				t.Errorf("the flood holds %d KiB", grown>>10)
			}
			var dropped uint64
			for _, f := range rogues {
				dropped += f.port.Stats().Overflow
			}
			if dropped < flood {
				t.Errorf("%d of %d datagrams were counted as dropped", dropped, 3*flood)
			}
			for _, f := range rogues {
				f.floodREQ(t, flood/c.sources, service)
			}
			r.fab.Step()
			at := r.fab.Now()
			// The flood fills its listener's backlog, not that of another listener.
			l2, ida, idb := r.pairPast(l)
			if took := r.fab.Now() - at; took != 0 {
				t.Errorf("beside the flood connecting takes %v: something was lost", took)
			}
			counted := must.Get(r.p.Counters(r.b.name))(t)
			if c.deaf != (counted.Overflow > 0) {
				t.Errorf("%d of our answers were counted as dropped", counted.Overflow)
			}
			r.closeAll(ida, idb, l, l2)
		})
	}
}

// pairPast is pair with a listener of its own, beside CONNECT_REQUESTs to another listener.
func (r *cmRig) pairPast(other verbs.CMID) (listener, ida, idb verbs.CMID) {
	r.t.Helper()
	listener = r.b.listen(0)
	ida = r.a.resolve(listener.LocalAddr())
	must.Do(r.t, ida.Connect(nil))
	for idb == nil {
		ev := r.b.event(verbs.CMConnectRequest)
		if ev.ListenID == other {
			must.Do(r.t, ev.ID.Close())
			continue
		}
		idb = ev.ID
	}
	r.b.qp(idb)
	must.Do(r.t, idb.Accept(nil))
	r.a.event(verbs.CMEstablished)
	for ev := r.b.any(); ev.Type != verbs.CMEstablished; ev = r.b.any() {
		must.Do(r.t, ev.ID.Close())
	}
	return listener, ida, idb
}

// readWR reads n bytes of b's memory with a key.
func (e *peer) readWR(id uint64, n int, from uint64, key uint32) request {
	wr := e.send(id, verbs.WRRDMARead, verbs.SendSignaled, e.sge(0, n))
	wr.SetRDMA(from, key)
	return wr
}

// TestRefusedReadLeavesTheReceiveOfASend: a READ whose region is closed while it is answered is
// refused with an event. The receive that a later SEND has begun to fill is not at fault: it is
// flushed.
func TestRefusedReadLeavesTheReceiveOfASend(t *testing.T) {
	w := newWorld(t, options{})
	mr := w.b.register(allAccess)
	w.fab.SetLink(w.a.gid, w.b.gid, lose(1, wire.RCSendLast))
	w.b.recv(9, w.b.sge(0, 4096))
	const n = readChunk << 10 // answered in more than one Progress call
	w.a.mustPost(w.a.readWR(1, n, w.b.at(0), w.b.mr.RKey()), w.a.readWR(2, n, w.b.at(0), mr.RKey()),
		w.a.send(3, verbs.WRSend, 0, w.a.sge(0, 3000)))
	for w.b.qp.resp.kind != sendMessage {
		if !w.fab.Step() {
			t.Fatalf("the SEND did not begin while the READs were being answered: %+v %v", w.b.qp.resp, statuses(w.a.poll(w.a.scq)))
		}
	}
	if w.b.qp.resp.pending() == 0 {
		t.Fatal("both READs were answered in one turn")
	}
	must.Do(t, mr.Close())
	w.settle()
	if got := statuses(w.b.poll(w.b.rcq)); got != "9:WR_FLUSH_ERR " {
		t.Fatalf("the receive of the SEND completes %q, want it flushed", got)
	}
	if ev := w.b.events(); !slices.Contains(ev, verbs.EventQPAccessErr) {
		t.Fatalf("events %v, want QP_ACCESS_ERR for the READ", ev)
	}
	w.a.poll(w.a.scq)
}

// TestAnswersOfABusyReaderAreBounded: with a peer that always has a READ outstanding the list of
// answers never becomes empty; it must not grow with the answers already sent.
func TestAnswersOfABusyReaderAreBounded(t *testing.T) {
	w := newWorld(t, options{})
	const n = readChunk << 10
	var done uint64
	post := func() {
		w.a.mustPost(w.a.readWR(done, n, w.b.at(0), w.b.mr.RKey()))
		done++
	}
	for range 8 {
		post()
	}
	for done < 1000 {
		if !w.fab.Step() {
			at, ok := w.fab.NextEvent()
			if !ok {
				t.Fatal("the READs stopped")
			}
			w.fab.AdvanceTo(at)
		}
		for range w.a.poll(w.a.scq) {
			post()
		}
	}
	if got := cap(w.b.qp.resp.out); got > 64 {
		t.Fatalf("the list of answers has grown to %d places for 8 READs at a time", got)
	}
	w.settle()
	w.a.poll(w.a.scq)
}

// TestFloodOfFlushesIsBounded: FLUSH takes none of the resources that bound READs and atomics, so
// its answers have a bound of their own.
func TestFloodOfFlushesIsBounded(t *testing.T) {
	w := newWorld(t, options{access: flushGlobal})
	f := wire.Header{Opcode: wire.RCFlush, VA: w.b.at(0), RKey: w.b.mr.RKey(), Length: 8, FlushPlacement: 1}
	first := w.next()
	q := w.a.qp
	q.dev.exclusive(func() {
		for i := range uint64(20000) {
			f.PSN = narrow(first + i)
			q.transmit(q.dev.p.Get(), &f)
		}
	})
	most := 0
	for w.fab.Step() {
		most = max(most, w.b.qp.resp.pending()) // virtual time: one goroutine
	}
	if most > windowPSNs || most == 0 {
		t.Fatalf("%d answers to FLUSHes wait, the bound is %d", most, windowPSNs)
	}
	if w.b.state() != verbs.QPSRTS {
		t.Fatalf("the queue pair is in %v", w.b.state())
	}
}
