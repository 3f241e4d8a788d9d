package soft

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// TestGoldenUnreliable: what UC and UD send, packet by packet, and what comes
// of it when the link loses, doubles and overtakes.
func TestGoldenUnreliable(t *testing.T) {
	rule := func(r fabric.Rule) fabric.Link { return fabric.Link{Rules: []fabric.Rule{r}} }
	three := func(op verbs.WROpcode) func(w *world) {
		return func(w *world) {
			var wrs []request
			for i := range uint64(3) {
				w.b.recv(i, w.b.sge(0, 5000))
				wrs = append(wrs, w.a.write(i, op, w.b, 0, 3000))
			}
			w.a.mustPost(wrs...)
		}
	}
	datagrams := func(w *world, to verbs.GID, qpn uint32) {
		ah := w.a.handle(to)
		for i := range uint64(3) {
			wr := w.a.datagram(i, ah, qpn, verbs.SendSignaled|verbs.SendSolicited, w.a.sge(0, int(10*i)))
			wr.Opcode = verbs.WRSendWithImm
			w.a.mustPost(wr)
		}
	}
	for _, c := range []struct {
		name string
		kind verbs.QPType
		ab   fabric.Link
		run  func(w *world)
	}{
		{"uc_send", verbs.QPTUC, fabric.Link{}, three(verbs.WRSend)},
		{"uc_write_with_imm", verbs.QPTUC, fabric.Link{}, three(verbs.WRRDMAWriteWithImm)},
		{"uc_first_lost", verbs.QPTUC, rule(fabric.Rule{Opcodes: []wire.Opcode{wire.UCSendFirst}, To: 1, Drop: true}), three(verbs.WRSend)},
		{"uc_last_lost", verbs.QPTUC, rule(fabric.Rule{Opcodes: []wire.Opcode{wire.UCSendLast}, To: 1, Drop: true}), three(verbs.WRSend)},
		{"uc_middle_late", verbs.QPTUC, rule(fabric.Rule{Opcodes: []wire.Opcode{wire.UCWriteMiddle}, To: 1, Delay: 5}), three(verbs.WRRDMAWriteWithImm)},
		{"ud_send", verbs.QPTUD, rule(fabric.Rule{From: 2, To: 2, Drop: true}), func(w *world) {
			w.b.recv(1, w.b.sge(0, 100))
			w.b.recv(2, w.b.sge(0, 100))
			datagrams(w, w.b.gid, w.b.qp.Num())
		}},
		{"ud_multicast", verbs.QPTUD, rule(fabric.Rule{From: 2, To: 2, Dup: true}), func(w *world) {
			must(w.t, w.a.qp.AttachMcast(testGroup, 0))
			must(w.t, w.b.qp.AttachMcast(testGroup, 0))
			for i := range uint64(4) {
				w.b.recv(i, w.b.sge(0, 100))
			}
			w.a.recv(1, w.a.sge(1000, 100))
			datagrams(w, testGroup, verbs.McastQPN)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{kind: c.kind, attr: func(a *verbs.QPAttr) { a.SQPSN, a.RQPSN, a.QKey = 0x10, 0x10, testQKey }})
			w.fab.SetLink(w.a.gid, w.b.gid, c.ab)
			r := &recorder{w: w}
			w.fab.SetTrace(r.packet, false)
			c.run(w)
			w.settle()
			for _, wc := range w.a.poll(w.a.scq) {
				fmt.Fprintf(r, "completion %d %v\n", wc.WRID, wc.Status)
			}
			for _, wc := range append(w.a.poll(w.a.rcq), w.b.poll(w.b.rcq)...) {
				fmt.Fprintf(r, "receive %d %v %d bytes imm %d %v\n", wc.WRID, wc.Status, wc.ByteLen, wc.Imm(), wc.Flags)
			}
			golden(t, c.name, r.String())
		})
	}
}
