package verbs

import (
	"encoding/binary"
	"testing"
	"unsafe"
)

// field is one member as libibverbs/verbs.h lays it out on 64-bit.
type field struct {
	name      string
	off, size int
	set       func(v uint64)
}

// checkLayout writes a pattern through each member and checks that exactly the expected bytes of
// the record change.
func checkLayout[T any](t *testing.T, rec *T, size int, fields []field) {
	t.Helper()
	b := unsafe.Slice((*byte)(unsafe.Pointer(rec)), unsafe.Sizeof(*rec))
	if len(b) != size {
		t.Fatalf("%T has %d bytes, C has %d", *rec, len(b), size)
	}
	for _, f := range fields {
		clear(b)
		f.set(0x1122334455667788)
		var want [8]byte
		switch f.size {
		case 1:
			want[0] = 0x88
		case 2:
			binary.NativeEndian.PutUint16(want[:], 0x7788)
		case 4:
			binary.NativeEndian.PutUint32(want[:], 0x55667788)
		case 8:
			binary.NativeEndian.PutUint64(want[:], 0x1122334455667788)
		}
		for i, c := range b {
			w := byte(0)
			if i >= f.off && i < f.off+f.size {
				w = want[i-f.off]
			}
			if c != w {
				t.Errorf("%T.%s: byte %d is %#x, want %#x", *rec, f.name, i, c, w)
			}
		}
	}
}

func TestSGELayout(t *testing.T) {
	var s SGE
	checkLayout(t, &s, 16, []field{
		{"addr", 0, 8, func(v uint64) { s.Addr = v }},
		{"length", 8, 4, func(v uint64) { s.Length = uint32(v) }},
		{"lkey", 12, 4, func(v uint64) { s.LKey = uint32(v) }},
	})
}

func TestSendWRLayout(t *testing.T) {
	var w SendWR
	checkLayout(t, &w, 128, []field{
		{"wr_id", 0, 8, func(v uint64) { w.WRID = v }},
		{"next", 8, 8, func(v uint64) { w.Next = v }},
		{"sg_list", 16, 8, func(v uint64) { w.SGList = v }},
		{"num_sge", 24, 4, func(v uint64) { w.NumSGE = uint32(v) }},
		{"opcode", 28, 4, func(v uint64) { w.Opcode = WROpcode(v) }},
		{"send_flags", 32, 4, func(v uint64) { w.Flags = SendFlags(v) }},
		{"imm_data", 36, 4, func(v uint64) { w.ImmData = uint32(v) }},
		{"wr.rdma.remote_addr", 40, 8, func(v uint64) { w.SetRDMA(v, 0) }},
		{"wr.rdma.rkey", 48, 4, func(v uint64) { w.SetRDMA(0, uint32(v)) }},
		{"wr.atomic.remote_addr", 40, 8, func(v uint64) { w.SetCompareSwap(v, 0, 0, 0) }},
		{"wr.atomic.compare_add", 48, 8, func(v uint64) { w.SetCompareSwap(0, 0, v, 0) }},
		{"wr.atomic.compare_add", 48, 8, func(v uint64) { w.SetFetchAdd(0, 0, v) }},
		{"wr.atomic.swap", 56, 8, func(v uint64) { w.SetCompareSwap(0, 0, 0, v) }},
		{"wr.atomic.rkey", 64, 4, func(v uint64) { w.SetCompareSwap(0, uint32(v), 0, 0) }},
		{"wr.atomic.rkey", 64, 4, func(v uint64) { w.SetFetchAdd(0, uint32(v), 0) }},
		{"wr.ud.ah", 40, 8, func(v uint64) { w.SetUD(v, 0, 0) }},
		{"wr.ud.remote_qpn", 48, 4, func(v uint64) { w.SetUD(0, uint32(v), 0) }},
		{"wr.ud.remote_qkey", 52, 4, func(v uint64) { w.SetUD(0, 0, uint32(v)) }},
		{"qp_type.xrc.remote_srqn", 72, 4, func(v uint64) { w.RemoteSRQN = uint32(v) }},
		{"bind_mw.mw", 80, 8, func(v uint64) { w.MW = v }},
		{"bind_mw.rkey", 88, 4, func(v uint64) { w.MWRKey = uint32(v) }},
		{"bind_mw.bind_info.mr", 96, 8, func(v uint64) { w.BindMR = v }},
		{"bind_mw.bind_info.addr", 104, 8, func(v uint64) { w.BindAddr = v }},
		{"bind_mw.bind_info.length", 112, 8, func(v uint64) { w.BindLength = v }},
		{"bind_mw.bind_info.mw_access_flags", 120, 4, func(v uint64) { w.BindAccess = AccessFlags(v) }},
	})
}

