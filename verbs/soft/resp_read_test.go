package soft

import (
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// reader is a world in which a reads regions of b, and what b answers is recorded.
type reader struct {
	*world
	answers []string
}

func newReader(t *testing.T, o options) *reader {
	x := &reader{world: newWorld(t, o)}
	x.fab.SetTrace(func(ev fabric.Event) {
		var h wire.Header
		if _, err := wire.Parse(ev.Hdr, &h); err == nil && ev.Src == x.b.gid {
			x.answers = append(x.answers, fmt.Sprintf("%v %d", h.Opcode, ev.PayloadLen))
		}
	}, false)
	t.Cleanup(func() { x.fab.SetTrace(nil, false) })
	return x
}

// read has a read n bytes of a new region of b, and returns the region and the request as it was on the wire.
func (x *reader) read(n int) (verbs.MR, wire.Header) {
	x.t.Helper()
	region := must.Get(x.b.pd.RegMR(x.b.at(0), uint64(n), x.b.at(0), allAccess))(x.t)
	h := wire.Header{Opcode: wire.RCReadRequest, PSN: narrow(x.next()), VA: x.b.at(0), RKey: region.RKey(), Length: uint32(n), AckReq: true}
	wr := x.a.send(1, verbs.WRRDMARead, verbs.SendSignaled, x.a.sge(512<<10, n))
	wr.SetRDMA(h.VA, h.RKey)
	x.a.mustPost(wr)
	x.settle()
	x.a.ok(x.a.want(x.a.scq, 1), 1)
	return region, h
}

// repeat delivers a request again and checks what b answers.
func (x *reader) repeat(what string, h wire.Header, want ...string) {
	x.t.Helper()
	x.answers = nil
	x.inject(h, nil)
	if !slices.Equal(x.answers, want) {
		x.t.Fatalf("%s is answered by %q, want %q", what, x.answers, want)
	}
	x.healthy(what)
}

// healthy checks that the connection works and that b has seen no error.
func (x *reader) healthy(after string) {
	x.t.Helper()
	if ev := x.b.events(); x.b.state() != verbs.QPSRTS || len(ev) > 0 {
		x.t.Fatalf("after %s the queue pair is in %v with events %v, want RTS and none", after, x.b.state(), ev)
	}
	wr := x.a.send(9, verbs.WRRDMAWrite, verbs.SendSignaled, x.a.sge(0, 8))
	wr.SetRDMA(x.b.at(64<<10), x.b.mr.RKey())
	x.a.mustPost(wr)
	x.settle()
	x.a.ok(x.a.want(x.a.scq, 1), 9)
}

const (
	readNAK  = "RC_ACKNOWLEDGE 0"
	readOnly = "RC_RDMA_READ_RESPONSE_ONLY "
)

// Rule: a READ request with an old PSN that repeats none of the last READs is dropped in silence, whatever it names.
// Half of all PSNs are old, so anybody can send one.
func TestForgedOldReadIsDropped(t *testing.T) {
	for _, back := range []uint32{1, 2, 1000, 1 << 20, 1<<23 - 10} {
		for _, access := range []verbs.AccessFlags{allAccess, verbs.AccessLocalWrite | verbs.AccessRemoteWrite} {
			x := newReader(t, options{access: access})
			h := wire.Header{Opcode: wire.RCReadRequest, PSN: narrow(x.next()).Sub(back), VA: 0xdead, RKey: 0xbeef, Length: 1}
			x.repeat("a READ with a wrong key", h)
			h.VA, h.RKey = x.b.at(0), x.b.mr.RKey()
			x.repeat("a READ with a right key", h)
		}
	}
}

// Rule: a repetition of one of the last MaxDestRdAtomic READs is answered, from where it asks, with what the READ named
// and nothing else. When the region is closed it gets a NAK. Neither changes the responder.
func TestRepeatedRead(t *testing.T) {
	const n = 2500 // three packets of 1024
	x := newReader(t, options{})
	region, h := x.read(n)
	x.repeat("the READ", h, "RC_RDMA_READ_RESPONSE_FIRST 1024", "RC_RDMA_READ_RESPONSE_MIDDLE 1024", "RC_RDMA_READ_RESPONSE_LAST 452")
	rest := h
	rest.PSN, rest.VA, rest.Length = h.PSN.Add(2), h.VA+2048, n-2048
	x.repeat("the rest of the READ", rest, readOnly+"452")
	for what, spoil := range map[string]func(h *wire.Header){
		"another key":        func(h *wire.Header) { h.RKey = x.b.mr.RKey() },
		"another address":    func(h *wire.Header) { h.VA++ },
		"a longer READ":      func(h *wire.Header) { h.Length++ },
		"the PSN before":     func(h *wire.Header) { h.PSN = h.PSN.Sub(1) },
		"the PSN after":      func(h *wire.Header) { h.PSN = h.PSN.Add(1) },
		"the end of nothing": func(h *wire.Header) { h.PSN, h.VA, h.Length = h.PSN.Add(1), h.VA+1024, 0 },
	} {
		other := rest
		spoil(&other)
		x.repeat("a repetition with "+what, other)
	}
	must.Do(t, region.Close())
	x.repeat("the READ of a closed region", h, readNAK)
	x.repeat("the rest of it", rest, readNAK)
	must.Do(t, x.b.qp.Modify(&verbs.QPAttr{AccessFlags: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}, verbs.QPMAccessFlags))
	x.repeat("a READ of a queue pair that permits none any more", h)
}

// Rule: what the responder remembers of READs and atomics is as much as the peer may have outstanding.
func TestOlderReadIsDropped(t *testing.T) {
	x := newReader(t, options{attr: func(a *verbs.QPAttr) { a.MaxRdAtomic, a.MaxDestRdAtomic = 3, 3 }})
	var regions []verbs.MR
	var hs []wire.Header
	for range 4 {
		region, h := x.read(8)
		regions, hs = append(regions, region), append(hs, h)
	}
	x.repeat("the oldest", hs[0])
	for _, h := range hs[1:] {
		x.repeat("one of the last three", h, readOnly+"8")
	}
	atomic := x.a.send(1, verbs.WRAtomicFetchAndAdd, verbs.SendSignaled, x.a.sge(0, 8))
	atomic.SetFetchAdd(x.b.at(0), x.b.mr.RKey(), 1)
	x.a.mustPost(atomic)
	x.settle()
	x.a.ok(x.a.want(x.a.scq, 1), 1)
	x.repeat("the oldest after an atomic", hs[1])
	x.repeat("the one after it", hs[2], readOnly+"8")
	for _, region := range regions {
		must.Do(t, region.Close())
	}
	x.repeat("the oldest of a closed region", hs[1])
	x.repeat("the one after it", hs[2], readNAK)
}

// Rule: a late copy of a READ through a window that its owner has closed changes nothing.
func TestLateCopyOfReadThroughAWindow(t *testing.T) {
	x := newReader(t, options{access: allAccess | verbs.AccessMWBind})
	mw := x.b.newMW(verbs.MWType2)
	x.b.bound(mw, 0, 4096, remoteAll)
	h := wire.Header{Opcode: wire.RCReadRequest, PSN: narrow(x.next()), VA: x.b.at(0), RKey: mw.RKey(), Length: 64, AckReq: true}
	wr := x.a.send(1, verbs.WRRDMARead, verbs.SendSignaled, x.a.sge(0, 64))
	wr.SetRDMA(h.VA, h.RKey)
	x.a.mustPost(wr)
	x.settle()
	x.a.ok(x.a.want(x.a.scq, 1), 1)
	must.Do(t, mw.Close())
	x.repeat("a READ through a closed window", h, readNAK)
}

// Rule: a late copy of a READ with a key that the reader has invalidated since is dropped in silence, also if it is part of
// the READ: the reader has what it wanted, and a NAK could fail it in the middle of another READ. A READ with another
// key is remembered.
func TestLateCopyOfReadWithAnInvalidatedKey(t *testing.T) {
	x := newReader(t, options{access: allAccess | verbs.AccessMWBind})
	region, other := x.read(8)
	closing(t, region)
	mw := x.b.newMW(verbs.MWType2)
	closing(t, mw)
	x.b.bound(mw, 0, 4096, remoteAll)
	h := wire.Header{Opcode: wire.RCReadRequest, PSN: narrow(x.next()), VA: x.b.at(0), RKey: mw.RKey(), Length: 2000, AckReq: true}
	wr := x.a.send(1, verbs.WRRDMARead, verbs.SendSignaled, x.a.sge(0, 2000))
	wr.SetRDMA(h.VA, h.RKey)
	x.a.mustPost(wr)
	x.settle()
	x.a.ok(x.a.want(x.a.scq, 1), 1)
	x.b.recv(2)
	wr = x.a.send(3, verbs.WRSendWithInv, verbs.SendSignaled)
	wr.SetInvalidate(mw.RKey())
	x.a.mustPost(wr)
	x.settle()
	x.a.ok(x.a.want(x.a.scq, 1), 3)
	x.b.ok(x.b.want(x.b.rcq, 1), 2)
	x.repeat("a READ with a key that the reader has invalidated", h)
	rest := h
	rest.PSN, rest.VA, rest.Length = h.PSN.Add(1), h.VA+1024, h.Length-1024
	x.repeat("the rest of it", rest)
	x.repeat("a READ with another key", other, readOnly+"8")
}

// Rule: a region that is closed while a READ of it is answered again ends that answer by a NAK, which the requester,
// who has the answer, ignores.
func TestCloseDuringARepeatedAnswer(t *testing.T) {
	x := newReader(t, options{})
	first := narrow(x.next())
	region, h := x.read(300 << 10) // 300 packets
	q := x.a.qp
	q.dev.exclusive(func() {
		for _, at := range []uint32{0, 1} {
			again := h
			again.PSN = first.Add(at * readChunk)
			again.VA += uint64(at) * readChunk << 10
			again.Length = readChunk << 10
			q.transmit(q.dev.p.Get(), &again)
		}
	})
	for i := 0; i < 1000 && x.b.qp.resp.pending() == 0; i++ {
		x.fab.Step()
	}
	if x.b.qp.resp.pending() == 0 {
		t.Fatal("no answer waits")
	}
	x.answers = nil
	must.Do(t, region.Close())
	x.settle()
	if !slices.Contains(x.answers, readNAK) {
		t.Errorf("the repeated answer ended by %q, want a NAK", x.answers)
	}
	x.healthy("a region was closed during a repeated answer")
}
