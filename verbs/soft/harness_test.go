package soft

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// tb is the part of testing.TB that the harness needs; rapid.T has it too.
type tb interface {
	Helper()
	Fatalf(format string, a ...any)
	Cleanup(func())
}

// world is two devices on one fabric, with a connected pair of queue pairs.
type world struct {
	t    tb
	fab  *fabric.Fabric
	p    *Provider
	a, b *peer
	// before are objects of the test, closed first.
	before []verbs.Object
}

// options configure a world; the zero value is two RC queue pairs in virtual time with a path MTU
// of 1024.
type options struct {
	kind    verbs.QPType // RC if 0
	real    bool
	jumbo   bool
	seed    uint64
	mtu     verbs.MTU
	cap     verbs.QPCap
	cqe     int
	channel bool
	memory  int
	access  verbs.AccessFlags // of queue pairs and regions
	attr    func(*verbs.QPAttr)
	apart   bool // do not connect
	lossy   bool // the requesters behave as on a link with a socket
	pooled  bool // one CQ for sends and receives
	foreign bool // the data is memory that the program mapped
	shared  bool // receives of b are in a shared queue of another domain, with a limit of 2
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// peer is one end.
type peer struct {
	w        *world
	kind     verbs.QPType
	gid      verbs.GID
	ctx      *deviceContext
	pd       verbs.PD
	ch       verbs.CompChannel
	scq, rcq verbs.CQ
	qp       *queuePair
	srq      verbs.SRQ // nil: receives are the queue pair's own
	srqPD    verbs.PD
	srqMR    verbs.MR
	arena    *mem.Arena // data
	under    *mem.Arena // foreign data: the mapping
	mr       verbs.MR
	wrs      *mem.Arena
	next     uint64 // bump pointer into wrs
	wcs      *mem.Arena
}

func newWorld(t tb, o options) *world {
	t.Helper()
	if o.mtu == 0 {
		o.mtu = verbs.MTU1024
		if o.jumbo {
			o.mtu = verbs.MTUJumbo
		}
	}
	if o.cap == (verbs.QPCap{}) {
		o.cap = verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 256}
	}
	if o.cqe == 0 {
		o.cqe = 1024
	}
	if o.memory == 0 {
		o.memory = 1 << 20
	}
	if o.access == 0 {
		o.access = allAccess
	}
	w := &world{t: t, fab: fabric.New(fabric.Config{Virtual: !o.real, Seed: o.seed, JumboMTU: o.jumbo})}
	p := must.Get(New(Config{Fabric: w.fab, Devices: []DeviceConfig{
		{Name: "a", Addr: netip.MustParseAddr("10.0.0.1")},
		{Name: "b", Addr: netip.MustParseAddr("10.0.0.2")},
	}}))(t)
	w.p = p
	w.a, w.b = w.newPeer("a", o), w.newPeer("b", o)
	t.Cleanup(w.close)
	if !o.apart {
		w.connect(o)
	}
	return w
}

func (w *world) newPeer(name string, o options) *peer {
	t := w.t
	e := &peer{w: w, kind: o.kind}
	if e.kind == 0 {
		e.kind = verbs.QPTRC
	}
	c := must.Get(w.p.Open(name))(t)
	e.ctx = c.(*deviceContext)
	e.gid = must.Get(c.QueryGID(1, 0))(t)
	e.pd = must.Get(c.AllocPD())(t)
	if o.channel {
		e.ch = must.Get(c.CreateCompChannel())(t)
	}
	e.scq = must.Get(c.CreateCQ(o.cqe, e.ch, 0, 0))(t)
	e.rcq = e.scq
	if !o.pooled {
		e.rcq = must.Get(c.CreateCQ(o.cqe, e.ch, 0, 0))(t)
	}
	e.arena = must.Get(mem.Map(o.memory, mem.Options{}))(t)
	if o.foreign {
		e.under, e.arena = e.arena, must.Get(mem.Adopt(e.arena.Bytes()))(t)
	}
	e.wrs = must.Get(mem.Map(1<<20, mem.Options{}))(t)
	e.wcs = must.Get(mem.Map(1<<16, mem.Options{}))(t)
	e.mr = e.register(o.access)
	if o.shared && name == "b" {
		e.srqPD = must.Get(c.AllocPD())(t)
		e.srq = must.Get(e.srqPD.CreateSRQ(&verbs.SRQAttr{MaxWR: o.cap.MaxRecvWR, MaxSGE: o.cap.MaxRecvSGE, Limit: 2}))(t)
		e.srqMR = must.Get(e.srqPD.RegMR(e.arena.Addr(), uint64(e.arena.Len()), e.arena.Addr(), o.access))(t)
	}
	e.qp = e.newQP(o.cap)
	return e
}

func (e *peer) register(access verbs.AccessFlags) verbs.MR {
	e.w.t.Helper()
	m := must.Get(e.pd.RegMR(e.arena.Addr(), uint64(e.arena.Len()), e.arena.Addr(), access))(e.w.t)
	return m
}

