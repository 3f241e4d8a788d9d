package soft

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

var update = flag.Bool("update", false, "write the golden traces anew")

// recorder records the packets on the link, one line each.
type recorder struct {
	strings.Builder
	w *world
}

func (r *recorder) packet(ev fabric.Event) {
	var h wire.Header
	if _, err := wire.Parse(ev.Hdr, &h); err != nil {
		fmt.Fprintf(r, "%v %v\n", ev.Now, err)
		return
	}
	dir := "a->b"
	if ev.Src == r.w.b.gid {
		dir = "b->a"
	}
	if ev.Src == ev.Dst {
		dir = "a->a"
	}
	fmt.Fprintf(r, "%-10v %s %-28v psn %06x", ev.Now, dir, h.Opcode, uint32(h.PSN))
	if h.AckReq {
		r.WriteString(" ack-req")
	}
	if h.Opcode.Ext()&wire.ExtXRCETH != 0 {
		fmt.Fprintf(r, " to SRQ %d", h.XRCSRQ)
	}
	if h.Opcode.HasPayload() {
		fmt.Fprintf(r, " %d bytes", ev.PayloadLen)
	}
	if h.Opcode.Ext()&wire.ExtDETH != 0 {
		to := "qp b" // numbers are random
		if h.DestQP != r.w.b.qp.number {
			to = fmt.Sprintf("%06x", h.DestQP)
		}
		fmt.Fprintf(r, " to %s key %08x", to, h.QKey)
	}
	if h.Opcode.Ext()&wire.ExtRETH != 0 {
		fmt.Fprintf(r, " of %d at +%d", h.Length, h.VA-r.w.b.at(0))
	}
	if h.Opcode.Ext()&wire.ExtAETH != 0 {
		fmt.Fprintf(r, " %v msn %d", h.Syndrome, uint32(h.MSN))
	}
	if ev.Verdict != fabric.Delivered {
		fmt.Fprintf(r, "  [%v]", ev.Verdict)
	}
	if ev.Copy {
		r.WriteString("  [copy]")
	}
	r.WriteByte('\n')
}

// golden compares a trace with the stored one.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".trace")
	if *update {
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := must.Get(os.ReadFile(file))(t)
	if got != string(want) {
		t.Fatalf("got\n%swant\n%s(-update writes it anew; read the difference first)", got, want)
	}
}

