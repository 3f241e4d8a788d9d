package bootstrap

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// end is one queue pair of the software RNIC with a page of memory, the first half to send from
// and the second to receive into, and a page of records.
type end struct {
	t     *testing.T
	ctx   verbs.Context
	pd    verbs.PD
	cq    verbs.CQ
	qp    verbs.QP
	data  *mem.Arena
	mr    verbs.MR
	bump  *mem.Bump
	recs  *mem.Arena
	path  Path
	local Dest
}

const (
	page = 4096
	half = page / 2
	wait = 10 * time.Second
)

func newEnd(t *testing.T, p verbs.Provider, device string, kind verbs.QPType, path Path) *end {
	t.Helper()
	e := &end{t: t}
	keep := func(o verbs.Object, err error) {
		t.Helper()
		e.must(err)
		t.Cleanup(func() {
			if err := o.Close(); err != nil {
				t.Errorf("closing %v: %v", o, err)
			}
		})
	}
	var err error
	e.ctx, err = p.Open(device)
	keep(e.ctx, err)
	e.pd, err = e.ctx.AllocPD()
	keep(e.pd, err)
	e.cq, err = e.ctx.CreateCQ(16, nil, 0, 0)
	keep(e.cq, err)
	for _, a := range []**mem.Arena{&e.data, &e.recs} {
		*a, err = mem.Map(page, mem.Options{})
		e.must(err)
		t.Cleanup(func() { _ = (*a).Unmap() })
	}
	e.bump = mem.NewBump(e.recs)
	e.mr, err = e.pd.RegMR(e.data.Addr(), page, e.data.Addr(), verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	keep(e.mr, err)
	e.qp, err = e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Type: kind,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
	keep(e.qp, err)
	e.path, e.local, err = path.On(e.ctx)
	e.must(err)
	e.local.QPN, e.local.PSN = e.qp.Num(), RandomPSN()
	e.must(e.path.Init(e.qp))
	return e
}

func (e *end) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// record is one record in memory that the device reads.
func record[T any](e *end, size int) (*T, uint64) {
	at, ok := e.bump.Alloc(size, 64)
	if !ok {
		e.t.Fatal("the records are used up")
	}
	out, ok := mem.Array[T](e.recs, at, 1)
	if !ok {
		e.t.Fatal("the records are used up")
	}
	return &out[0], at
}

func (e *end) element(off int) uint64 {
	sge, at := record[verbs.SGE](e, verbs.SizeofSGE)
	*sge = verbs.SGE{Addr: e.data.Addr() + uint64(off), Length: half, LKey: e.mr.LKey()}
	return at
}

func (e *end) receive() {
	e.t.Helper()
	wr, at := record[verbs.RecvWR](e, verbs.SizeofRecvWR)
	*wr = verbs.RecvWR{SGList: e.element(half), NumSGE: 1}
	_, err := verbs.PostRecv(e.qp, at, 1)
	e.must(err)
}

// completion waits for one completion.
func (e *end) completion() verbs.WC {
	e.t.Helper()
	wc, _ := record[[1]verbs.WC](e, verbs.SizeofWC)
	for until := time.Now().Add(wait); time.Now().Before(until); {
		n, err := verbs.Poll(e.cq, wc[:])
		e.must(err)
		if n == 1 {
			return wc[0]
		}
	}
	e.t.Fatal("no completion came")
	return verbs.WC{}
}

// Rule: queue pairs of each type that know only each other's line carry a message, whose receive
// is posted before the line is sent.
func TestJoinedWithoutAConnectionManager(t *testing.T) {
	for _, kind := range []verbs.QPType{verbs.QPTRC, verbs.QPTUC, verbs.QPTUD} {
		t.Run(kind.String(), func(t *testing.T) { joined(t, kind) })
	}
}

func joined(t *testing.T, kind verbs.QPType) {
	p, err := soft.New(soft.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := newEnd(t, p, "soft0", kind, Path{}), newEnd(t, p, "soft1", kind, Path{})
	b.receive()
	b.must(b.path.Connect(b.qp, b.local.PSN, a.local))
	a.must(a.path.Connect(a.qp, a.local.PSN, b.local))
	wr, at := record[verbs.SendWR](a, verbs.SizeofSendWR)
	*wr = verbs.SendWR{SGList: a.element(0), NumSGE: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
	sge := wr.SGList
	if kind == verbs.QPTUD { // the message follows the 40 bytes
		s, _ := mem.Array[verbs.SGE](a.recs, sge, 1)
		s[0].Length = 1000
		attr, err := a.path.AH(b.local)
		a.must(err)
		ah, err := a.pd.CreateAH(&attr)
		a.must(err)
		defer func() { a.must(ah.Close()) }()
		wr.SetUD(ah.Handle(), b.local.QPN, a.path.QKey)
	}
	for i := range half {
		a.data.Bytes()[i] = byte(i * 7)
	}
	_, err = verbs.PostSend(a.qp, at, 1)
	a.must(err)
	if wc := a.completion(); wc.Status != verbs.WCSuccess {
		t.Fatalf("sending: %v", wc.Err())
	}
	wc := b.completion()
	got, want := b.data.Bytes()[half:], a.data.Bytes()[:half]
	if kind == verbs.QPTUD {
		got, want = got[verbs.GRHLen:][:1000], want[:1000]
	}
	if wc.Status != verbs.WCSuccess || !bytes.Equal(got, want) {
		t.Errorf("receiving: %v, %d bytes, the right ones: %v", wc.Err(), wc.ByteLen, bytes.Equal(got, want))
	}
}

// Rule: the queue pair has the attributes of its Path, and the zero Path gives those of the
// ibv_*_pingpong programs.
func TestPathOfAQueuePair(t *testing.T) {
	p := must.Get(soft.New(soft.Config{}))(t)
	peer := newEnd(t, p, "soft1", verbs.QPTRC, Path{}).local
	for name, c := range map[string]struct {
		give Path
		want verbs.QPAttr
	}{
		"default": {Path{}, verbs.QPAttr{PathMTU: verbs.MTU1024, Timeout: 15 /* the delay of the software RNIC */, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRdAtomic: 1, MaxDestRdAtomic: 1}},
		"all of it": {Path{MTU: verbs.MTU512, Timeout: 8, RetryCount: 3, NoRNRRetry: true, MinRNRTimer: 1, RdAtomic: 4, DestRdAtomic: 8, SL: 2},
			verbs.QPAttr{PathMTU: verbs.MTU512, Timeout: 8, RetryCnt: 3, RNRRetry: 0, MinRNRTimer: 1, MaxRdAtomic: 4, MaxDestRdAtomic: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnd(t, p, "soft0", verbs.QPTRC, c.give)
			e.must(e.path.Connect(e.qp, e.local.PSN, peer))
			a, err := e.qp.Query()
			e.must(err)
			w := c.want
			if a.State != verbs.QPSRTS || a.PathMTU != w.PathMTU || a.Timeout != w.Timeout || a.RetryCnt != w.RetryCnt || a.RNRRetry != w.RNRRetry ||
				a.MinRNRTimer != w.MinRNRTimer || a.MaxRdAtomic != w.MaxRdAtomic || a.MaxDestRdAtomic != w.MaxDestRdAtomic {
				t.Errorf("the queue pair has %+v, want %+v", a, w)
			}
			if a.DestQPN != peer.QPN || a.RQPSN != peer.PSN || a.AH.DGID != peer.GID || a.AH.SL != c.give.SL || a.AccessFlags&RemoteAccess != RemoteAccess {
				t.Errorf("it is joined to %+v, want %v", a, peer)
			}
		})
	}
}

// emptyGID is a kernel device with a long table of addresses.
type emptyGID struct{ verbs.Context }

// QueryGID reads an empty entry as zeros, as the kernel does.
func (emptyGID) QueryGID(uint8, int) (verbs.GID, error) { return verbs.GID{}, nil }

// Rule: an invalid Path is refused before anything is made, and an impossible peer while the
// queue pair is in INIT, where it stays.
func TestPathThatCannotBe(t *testing.T) {
	p := must.Get(soft.New(soft.Config{}))(t)
	e := newEnd(t, p, "soft0", verbs.QPTRC, Path{})
	for name, path := range map[string]Path{
		"MTU": {MTU: 9}, "address": {GIDIndex: -1}, "far address": {GIDIndex: 257}, "service level": {SL: 16},
		"timeout": {Timeout: 32}, "RNR timer": {MinRNRTimer: 32}, "retries": {RetryCount: 8},
		"no such port": {Port: 9}, "no such address": {GIDIndex: 200},
	} {
		if _, _, err := path.On(e.ctx); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, _, err := (Path{GIDIndex: 78}).On(emptyGID{e.ctx}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an address that the kernel reads as zeros: %v, want ErrInvalid", err)
	}
	if err := e.path.Connect(e.qp, 1, Dest{QPN: 1}); !errors.Is(err, ErrDest) {
		t.Errorf("joined to QP 1: %v, want ErrDest", err)
	}
	if a, err := e.qp.Query(); err != nil || a.State != verbs.QPSInit {
		t.Errorf("then the queue pair is in %v, %v; want INIT", a.State, err)
	}
	if _, err := e.path.AH(Dest{QPN: 7}); !errors.Is(err, ErrDest) {
		t.Errorf("addressed to nowhere: %v, want ErrDest", err)
	}
}
