package soft

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// TestInvalidateRules: the keys that a LOCAL_INV may invalidate.
func TestInvalidateRules(t *testing.T) {
	for _, c := range []struct {
		name string
		kind verbs.MWType
		bind bool
		key  func(w *world, mw *memoryWindow) uint32
		ok   bool
	}{
		{"a bound window", 2, true, func(_ *world, mw *memoryWindow) uint32 { return mw.RKey() }, true},
		{"a window of type 1", 1, true, func(_ *world, mw *memoryWindow) uint32 { return mw.RKey() }, false},
		{"a free window", 2, false, func(_ *world, mw *memoryWindow) uint32 { return mw.RKey() }, true},
		{"another tag of a free window", 2, false, func(_ *world, mw *memoryWindow) uint32 { return verbs.IncRKey(mw.RKey()) }, false},
		{"another tag", 2, true, func(_ *world, mw *memoryWindow) uint32 { return verbs.IncRKey(mw.RKey()) }, false},
		{"no such key", 2, true, func(_ *world, mw *memoryWindow) uint32 { return mw.RKey() ^ 0x100 }, false},
		{"a region's key", 2, true, func(w *world, _ *memoryWindow) uint32 { return w.b.mr.RKey() }, false},
		{"key 0", 2, true, func(*world, *memoryWindow) uint32 { return 0 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := windowWorld(t, options{})
			mw := w.b.newMW(c.kind)
			closing(t, mw)
			if c.bind {
				w.b.bound(mw, 0, 100, remoteAll)
			}
			w.b.mustPost(w.b.invWR(1, c.key(w, mw)))
			wc := w.b.want(w.b.scq, 1)[0]
			if c.ok != (wc.Status == verbs.WCSuccess) || (!c.ok && wc.Status != verbs.WCLocQPOpErr) || (c.ok && wc.Opcode != verbs.WCLocalInv) {
				t.Fatalf("completed %v %v, allowed: %v", wc.Opcode, wc.Status, c.ok)
			}
			if bound := mw.mr != nil; bound != (c.bind && !c.ok) {
				t.Fatalf("window bound: %v", bound)
			}
			w.a.mustPost(w.a.writeWR(2, 100, w.b.at(0), mw.RKey()))
			if got := w.a.want(w.a.scq, 1)[0].Status; c.ok && got != verbs.WCRemAccessErr {
				t.Fatalf("through the key taken away: %v", got)
			}
		})
	}
}

// TestSendWithInvalidate: the message arrives, its window is unbound, and the completion carries
// the key. A key that may not be invalidated is a class J error: acknowledged, and the receiver's
// queue pair fails (rxe_resp.c).
func TestSendWithInvalidate(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		bad  bool
	}{{"one packet", 100, false}, {"three packets", 3000, false}, {"nothing but the key", 0, false}, {"refused", 100, true}, {"refused, three packets", 3000, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := windowWorld(t, options{})
			mw := w.b.newMW(verbs.MWType2)
			closing(t, mw)
			w.b.bound(mw, 8192, 100, remoteAll)
			fill(w.a.data()[:c.n], 5)
			key := mw.RKey()
			if c.bad {
				key = w.b.mr.RKey()
			}
			w.b.recv(9, w.b.sge(0, 4096))
			wr := w.a.send(1, verbs.WRSendWithInv, verbs.SendSignaled, w.a.sge(0, c.n))
			wr.SetInvalidate(key)
			w.a.mustPost(wr)
			w.a.ok(w.a.want(w.a.scq, 1), 1) // refused or not: the message has arrived
			got := w.b.poll(w.b.rcq)
			if len(got) != 1 || got[0].WRID != 9 {
				t.Fatalf("receives completed: %+v", got)
			}
			if c.bad {
				if got[0].Status != verbs.WCRemInvReqErr || w.b.state() != verbs.QPSErr || mw.mr == nil {
					t.Fatalf("refused: receive %v, queue pair %v, window bound %v", got[0].Status, w.b.state(), mw.mr != nil)
				}
				return
			}
			if wc := got[0]; wc.Status != verbs.WCSuccess || wc.Flags != verbs.WCWithInv || wc.ImmData != key || wc.ByteLen != uint32(c.n) || wc.Opcode != verbs.WCRecv {
				t.Fatalf("receive %+v, want key %#x", wc, key)
			}
			if string(w.b.data()[:c.n]) != string(w.a.data()[:c.n]) || mw.mr != nil {
				t.Fatalf("other bytes arrived, or the window is still bound: %v", mw.mr != nil)
			}
		})
	}
}