func (e *peer) newQP(c verbs.QPCap) *queuePair {
	e.w.t.Helper()
	q := must.Get(e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: e.scq, RecvCQ: e.rcq, SRQ: e.srq, Type: e.kind, Cap: c}))(e.w.t)
	return q.(*queuePair)
}

// connect brings both queue pairs to RTS.
func (w *world) connect(o options) {
	w.t.Helper()
	a := verbs.QPAttr{
		PathMTU: o.mtu, RQPSN: 0xfffff0, SQPSN: 0xfffff0, AccessFlags: o.access, Port: 1,
		MaxRdAtomic: 8, MaxDestRdAtomic: 8, MinRNRTimer: 1, Timeout: 8, RetryCnt: 7, RNRRetry: 7,
	}
	if o.real {
		// The peer's engine stands still while the system has descheduled the thread that runs
		// it: half a second on a loaded machine. The retries must outlast that: eight times 268 ms.
		a.Timeout = 16
	}
	if o.attr != nil {
		o.attr(&a)
	}
	w.a.toRTS(a, w.b)
	w.b.toRTS(a, w.a)
	if o.lossy {
		for _, e := range []*peer{w.a, w.b} {
			e.ctx.dev.exclusive(func() { e.qp.req.window = newWindow(true, true, e.qp.mtu) })
		}
	}
}

func (e *peer) toRTS(a verbs.QPAttr, to *peer) {
	e.w.t.Helper()
	e.toRTR(a, to)
	a.State = verbs.QPSRTS
	if e.qp.Type() != verbs.QPTRC {
		must.Do(e.w.t, e.qp.Modify(&a, verbs.QPMState|verbs.QPMSQPSN))
		return
	}
	must.Do(e.w.t, e.qp.Modify(&a, verbs.QPMState|verbs.QPMTimeout|verbs.QPMRetryCnt|verbs.QPMRNRRetry|verbs.QPMSQPSN|verbs.QPMMaxQPRdAtomic))
}

func (e *peer) toRTR(a verbs.QPAttr, to *peer) {
	e.w.t.Helper()
	a.DestQPN, a.AH.DGID, a.AH.Port = to.qp.Num(), to.gid, 1
	a.State = verbs.QPSInit
	if e.qp.Type() == verbs.QPTUD {
		must.Do(e.w.t, e.qp.Modify(&a, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMQKey))
		a.State = verbs.QPSRTR
		must.Do(e.w.t, e.qp.Modify(&a, verbs.QPMState))
		return
	}
	must.Do(e.w.t, e.qp.Modify(&a, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	a.State = verbs.QPSRTR
	if e.qp.Type() == verbs.QPTUC {
		must.Do(e.w.t, e.qp.Modify(&a, verbs.QPMState|verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN))
		return
	}
	must.Do(e.w.t, e.qp.Modify(&a, verbs.QPMState|verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN|verbs.QPMMaxDestRdAtomic|verbs.QPMMinRNRTimer))
}

// close closes everything; a refused Close fails the test.
func (w *world) close() {
	for _, o := range w.before {
		must.Do(w.t, o.Close())
	}
	for _, e := range []*peer{w.a, w.b} {
		objs := []verbs.Object{e.qp, e.mr, e.scq, e.rcq, e.pd}
		if e.srq != nil {
			e.events()
			objs = append(objs, e.srq, e.srqMR, e.srqPD)
		}
		if e.ch != nil {
			objs = append(objs, e.ch)
		}
		for _, o := range objs {
			if err := o.Close(); err != nil {
				w.t.Fatalf("closing %v: %v", o, err)
			}
		}
		if n := e.ctx.Objects(); !n.Zero() {
			w.t.Fatalf("left behind: %v", n)
		}
		parked, stalls := 0, 0
		e.ctx.dev.exclusive(func() { parked, stalls = e.ctx.dev.parked, len(e.ctx.dev.stalls) })
		if parked != 0 || stalls != 0 {
			w.t.Fatalf("%d packets are parked and somebody waits for %d links, though all is closed", parked, stalls)
		}
		must.Do(w.t, e.ctx.Close())
		must.Do(w.t, e.arena.Unmap())
		if e.under != nil {
			must.Do(w.t, e.under.Unmap())
		}
		must.Do(w.t, e.wrs.Unmap())
		must.Do(w.t, e.wcs.Unmap())
	}
}

// settle lets virtual time run until no event is left.
func (w *world) settle() {
	for {
		for w.fab.Step() {
		}
		at, ok := w.fab.NextEvent()
		if !ok {
			return
		}
		w.fab.AdvanceTo(at)
	}
}

// step runs the engines until nothing is left at this time.
func (w *world) step() {
	for w.fab.Step() {
	}
}

// stepFor lets d of virtual time pass, with what happens meanwhile.
func (w *world) stepFor(d time.Duration) {
	until := w.fab.Now() + d
	for w.step(); ; w.step() {
		at, ok := w.fab.NextEvent()
		if !ok || at > until {
			break
		}
		w.fab.AdvanceTo(at)
	}
	w.fab.AdvanceTo(until)
}

// alloc returns off-heap memory for one record.
func (e *peer) alloc(size uint64) uint64 {
	size = (size + 15) &^ 15
	if e.next+size > uint64(e.wrs.Len()) {
		e.next = 0
	}
	at := e.wrs.Addr() + e.next
	e.next += size
	return at
}

// at returns the address of an offset in the data.
func (e *peer) at(off int) uint64 { return e.arena.Addr() + uint64(off) }

// data returns the data memory.
func (e *peer) data() []byte { return e.arena.Bytes() }

// sge returns an element of n bytes from off on.
func (e *peer) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: e.at(off), Length: uint32(n), LKey: e.mr.LKey()}
}

