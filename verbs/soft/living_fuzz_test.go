package soft

import (
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// forgery is bytes of fuzz input for one changed packet: which packet, and up to three changes of a field and a value.
type forgery []byte

const forgeryLen = 8

// change changes one field of a packet.
func (x *living) change(h *wire.Header, n *int, field, value byte) {
	v := uint32(value)
	switch field % 18 {
	case 1:
		h.Opcode = wire.Opcode(value)
	case 2:
		h.DestQP = x.qps[int(value)%len(x.qps)].number
	case 3:
		h.PSN = h.PSN.Add(uint32(int32(int8(value)))) // near
	case 4:
		h.PSN = h.PSN.Sub(v << 15) // far
	case 5:
		h.RKey ^= 1 << (v % 32)
	case 6:
		h.VA += uint64(int64(int8(value)) << 9)
	case 7:
		h.Length = v << (v % 24)
	case 8:
		*n = int(v) * 8
	case 9:
		h.Syndrome = wire.Syndrome(value)
	case 10:
		h.MSN = h.MSN.Add(v)
	case 11:
		h.AckReq = !h.AckReq
	case 12:
		h.PKey ^= 1 << (v % 16)
	case 13:
		h.InvKey, h.Imm = x.b.mr.RKey()^v, v
	case 14:
		h.QKey, h.SrcQP = testQKey^v>>4, x.qps[int(value)%len(x.qps)].number
	case 15:
		h.XRCSRQ = x.srqn ^ v>>4
	case 16:
		h.FlushPlacement, h.FlushSelectivity = value&15, value>>4
	case 17:
		h.SwapAdd, h.Compare, h.Orig = uint64(v), uint64(v), uint64(v)
	}
}

// throw sends a changed packet, and returns what reports afterwards whether it may have changed a connection: it must
// name the number of a reliable queue pair and, at any time from now on, an expected PSN: that of the responder, or one
// that is outstanding at the requester.
func (x *living) throw(b forgery) (named func() bool) {
	p := x.packets[len(x.packets)-1-int(b[0])%len(x.packets)]
	h, n := p.h, p.n
	if h.Opcode.Transport() == wire.TransportUD {
		h.QKey = testQKey
	}
	for i := range 3 {
		x.change(&h, &n, b[2+2*i], b[3+2*i])
	}
	d := p.from.ctx.dev
	to := x.b
	if p.from == x.b {
		to = x.a
	}
	d.exclusive(func() {
		k := d.p.Get()
		k.AddCopy(make([]byte, n))
		op := h.Opcode
		if !op.Valid() {
			h.Opcode = wire.RCSendOnly
		}
		h.MigReq, h.PadCount = true, wire.PadLen(n)
		k.SetHeader(&h)
		k.Hdr[0] = byte(op)
		d.p.Send(wire.To(to.gid), k)
	})
	q := to.ctx.dev.find(h.DestQP)
	if q == nil || !q.takes(&h) || !q.service.reliable {
		return func() bool { return false }
	}
	expected, acked := q.resp.expected, q.req.acked
	return func() bool {
		if h.Opcode.Response() {
			psn := extend(h.PSN, acked)
			return psn >= acked && psn < q.req.sent
		}
		psn := extend(h.PSN, expected)
		return psn >= expected && psn <= max(expected, q.resp.expected)
	}
}

// FuzzChangedPackets: a stranger who knows everything but an expected PSN changes nothing. Packets of living connections
// are sent again with one to three fields changed, in both directions and to queue pairs of every type. Unless one of
// them names a reliable queue pair and an expected PSN, every request executes once, with the right bytes, and completes
// once, and no byte outside the transfers is written. Whatever they name, the engine lives, everything can be closed, and
// queue pairs of unreliable services stay in RTS.
func FuzzChangedPackets(f *testing.F) {
	for op := range byte(0x20) { // each opcode to each type
		f.Add([]byte{op, 0, 1, op, 2, op, 0, 0, op, 0, 2, op, 0, 0, 0, 0})
	}
	f.Add([]byte{0, 0, 5, 3, 0, 0, 0, 0, 3, 0, 5, 4, 4, 1, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		x := newLiving(t, 2)
		x.fab.SetAll(fabric.Link{Delay: 5 * time.Microsecond})
		var done [2]uint64
		var named []func() bool
		var fail error
		note := func(err error) {
			if fail == nil {
				fail = err
			}
		}
		for i := range 6 {
			for j := range x.dirs {
				x.dirs[j].ask(byte(i+j), 700*i)
			}
			note(x.run(time.Duration(i)*3*time.Microsecond, &done))
			if len(data) >= forgeryLen && len(x.packets) > 0 {
				if data[1]&1 != 0 {
					note(x.run(time.Millisecond, &done))
				}
				named = append(named, x.throw(data[:forgeryLen]))
				data = data[forgeryLen:]
			}
		}
		note(x.run(-1, &done))
		may := false
		for _, fn := range named {
			may = may || fn()
		}
		if !may {
			for j := range x.dirs {
				x.dirs[j].ask(0, 8)
			}
			note(x.run(-1, &done))
			note(x.verdict(done))
			if fail == nil {
				fail = x.outside()
			}
			if fail != nil {
				t.Fatalf("no packet named an expected PSN, and yet: %v", fail)
			}
		}
		for _, q := range x.qps {
			if s := q.current(); s != verbs.QPSRTS && (!q.service.reliable || !may) {
				t.Fatalf("%v of type %v is in %v", q, q.kind, s)
			}
		}
		x.finish()
	})
}

// FuzzUnluckyNetwork: a network that loses, copies, delays and reorders, but changes nothing, ends no connection, while
// the owners of memory close regions and windows whose READs have completed. Every request executes once, with the right bytes.
func FuzzUnluckyNetwork(f *testing.F) {
	for i := range byte(8) {
		f.Add(uint64(i), i, i*7, i*11, []byte{4, 20, 5, 200, 0, 3, 3, 3, 4, 250, 1, 9, i, i})
	}
	f.Fuzz(func(t *testing.T, seed uint64, loss, dup, jitter byte, work []byte) {
		x := newLiving(t, seed)
		x.fab.SetAll(fabric.Link{
			Loss: float64(loss%8) / 200, Dup: float64(dup) / 400, Reorder: float64(dup%16) / 100, ReorderBy: time.Millisecond,
			Delay: time.Microsecond, Jitter: time.Duration(jitter) * 20 * time.Microsecond,
		})
		for _, d := range x.dirs { // a loss of 0.035 ends no connection by itself
			d.from.qp.attr.Timeout = 14
		}
		var done [2]uint64
		for i := 0; i+1 < len(work) && i < 56; i += 2 {
			x.dirs[i/2%2].ask(work[i], int(work[i+1])*16)
			if err := x.run(time.Duration(work[i]>>3)*20*time.Microsecond, &done); err != nil {
				t.Fatalf("after %d requests: %v", i/2+1, err)
			}
		}
		err := x.run(-1, &done)
		if err == nil {
			err = x.verdict(done)
		}
		if err == nil {
			err = x.outside()
		}
		for _, q := range x.qps {
			if s := q.current(); s != verbs.QPSRTS && err == nil {
				err = fmt.Errorf("%v is in %v", q, s)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		x.finish()
	})
}