// TestGoldenRecoveries: how the protocol recovers, packet by packet.
func TestGoldenRecoveries(t *testing.T) {
	drop := func(from, to uint64, ops ...wire.Opcode) fabric.Link {
		return fabric.Link{Rules: []fabric.Rule{{Opcodes: ops, From: from, To: to, Drop: true}}}
	}
	write := func(w *world, id uint64, n int) request {
		wr := w.a.send(id, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, n))
		wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		return wr
	}
	read := func(w *world, id uint64, n int) request {
		wr := w.a.send(id, verbs.WRRDMARead, verbs.SendSignaled, w.a.sge(0, n))
		wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		return wr
	}
	for _, c := range []struct {
		name   string
		ab, ba fabric.Link
		run    func(w *world)
	}{
		{"write_lossless", fabric.Link{}, fabric.Link{}, func(w *world) { w.a.mustPost(write(w, 1, 3000)) }},
		{"write_middle_lost", drop(1, 1, wire.RCWriteMiddle), fabric.Link{}, func(w *world) { w.a.mustPost(write(w, 1, 5000)) }},
		{"write_last_lost", drop(1, 1, wire.RCWriteLast), fabric.Link{}, func(w *world) { w.a.mustPost(write(w, 1, 3000)) }},
		{"ack_lost", fabric.Link{}, drop(1, 1, wire.RCAcknowledge), func(w *world) { w.a.mustPost(write(w, 1, 3000)) }},
		{"nak_lost", drop(1, 1, wire.RCWriteMiddle), drop(1, 1, wire.RCAcknowledge), func(w *world) { w.a.mustPost(write(w, 1, 3000)) }},
		{"read_response_lost", fabric.Link{}, drop(1, 1, wire.RCReadRespMiddle), func(w *world) { w.a.mustPost(read(w, 1, 5000)) }},
		{"read_last_lost_then_write", fabric.Link{}, drop(1, 1, wire.RCReadRespLast), func(w *world) { w.a.mustPost(read(w, 1, 2000), write(w, 2, 8)) }},
		{"atomic_answer_lost", fabric.Link{}, drop(1, 1, wire.RCAtomicAck), func(w *world) {
			wr := w.a.send(1, verbs.WRAtomicFetchAndAdd, verbs.SendSignaled, w.a.sge(0, 8))
			wr.SetFetchAdd(w.b.at(0), w.b.mr.RKey(), 1)
			w.a.mustPost(wr)
		}},
		{"rnr_then_receive", fabric.Link{}, fabric.Link{}, func(w *world) {
			w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 2000)), w.a.send(2, verbs.WRSend, verbs.SendSignaled))
			w.step()
			w.b.recv(1, w.b.sge(0, 4000))
			w.b.recv(2)
		}},
		{"send_duplicated", fabric.Link{Rules: []fabric.Rule{{Dup: true}}}, fabric.Link{}, func(w *world) {
			w.b.recv(1, w.b.sge(0, 4000))
			w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 2000)))
		}},
		{"access_refused", fabric.Link{}, fabric.Link{}, func(w *world) {
			bad := write(w, 2, 2000)
			bad.SetRDMA(w.b.at(0), 0)
			w.a.mustPost(write(w, 1, 8), bad, write(w, 3, 8))
		}},
		{"flush_answer_lost", fabric.Link{}, drop(1, 1, wire.RCReadRespOnly), func(w *world) {
			w.a.mustPostExtended(write(w, 1, 2000), w.a.flushWR(2, w.b.at(0), w.b.mr.RKey(), 2000, verbs.FlushGlobal, verbs.FlushRange))
		}},
		{"atomic_write_answer_lost", fabric.Link{}, drop(1, 1, wire.RCReadRespOnly), func(w *world) {
			// Executing the first again would undo the second.
			w.a.mustPostExtended(w.a.atomicWR(1, w.b.at(0), w.b.mr.RKey(), 1), w.a.atomicWR(2, w.b.at(0), w.b.mr.RKey(), 2))
		}},
		{"send_with_inv_duplicated", fabric.Link{Rules: []fabric.Rule{{Dup: true}}}, fabric.Link{}, func(w *world) {
			// Executed again it would be refused: the window is no longer bound.
			mw := w.b.newMW(verbs.MWType2)
			closing(w.t, mw)
			w.b.bound(mw, 0, 100, verbs.AccessRemoteWrite)
			w.b.recv(1, w.b.sge(0, 4000))
			wr := w.a.send(1, verbs.WRSendWithInv, verbs.SendSignaled, w.a.sge(0, 2000))
			wr.SetInvalidate(mw.RKey())
			w.a.mustPost(wr)
		}},
		{"send_with_inv_refused", fabric.Link{}, fabric.Link{}, func(w *world) {
			w.b.recv(1, w.b.sge(0, 4000))
			wr := w.a.send(1, verbs.WRSendWithInv, verbs.SendSignaled, w.a.sge(0, 8))
			wr.SetInvalidate(w.b.mr.RKey())
			w.a.mustPost(wr)
		}},
		{"fence", fabric.Link{}, fabric.Link{}, func(w *world) {
			after := write(w, 2, 8)
			after.Flags |= verbs.SendFence
			w.a.mustPost(read(w, 1, 2000), after)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{access: flushGlobal | verbs.AccessMWBind, attr: func(a *verbs.QPAttr) { a.SQPSN, a.RQPSN = 0x10, 0x10 }})
			w.fab.SetLink(w.a.gid, w.b.gid, c.ab)
			w.fab.SetLink(w.b.gid, w.a.gid, c.ba)
			r := &recorder{w: w}
			w.fab.SetTrace(r.packet, false)
			c.run(w)
			w.settle()
			for _, wc := range w.a.poll(w.a.scq) {
				fmt.Fprintf(r, "completion %d %v\n", wc.WRID, wc.Status)
			}
			for _, wc := range w.b.poll(w.b.rcq) {
				fmt.Fprintf(r, "receive %d %v %d bytes\n", wc.WRID, wc.Status, wc.ByteLen)
			}
			golden(t, c.name, r.String())
		})
	}
}

// TestGoldenUnreliable: the packets that UC and UD send, and the results when the link loses,
// duplicates and reorders them.
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
			must.Do(w.t, w.a.qp.AttachMcast(testGroup, 0))
			must.Do(w.t, w.b.qp.AttachMcast(testGroup, 0))
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