func (e *peer) list(sges []verbs.SGE) (addr uint64) {
	if len(sges) == 0 {
		return 0
	}
	addr = e.alloc(uint64(len(sges)) * verbs.SizeofSGE)
	to, _ := mem.Array[verbs.SGE](e.wrs, addr, len(sges))
	copy(to, sges)
	return addr
}

// request is a send request and its address.
type request struct {
	*verbs.SendWR
	addr uint64
}

// send makes one send request.
func (e *peer) send(id uint64, op verbs.WROpcode, flags verbs.SendFlags, sges ...verbs.SGE) request {
	addr := e.alloc(verbs.SizeofSendWR)
	wr, _ := mem.At[verbs.SendWR](e.wrs, addr)
	*wr = verbs.SendWR{WRID: id, Opcode: op, Flags: flags, NumSGE: uint32(len(sges)), SGList: e.list(sges)}
	return request{wr, addr}
}

// post posts the requests as one list and returns how many were accepted.
func (e *peer) post(wrs ...request) (int, error) {
	e.w.t.Helper()
	for i := 1; i < len(wrs); i++ {
		wrs[i-1].Next = wrs[i].addr
	}
	return verbs.PostSend(e.qp, wrs[0].addr, len(wrs))
}

// mustPost posts requests that must be accepted.
func (e *peer) mustPost(wrs ...request) {
	e.w.t.Helper()
	if n, err := e.post(wrs...); err != nil || n != len(wrs) {
		e.w.t.Fatalf("post: %d of %d accepted: %v", n, len(wrs), err)
	}
}

// recv posts one receive.
func (e *peer) recv(id uint64, sges ...verbs.SGE) {
	e.w.t.Helper()
	addr := e.alloc(verbs.SizeofRecvWR)
	wr, _ := mem.At[verbs.RecvWR](e.wrs, addr)
	if e.srq != nil {
		for i := range sges {
			if sges[i].LKey == e.mr.LKey() {
				sges[i].LKey = e.srqMR.LKey() // that of the queue's domain
			}
		}
	}
	*wr = verbs.RecvWR{WRID: id, NumSGE: uint32(len(sges)), SGList: e.list(sges)}
	var err error
	if e.srq != nil {
		_, err = verbs.PostSRQRecv(e.srq, addr, 1)
	} else {
		_, err = verbs.PostRecv(e.qp, addr, 1)
	}
	if err != nil {
		e.w.t.Fatalf("post receive: %v", err)
	}
}

// poll takes all queued completions.
func (e *peer) poll(cq verbs.CQ) []verbs.WC {
	e.w.t.Helper()
	buf, _ := mem.Array[verbs.WC](e.wcs, e.wcs.Addr(), 256)
	var all []verbs.WC
	for {
		n := must.Get(verbs.Poll(cq, buf))(e.w.t)
		all = append(all, buf[:n]...)
		if n < len(buf) {
			return all
		}
	}
}

// want polls until n completions have arrived, in real or virtual time.
func (e *peer) want(cq verbs.CQ, n int) []verbs.WC {
	e.w.t.Helper()
	var all []verbs.WC
	for end := time.Now().Add(10 * time.Second); ; {
		if e.w.fab.Virtual() {
			e.w.settle()
		}
		all = append(all, e.poll(cq)...)
		if len(all) >= n || e.w.fab.Virtual() || time.Now().After(end) {
			break
		}
	}
	if len(all) != n {
		e.w.t.Fatalf("%d completions, want %d: %+v", len(all), n, all)
	}
	return all
}

// ok checks that all completions are successes with consecutive ids from first on.
func (e *peer) ok(wcs []verbs.WC, first uint64) {
	e.w.t.Helper()
	for i, c := range wcs {
		if c.Status != verbs.WCSuccess || c.WRID != first+uint64(i) {
			e.w.t.Fatalf("completion %d is id %d %v, want id %d SUCCESS: %+v", i, c.WRID, c.Status, first+uint64(i), wcs)
		}
	}
}

func (e *peer) word(off int) uint64       { return binary.NativeEndian.Uint64(e.data()[off:]) }
func (e *peer) setWord(off int, v uint64) { binary.NativeEndian.PutUint64(e.data()[off:], v) }

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i*7) + byte(i>>8)
	}
}

var _ tb = (*testing.T)(nil)

// TestMain fails the run when goroutines, descriptors, mappings or objects of the provider are
// left.
func TestMain(m *testing.M) {
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: Live})
}