// TestLocalInvWaitsForEverythingBefore: it waits also without a fence, later requests wait for
// it, and all complete in order.
func TestLocalInvWaitsForEverythingBefore(t *testing.T) {
	w := windowWorld(t, options{})
	mw := w.a.newMW(verbs.MWType2)
	closing(t, mw)
	w.a.bound(mw, 0, 4096, remoteAll)
	w.fab.SetLink(w.b.gid, w.a.gid, fabric.Link{Down: true}) // acknowledgements are lost
	w.a.mustPost(w.a.writeWR(1, 100, w.b.at(0), w.b.mr.RKey()), w.a.invWR(2, mw.RKey()), w.a.bindWR(3, mw, 0, 100, remoteAll))
	w.step()
	if mw.mr == nil || mw.length != 4096 {
		t.Fatal("the window lost its binding before the WRITE in front of the LOCAL_INV had completed")
	}
	w.fab.SetLink(w.b.gid, w.a.gid, fabric.Link{})
	w.a.ok(w.a.want(w.a.scq, 3), 1)
	if mw.mr == nil || mw.length != 100 {
		t.Fatal("the BIND_MW behind the LOCAL_INV was not executed")
	}
}

// TestBindCompletesInOrder: a BIND_MW executes in queue order and completes after the outstanding
// requests before it; an error before it is the first error.
func TestBindCompletesInOrder(t *testing.T) {
	w := windowWorld(t, options{})
	mw := w.a.newMW(verbs.MWType1)
	closing(t, mw)
	w.a.mustPost(w.a.writeWR(1, 3000, w.b.at(0), w.b.mr.RKey()), w.a.bindWR(2, mw, 0, 100, remoteAll),
		w.a.writeWR(3, 3000, w.b.at(0), w.b.mr.RKey()))
	w.fab.Step()
	if mw.mr == nil || len(w.a.poll(w.a.scq)) != 0 {
		t.Fatalf("bound %v; it must be, and nothing completed", mw.mr != nil)
	}
	w.a.ok(w.a.want(w.a.scq, 3), 1)
	bad := w.a.bindWR(6, mw, 0, 0, 0)
	bad.MW = 0
	w.a.mustPost(w.a.writeWR(4, 3000, w.b.at(0), w.b.mr.RKey()), w.a.writeWR(5, 8, w.b.at(0), 0), bad, w.a.writeWR(7, 8, w.b.at(0), w.b.mr.RKey()))
	if got := statuses(w.a.want(w.a.scq, 4)); got != "4:SUCCESS 5:REM_ACCESS_ERR 6:WR_FLUSH_ERR 7:WR_FLUSH_ERR " {
		t.Fatalf("completions %q: the first error is the cause", got)
	}
}

// TestLocalRequestsAreNotRepeated: lost packets before and after a BIND_MW are resent, the
// binding is not repeated.
func TestLocalRequestsAreNotRepeated(t *testing.T) {
	w := windowWorld(t, options{})
	mw := w.a.newMW(verbs.MWType2) // a second binding would fail
	closing(t, mw)
	w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Rules: []fabric.Rule{{Opcodes: []wire.Opcode{wire.RCWriteOnly}, From: 1, To: 3, Drop: true}}})
	w.a.mustPost(w.a.writeWR(1, 100, w.b.at(0), w.b.mr.RKey()), w.a.bindWR(2, mw, 0, 100, remoteAll),
		w.a.writeWR(3, 100, w.b.at(0), w.b.mr.RKey()), w.a.invWR(4, verbs.IncRKey(mw.RKey())), w.a.writeWR(5, 100, w.b.at(0), w.b.mr.RKey()))
	w.a.ok(w.a.want(w.a.scq, 5), 1)
}

