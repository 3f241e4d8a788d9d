//go:build linux && cgo && !portable

package ibv

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// rig is one queue pair of the null device, connected to itself, with the
// control of the device.
type rig struct {
	t     testing.TB
	null  *nulldev.Control
	ctx   *deviceContext
	pd    verbs.PD
	ch    verbs.CompChannel
	cq    verbs.CQ
	qp    *queuePair
	arena *mem.Arena
	mr    verbs.MR
	sends []verbs.SendWR
	recvs []verbs.RecvWR
	wc    []verbs.WC
	sge   uint64 // address of one element, over 64 bytes of the region
}

const rigDepth = 16

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	paths := nullPaths(t)
	null := must.Get(nulldev.Open(paths))(t)
	t.Cleanup(null.Close)
	cfg.Verbs, cfg.RDMACM = paths.Verbs, paths.RDMACM
	p := must.Get(New(cfg))(t)
	r := &rig{t: t, null: null, ctx: opened(t, p, "null0").(*deviceContext)}
	t.Cleanup(null.Clear) // before the objects are closed
	keep := func(o verbs.Object) {
		t.Cleanup(func() {
			if err := o.Close(); err != nil {
				t.Errorf("closing %v: %v", o, err)
			}
		})
	}
	r.arena = must.Get(mem.Map(1<<16, mem.Options{}))(t)
	t.Cleanup(func() { _ = r.arena.Unmap() })
	pd := must.Get(r.ctx.AllocPD())(t)
	keep(pd)
	r.pd = pd
	r.ch = must.Get(r.ctx.CreateCompChannel())(t)
	keep(r.ch)
	r.cq = must.Get(r.ctx.CreateCQ(4*rigDepth, r.ch, 0, 7))(t)
	keep(r.cq)
	r.mr = must.Get(pd.RegMR(r.arena.Addr(), uint64(r.arena.Len()), r.arena.Addr(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead))(t)
	keep(r.mr)
	r.qp = r.loop(pd)
	b := mem.NewBump(r.arena)
	if _, ok := b.Alloc(1<<12, 8); !ok { // the data
		t.Fatal("arena too small")
	}
	r.sends, r.recvs, r.wc = array[verbs.SendWR](r, b), array[verbs.RecvWR](r, b), array[verbs.WC](r, b)
	sge := array[verbs.SGE](r, b)
	sge[0] = verbs.SGE{Addr: r.arena.Addr(), Length: 64, LKey: r.mr.LKey()}
	r.sge = addr(&sge[0])
	return r
}

// loop makes a queue pair in pd and connects it to itself.
func (r *rig) loop(pd verbs.PD) *queuePair {
	t := r.t
	t.Helper()
	qp := must.Get(pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: rigDepth, MaxRecvWR: rigDepth, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	t.Cleanup(func() { must.Do(t, qp.Close()) })
	gid := must.Get(r.ctx.QueryGID(1, 0))(t)
	must.Do(t, qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: verbs.AccessRemoteWrite | verbs.AccessRemoteRead},
		verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	must.Do(t, qp.Modify(&verbs.QPAttr{State: verbs.QPSRTR, PathMTU: verbs.MTU4096, DestQPN: qp.Num(), MinRNRTimer: 12, MaxDestRdAtomic: 1,
		AH: verbs.AHAttr{DGID: gid, Port: 1, HopLimit: 1}},
		verbs.QPMState|verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN|verbs.QPMMaxDestRdAtomic|verbs.QPMMinRNRTimer))
	must.Do(t, qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
		verbs.QPMState|verbs.QPMTimeout|verbs.QPMRetryCnt|verbs.QPMRNRRetry|verbs.QPMSQPSN|verbs.QPMMaxQPRdAtomic))
	return qp.(*queuePair)
}

// array returns rigDepth records in the arena.
func array[T any](r *rig, b *mem.Bump) []T {
	const size = 1 << 12
	at, ok := b.Alloc(size, 64)
	if !ok {
		r.t.Fatal("arena too small")
	}
	out, ok := mem.Array[T](r.arena, at, rigDepth)
	if !ok {
		r.t.Fatal("arena too small")
	}
	return out
}

// writes links n RDMA WRITEs of the region onto itself, signaled.
func (r *rig) writes(n int) (head uint64) {
	for i := range n {
		w := &r.sends[i]
		*w = verbs.SendWR{WRID: uint64(i + 1), SGList: r.sge, NumSGE: 1, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
		w.SetRDMA(r.mr.Addr()+128, r.mr.RKey())
		if i > 0 {
			r.sends[i-1].Next = addr(w)
		}
	}
	return addr(&r.sends[0])
}

// receives links n receives.
func (r *rig) receives(n int) (head uint64) {
	for i := range n {
		r.recvs[i] = verbs.RecvWR{WRID: uint64(100 + i), SGList: r.sge, NumSGE: 1}
		if i > 0 {
			r.recvs[i-1].Next = addr(&r.recvs[i])
		}
	}
	return addr(&r.recvs[0])
}

// fault adds a fault that occurs once.
func (r *rig) fault(f nulldev.Fault) int {
	r.t.Helper()
	f.Count = 1
	n, err := r.null.Add(f)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) turn(t *verbs.IOBatch) {
	r.t.Helper()
	if err := r.ctx.Execute(t); err != nil {
		r.t.Fatal(err)
	}
}

// poll takes n completions and returns their wr_ids.
func (r *rig) poll(n int) (ids []uint64) {
	r.t.Helper()
	t := verbs.IOBatch{Polls: []verbs.PollGroup{{CQ: r.cq, WC: r.wc}}}
	r.turn(&t)
	if t.Polls[0].N != n {
		r.t.Errorf("polled %d completions, want %d", t.Polls[0].N, n)
	}
	for _, w := range r.wc[:t.Polls[0].N] {
		ids = append(ids, w.WRID)
	}
	return ids
}
