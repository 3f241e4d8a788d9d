package rpma

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: each operation moves the bytes that it names, and no others, and its completion has its word, its kind
// and, at the receiving end, the length and the number.
func TestOperationsMoveTheirBytes(t *testing.T) {
	const near, far, n, imm = 8, 24, 5, 0x01020304 // offsets at the starting end and at the other, the length, the number
	const word, other = 1<<40 | 7, 1<<41 | 9
	sent := func(op verbs.WCOpcode) WC { return WC{Context: word, Opcode: op} }
	got := func(op verbs.WCOpcode, imm uint32) *WC {
		wc := WC{Context: other, Opcode: op, Bytes: n, Imm: imm}
		if imm != 0 {
			wc.Flags = verbs.WCWithImm
		}
		return &wc
	}
	onBeds(t, func(t *testing.T, r *rig) {
		c, s := r.connect(nil, &ConnConfig{RCQSize: 4})
		const all = ReadSrc | ReadDst | WriteSrc | WriteDst | SendBuf | RecvBuf
		mine, theirs := r.mr(0, 64, all), r.mr(1, 64, all)
		remote := r.remote(theirs)
		for _, x := range []struct {
			name     string
			start    func() error
			into     *MR // the memory that the operation changes
			at       int
			done     WC  // the completion at the starting end
			received *WC // that of a receive; nil: none
		}{
			{"read", func() error { return c.Read(mine, near, remote, far, n, CompletionAlways, word) }, mine, near, sent(verbs.WCRDMARead), nil},
			{"write", func() error { return c.Write(remote, far, mine, near, n, CompletionAlways, word) }, theirs, far, sent(verbs.WCRDMAWrite), nil},
			{"write with imm", func() error { return c.WriteWithImm(remote, far, mine, near, n, CompletionAlways, imm, word) }, theirs, far, sent(verbs.WCRDMAWrite), got(verbs.WCRecvRDMAWithImm, imm)},
			{"send", func() error { return c.Send(mine, near, n, CompletionAlways, word) }, theirs, far, sent(verbs.WCSend), got(verbs.WCRecv, 0)},
			{"send with imm", func() error { return c.SendWithImm(mine, near, n, CompletionAlways, imm, word) }, theirs, far, sent(verbs.WCSend), got(verbs.WCRecv, imm)},
		} {
			t.Run(x.name, func(t *testing.T) {
				for i := range 64 {
					mine.Bytes()[i], theirs.Bytes()[i] = byte(i), byte(100+i)
				}
				want, from := bytes.Clone(x.into.Bytes()), mine.Bytes()[near:near+n]
				if x.into == mine {
					from = theirs.Bytes()[far : far+n]
				}
				copy(want[x.at:], bytes.Clone(from))
				if x.received != nil {
					must.Do(t, s.Recv(theirs, far, 16, other))
				}
				must.Do(t, x.start())
				wc := r.next(c.CQ())
				x.done.QPNum, x.done.Bytes, x.done.Flags, x.done.Imm = c.QPNum(), wc.Bytes, wc.Flags, wc.Imm // values of receives
				if wc != x.done {
					t.Errorf("the completion is %+v, want %+v", wc, x.done)
				}
				if x.received != nil {
					x.received.QPNum = s.QPNum()
					wc = r.next(s.RCQ())
					wc.Flags &^= verbs.WCWithGRH // Soft-RoCE sets it on RC too
					if wc != *x.received {
						t.Errorf("the completion of the receive is %+v, want %+v", wc, *x.received)
					}
				}
				if !bytes.Equal(x.into.Bytes(), want) {
					t.Errorf("the memory has %v, want %v", x.into.Bytes(), want)
				}
			})
		}
		r.none(s.CQ(), "the main CQ beside a receive CQ")
	})
}