// TestRevokedWriteStopsBetweenPackets: a key invalidated in any way between two packets of a
// WRITE stops the WRITE there; nothing is written from then on.
func TestRevokedWriteStopsBetweenPackets(t *testing.T) {
	for name, c := range map[string]struct {
		kind verbs.MWType
		take func(w *world, mw *memoryWindow)
	}{
		"LOCAL_INV": {verbs.MWType2, func(w *world, mw *memoryWindow) {
			w.b.mustPost(w.b.invWR(2, mw.RKey()))
			w.step()
			w.b.ok(w.b.poll(w.b.scq), 2)
		}},
		"Close": {verbs.MWType2, func(w *world, mw *memoryWindow) { must.Do(t, mw.Close()) }},
		"bound to something else": {verbs.MWType1, func(w *world, mw *memoryWindow) {
			w.b.mustPost(w.b.bindWR(2, mw, 0, 8192, remoteAll))
			w.step()
			w.b.ok(w.b.poll(w.b.scq), 2)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := windowWorld(t, options{})
			mw := w.b.newMW(c.kind)
			closing(t, mw)
			w.b.bound(mw, 0, 8192, remoteAll)
			mem.Poison(w.b.data())
			w.fab.SetLink(w.a.gid, w.b.gid, lose(1, wire.RCWriteMiddle))
			fill(w.a.data()[:4000], 1)
			w.a.mustPost(w.a.writeWR(1, 4000, w.b.at(0), mw.RKey()))
			w.fab.Step()
			if got := mem.Poisoned(w.b.data()); got != 0 {
				t.Fatalf("the first packet did not come: %d", got)
			}
			w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Down: true}) // the missing packets come later
			c.take(w, mw)
			w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{})
			mem.Poison(w.b.data()) // its owner has the memory back
			w.settle()
			if got := statuses(w.a.poll(w.a.scq)); got != "1:REM_ACCESS_ERR " {
				t.Fatalf("the WRITE completes %q, want REM_ACCESS_ERR", got)
			}
			if at := mem.Poisoned(w.b.data()); at >= 0 {
				t.Fatalf("byte %d was written after the key was taken away", at)
			}
		})
	}
}

// TestRevocationMidMessage: packets of a READ that point into memory through a window are dropped
// once its key is invalid.
func TestRevocationMidMessage(t *testing.T) {
	w := windowWorld(t, options{jumbo: true})
	mw := w.b.newMW(verbs.MWType2)
	closing(t, mw)
	w.b.bound(mw, 0, 8192, remoteAll)
	mem.Poison(w.a.data())
	read := w.a.send(1, verbs.WRRDMARead, 0, w.a.sge(0, 5000))
	read.SetRDMA(w.b.at(0), mw.RKey())
	w.a.mustPost(read)
	inFlight(w)
	must.Do(t, mw.Close())
	fill(w.b.data(), 99) // its owner has the memory back
	w.settle()
	if got := statuses(w.a.poll(w.a.scq)); got != "1:REM_ACCESS_ERR " {
		t.Fatalf("completions %q", got)
	}
	if at := mem.Poisoned(w.a.data()); at >= 0 {
		t.Fatalf("memory was read through a window after it was closed: byte %d came over", at)
	}
}

// TestLateReadAfterInvalidation: a copy of a READ that arrives after the peer has invalidated its key is
// dropped, and a READ with the key that comes after the invalidation breaks the connection.
func TestLateReadAfterInvalidation(t *testing.T) {
	w := windowWorld(t, options{})
	mw := w.b.newMW(verbs.MWType2)
	closing(t, mw)
	w.b.bound(mw, 0, 4096, remoteAll)
	key, at := mw.RKey(), w.b.at(0)
	late := wire.Header{Opcode: w.a.qp.wire(wire.OpReadRequest), PSN: narrow(w.next()), AckReq: true, VA: at, RKey: key, Length: 100}
	w.a.mustPost(w.a.readWR(1, 100, at, key))
	w.a.ok(w.a.want(w.a.scq, 1), 1)
	w.b.recv(2)
	wr := w.a.send(3, verbs.WRSendWithInv, verbs.SendSignaled)
	wr.SetInvalidate(key)
	w.a.mustPost(wr)
	w.a.ok(w.a.want(w.a.scq, 1), 3)
	w.inject(late, nil)
	if s, evs := w.b.state(), w.b.events(); s != verbs.QPSRTS || len(evs) != 0 {
		t.Fatalf("a late copy of a READ left the queue pair in %v, with the events %v; want RTS and none", s, evs)
	}
	w.a.mustPost(w.a.readWR(4, 100, at, key))
	if wc := w.a.want(w.a.scq, 1)[0]; wc.Status != verbs.WCRemAccessErr {
		t.Errorf("a READ with a key that was invalidated before completed with %v, want %v", wc.Status, verbs.WCRemAccessErr)
	}
	w.b.events()
}