func TestRecvWRLayout(t *testing.T) {
	var w RecvWR
	checkLayout(t, &w, 32, []field{
		{"wr_id", 0, 8, func(v uint64) { w.WRID = v }},
		{"next", 8, 8, func(v uint64) { w.Next = v }},
		{"sg_list", 16, 8, func(v uint64) { w.SGList = v }},
		{"num_sge", 24, 4, func(v uint64) { w.NumSGE = uint32(v) }},
	})
}

func TestWCLayout(t *testing.T) {
	var w WC
	checkLayout(t, &w, 48, []field{
		{"wr_id", 0, 8, func(v uint64) { w.WRID = v }},
		{"status", 8, 4, func(v uint64) { w.Status = WCStatus(v) }},
		{"opcode", 12, 4, func(v uint64) { w.Opcode = WCOpcode(v) }},
		{"vendor_err", 16, 4, func(v uint64) { w.VendorErr = uint32(v) }},
		{"byte_len", 20, 4, func(v uint64) { w.ByteLen = uint32(v) }},
		{"imm_data", 24, 4, func(v uint64) { w.ImmData = uint32(v) }},
		{"qp_num", 28, 4, func(v uint64) { w.QPNum = uint32(v) }},
		{"src_qp", 32, 4, func(v uint64) { w.SrcQP = uint32(v) }},
		{"wc_flags", 36, 4, func(v uint64) { w.Flags = WCFlags(v) }},
		{"pkey_index", 40, 2, func(v uint64) { w.PKeyIndex = uint16(v) }},
		{"slid", 42, 2, func(v uint64) { w.SLID = uint16(v) }},
		{"sl", 44, 1, func(v uint64) { w.SL = uint8(v) }},
		{"dlid_path_bits", 45, 1, func(v uint64) { w.DLIDPathBits = uint8(v) }},
	})
}

// Immediate data is host order at the API and big-endian in memory.
func TestImmIsBigEndianInMemory(t *testing.T) {
	var w SendWR
	w.SetImm(0x01020304)
	if got := *(*[4]byte)(unsafe.Pointer(&w.ImmData)); got != [4]byte{1, 2, 3, 4} {
		t.Errorf("the bytes of 0x01020304 are % x", got)
	}
	wc := WC{ImmData: w.ImmData}
	if w.Imm() != 0x01020304 || wc.Imm() != 0x01020304 {
		t.Errorf("read back %#x and %#x", w.Imm(), wc.Imm())
	}
}

// What the setters pack, the getters read.
func TestUnionRoundTrip(t *testing.T) {
	var w SendWR
	w.SetRDMA(5, 0xaabbccdd)
	if w.RDMARKey() != 0xaabbccdd {
		t.Errorf("RDMA rkey %#x", w.RDMARKey())
	}
	w.SetAtomicWrite(8, 0x11223344, 9)
	if w.AtomicRKey() != 0x11223344 || w.W1 != 9 || w.RemoteAddr != 8 {
		t.Errorf("atomic write %+v", w)
	}
	w.SetFlush(16, 0x55667788, 4096, FlushGlobal|FlushPersistent, FlushMR)
	if w.AtomicRKey() != 0x55667788 || w.W1 != 4096 || w.W2 != 3|1<<8 {
		t.Errorf("flush %+v", w)
	}
	w.SetUD(1, 2, 3)
	if ah, qpn, qkey := w.UD(); ah != 1 || qpn != 2 || qkey != 3 {
		t.Errorf("UD %d %d %d", ah, qpn, qkey)
	}
}
