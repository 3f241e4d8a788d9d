//go:build linux && cgo && !portable

package ibv

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a READ fills memory that was registered with LOCAL_WRITE alone, on iWARP too. There the device wants
// REMOTE_WRITE, which RegMR adds; the device of the other transports gets what was asked for.
func TestAReadFillsMemoryWithLocalWrite(t *testing.T) {
	for _, profile := range []string{"iwarp", "mlx5"} {
		t.Run(profile, func(t *testing.T) {
			profiled(t, profile)
			r := newRig(t, Config{})
			a := must.Get(mem.Map(1<<12, mem.Options{}))(t)
			t.Cleanup(func() { _ = a.Unmap() })
			sink := must.Get(r.pd.RegMR(a.Addr(), 64, a.Addr(), verbs.AccessLocalWrite))(t)
			t.Cleanup(func() { must.Do(t, sink.Close()) })
			sge, ok := mem.Array[verbs.SGE](r.arena, r.sge, 1)
			if !ok {
				t.Fatal("no element at the place of the rig's")
			}
			sge[0] = verbs.SGE{Addr: a.Addr(), Length: 64, LKey: sink.LKey()}
			copy(r.arena.Bytes(), "what is read")
			read := &r.sends[0]
			*read = verbs.SendWR{WRID: 1, SGList: r.sge, NumSGE: 1, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled}
			read.SetRDMA(r.mr.Addr(), r.mr.RKey())
			if _, err := verbs.PostSend(r.qp, addr(read), 1); err != nil {
				t.Fatal(err)
			}
			n, err := verbs.Poll(r.cq, r.wc)
			if err != nil || n != 1 || r.wc[0].Status != verbs.WCSuccess || string(a.Bytes()[:4]) != "what" {
				t.Errorf("%d completions, error %v, the first %v, read %q; want one success and the bytes", n, err, r.wc[0].Status, a.Bytes()[:12])
			}
			write := &r.sends[0]
			*write = verbs.SendWR{WRID: 2, SGList: r.sge, NumSGE: 1, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
			write.SetRDMA(a.Addr(), sink.RKey())
			if _, err := verbs.PostSend(r.qp, addr(write), 1); err != nil {
				t.Fatal(err)
			}
			n, err = verbs.Poll(r.cq, r.wc)
			if taken := r.wc[0].Status == verbs.WCSuccess; err != nil || n == 0 || taken != (profile == "iwarp") {
				t.Errorf("a WRITE to the memory: %d completions, error %v, the first %v; want success on iWARP alone", n, err, r.wc[0].Status)
			}
		})
	}
}
