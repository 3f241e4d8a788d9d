package runtime

import (
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// Op is an operation as a value, made by the functions below, one for each that a
// connection has: for those who start it later, or whose result goes to a Sink. It
// owns nothing: slices and bytes that it was made of stay as they are until it
// is started (or Keep). The zero Op is not an operation.
type Op struct {
	kind                 startKind
	opcode               verbs.WROpcode
	one                  [1]Slice // of those that take one piece
	several              []Slice  // of those that take several
	gathers              bool     // several counts
	bytes                []byte
	remote               Remote
	imm                  uint32
	placement            verbs.FlushPlacement
	compareOrAdd, swapTo uint64
	window               *Window
	bind                 binding
}

// startKind is which method of a connection's an Op stands for.
type startKind uint8

const (
	startNone startKind = iota
	startOneSided
	startSend
	startSendBytes
	startAtomic
	startAtomicWrite
	startFlush
	startBind
	startInvalidate
	startPostRecv
)

// locals are the pieces of local memory.
func (op *Op) locals() []Slice {
	if op.gathers {
		return op.several
	}
	return op.one[:]
}

// Keep is op with a copy of its bytes and of its list of slices, if it has any: it
// may be started after their owner has changed them. The memory of slices is not
// copied.
func (op Op) Keep() Op {
	if op.bytes != nil {
		op.bytes = append(make([]byte, 0, len(op.bytes)), op.bytes...)
	}
	op.several = slices.Clone(op.several)
	return op
}

// oneSidedOp is a transfer of one piece.
func oneSidedOp(o verbs.WROpcode, local Slice, remote Remote, imm uint32) Op {
	return Op{kind: startOneSided, opcode: o, one: [1]Slice{local}, remote: remote, imm: imm}
}

// oneSidedVOp is a transfer of several.
func oneSidedVOp(o verbs.WROpcode, locals []Slice, remote Remote, imm uint32) Op {
	return Op{kind: startOneSided, opcode: o, several: locals, gathers: true, remote: remote, imm: imm}
}

// WriteOp is Conn.Write as a value.
func WriteOp(local Slice, remote Remote) Op {
	return oneSidedOp(verbs.WRRDMAWrite, local, remote, 0)
}

// WriteVOp is Conn.WriteV as a value.
func WriteVOp(locals []Slice, remote Remote) Op {
	return oneSidedVOp(verbs.WRRDMAWrite, locals, remote, 0)
}

// WriteImmOp is Conn.WriteImm as a value.
func WriteImmOp(local Slice, remote Remote, imm uint32) Op {
	return oneSidedOp(verbs.WRRDMAWriteWithImm, local, remote, imm)
}

// WriteImmVOp is Conn.WriteImmV as a value.
func WriteImmVOp(locals []Slice, remote Remote, imm uint32) Op {
	return oneSidedVOp(verbs.WRRDMAWriteWithImm, locals, remote, imm)
}

// ReadOp is Conn.Read as a value.
func ReadOp(local Slice, remote Remote) Op { return oneSidedOp(verbs.WRRDMARead, local, remote, 0) }

// ReadVOp is Conn.ReadV as a value.
func ReadVOp(locals []Slice, remote Remote) Op {
	return oneSidedVOp(verbs.WRRDMARead, locals, remote, 0)
}

// SendOp is Conn.Send as a value.
func SendOp(local Slice) Op {
	return Op{kind: startSend, opcode: verbs.WRSend, one: [1]Slice{local}}
}

// SendVOp is Conn.SendV as a value.
func SendVOp(locals []Slice) Op {
	return Op{kind: startSend, opcode: verbs.WRSend, several: locals, gathers: true}
}

// SendInvalidateOp is Conn.SendInvalidate as a value.
func SendInvalidateOp(local Slice, remote Remote) Op {
	return Op{kind: startSend, opcode: verbs.WRSendWithInv, one: [1]Slice{local}, remote: remote}
}

// SendBytesOp is Conn.SendBytes as a value. p is copied when the operation is
// started.
func SendBytesOp(p []byte) Op { return Op{kind: startSendBytes, bytes: p} }

// CompareAndSwapOp is Conn.CompareAndSwap as a value.
func CompareAndSwapOp(remote Remote, compare, swap uint64) Op {
	return Op{kind: startAtomic, opcode: verbs.WRAtomicCmpAndSwp, remote: remote, compareOrAdd: compare, swapTo: swap}
}

// FetchAndAddOp is Conn.FetchAndAdd as a value.
func FetchAndAddOp(remote Remote, add uint64) Op {
	return Op{kind: startAtomic, opcode: verbs.WRAtomicFetchAndAdd, remote: remote, compareOrAdd: add}
}

// AtomicWriteOp is Conn.AtomicWrite as a value.
func AtomicWriteOp(remote Remote, value uint64) Op {
	return Op{kind: startAtomicWrite, remote: remote, swapTo: value}
}

// FlushOp is Conn.Flush as a value.
func FlushOp(remote Remote, p verbs.FlushPlacement) Op {
	return Op{kind: startFlush, remote: remote, placement: p}
}

// BindOp is Window.Bind as a value, for the window's connection. The descriptor is
// Window.Remote when the operation has succeeded.
func BindOp(w *Window, r *Region, off, n int, access verbs.AccessFlags) Op {
	return Op{kind: startBind, window: w, bind: binding{r, off, n, access}}
}

// InvalidateOp is Window.Invalidate as a value, for the window's connection.
func InvalidateOp(w *Window) Op { return Op{kind: startInvalidate, window: w} }

// PostRecvOp is Conn.PostRecv as a value.
func PostRecvOp(locals ...Slice) Op {
	if len(locals) == 1 {
		return Op{kind: startPostRecv, one: [1]Slice{locals[0]}}
	}
	return Op{kind: startPostRecv, several: locals, gathers: true}
}
