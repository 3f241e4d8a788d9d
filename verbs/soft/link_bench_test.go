package soft_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// linkEnd is one end of a connection between devices of two processes.
type linkEnd struct {
	qp   verbs.QP
	ctx  verbs.Context
	mr   verbs.MR
	wr   *verbs.SendWR
	at   uint64 // of wr
	look verbs.IOBatch
}

func newLinkEnd(b *testing.B, name, addr string, size int) *linkEnd {
	const records = 2048
	ctx := openPeer(b, name, addr, verbs.MTU4096).ctx
	close := func(o verbs.Object) { b.Cleanup(func() { must.Do(b, o.Close()) }) }
	pd := must.Get(ctx.AllocPD())(b)
	close(pd)
	cq := must.Get(ctx.CreateCQ(16, nil, 0, 0))(b)
	close(cq)
	m := must.Get(verbs.AllocMemory(records + size))(b)
	close(m)
	mr := must.Get(pd.RegMR(m.Addr(), uint64(records+size), m.Addr(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(b)
	close(mr)
	qp := must.Get(pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 2, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(b)
	close(qp)
	sges, sgesAt := verbs.Records[verbs.SGE](m, 0, 1)
	sges[0] = verbs.SGE{Addr: mr.Addr() + records, Length: uint32(size), LKey: mr.LKey()}
	wrs, wrsAt := verbs.Records[verbs.SendWR](m, 256, 1)
	wrs[0] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: sgesAt, NumSGE: 1, Flags: verbs.SendSignaled}
	wcs, _ := verbs.Records[verbs.WC](m, 512, 4)
	return &linkEnd{qp, ctx, mr, &wrs[0], wrsAt, verbs.IOBatch{Polls: []verbs.PollGroup{{CQ: cq, WC: wcs}}}}
}

// poll returns the number of completions.
func (e *linkEnd) poll(b *testing.B) int {
	err := e.ctx.Execute(&e.look)
	p := &e.look.Polls[0]
	for i := range p.N {
		if err == nil {
			err = p.WC[i].Err()
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	return p.N
}

// BenchmarkLink is an 8-byte WRITE between devices of two processes, on one goroutine: what both ends and
// the system take, without any waiting.
func BenchmarkLink(b *testing.B) {
	if !udp.ReportsTo {
		b.Skip("the portable socket does not choose its source: two devices of one machine would have one address")
	}
	ends := [2]*linkEnd{newLinkEnd(b, "left", "127.0.0.1", 8), newLinkEnd(b, "right", "127.0.0.2", 8)}
	var path [2]bootstrap.Path
	var at [2]bootstrap.Dest
	for i, e := range ends {
		var err error
		path[i], at[i], err = bootstrap.Path{}.On(e.ctx)
		must.Do(b, err)
		at[i].QPN, at[i].PSN = e.qp.Num(), bootstrap.RandomPSN()
		must.Do(b, path[i].Init(e.qp))
	}
	for i, e := range ends {
		must.Do(b, path[i].Connect(e.qp, at[i].PSN, at[1-i]))
		other := ends[1-i].mr
		e.wr.SetRDMA(other.Addr()+2048, other.RKey())
	}
	from, to := ends[0], ends[1]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verbs.PostSend(from.qp, from.at, 1); err != nil {
			b.Fatal(err)
		}
		for from.poll(b) == 0 {
			to.poll(b)
		}
	}
}
