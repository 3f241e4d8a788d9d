package runtime

import (
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// Op is an operation of a connection as a value, made by the functions below and started by
// the methods that the package's documentation has in a table (Starting operations). It owns
// nothing: slices and bytes that it was made of stay as they are until it is started (or
// Keep). It may be started any number of times. The zero Op is not an operation.
type Op struct {
	kind                 startKind
	opcode               verbs.WROpcode
	flags                verbs.SendFlags // FENCE and SOLICITED
	imm                  uint32
	one                  [1]Slice // of those that take one piece
	several              []Slice  // of those that take several, instead; nil: one
	bytes                []byte
	remote               Remote
	placement            verbs.FlushPlacement
	compareOrAdd, swapTo uint64
	window               *Window
	bind                 binding
}

// startKind is which function of Conn starts an Op.
type startKind uint8

const (
	startNone startKind = iota
	startTransfer
	startSend
	startSendBytes
	startAtomic
	startAtomicWrite
	startFlush
	startBind
	startInvalidate
	startPostRecv
	startRefused // a modifier does not fit: bytes says why
)

// over is op of the pieces locals.
func (op Op) over(locals []Slice) Op {
	if len(locals) == 1 {
		op.one[0] = locals[0]
	} else {
		op.several = locals
	}
	return op
}

// locals are the pieces of local memory.
func (op *Op) locals() []Slice {
	if op.several != nil {
		return op.several
	}
	return op.one[:]
}

// Keep is op with a copy of its bytes and of its list of slices, if it has any: it
// may be started after their owner has changed them. The memory of slices is not
// copied.
func (op Op) Keep() Op {
	op.bytes, op.several = slices.Clone(op.bytes), slices.Clone(op.several)
	return op
}

// Imm is op with immediate data, in host order, which the peer receives with the message: of a
// SEND, or of a WRITE, which then also takes one of the peer's receives, after the data has
// arrived, and on a managed connection waits for a credit. Other operations carry none: they
// fail to start, with ErrInvalid.
//
// Implements: SEND_WITH_IMM, RDMA_WRITE_WITH_IMM.
func (op Op) Imm(imm uint32) Op {
	switch {
	case op.kind == startTransfer && op.opcode != verbs.WRRDMARead:
		op.opcode = verbs.WRRDMAWriteWithImm
	case op.kind == startSend && op.opcode != verbs.WRSendWithInv, op.kind == startSendBytes:
		op.opcode = verbs.WRSendWithImm
	default:
		return op.refused("carries no immediate data")
	}
	op.imm = imm
	return op
}

// Fence is op that begins when the READs and atomics that were started on the connection
// before it have ended. Not for receives. (Inline data is read when the operation is started,
// all the same.)
//
// Implements: IBV_SEND_FENCE.
func (op Op) Fence() Op {
	if op.kind == startPostRecv {
		return op.refused("cannot be fenced")
	}
	op.flags |= verbs.SendFence
	return op
}

// Solicited is op whose message raises a solicited event at the peer: it wakes one that arms
// its completion queue for those only, as programs in C may. (A runtime is always woken.) For
// SENDs, and WRITEs with immediate data, whichever of the two modifiers comes first.
//
// Implements: IBV_SEND_SOLICITED.
func (op Op) Solicited() Op {
	if op.kind != startSend && op.kind != startSendBytes && (op.kind != startTransfer || op.opcode == verbs.WRRDMARead) {
		return op.refused("raises no solicited event")
	}
	op.flags |= verbs.SendSolicited
	return op
}

// refused is an Op that fails to start.
func (op Op) refused(why string) Op {
	switch op.kind {
	case startNone, startRefused:
		return op
	case startPostRecv:
		return Op{kind: startRefused, bytes: []byte("a receive " + why)}
	}
	return Op{kind: startRefused, bytes: fmt.Appendf(nil, "%v %s", op.opcode, why)}
}

// errNoOp is why the zero Op, or one whose modifiers do not fit, is not started.
func (op *Op) errNoOp() error {
	if op.kind == startRefused {
		return fmt.Errorf("%w: %s", ErrInvalid, op.bytes)
	}
	return fmt.Errorf("%w: the zero Op", ErrInvalid)
}

// WriteOp copies local into remote memory.
//
// Implements: ibv_post_send, RDMA_WRITE.
func WriteOp(local Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMAWrite, one: [1]Slice{local}, remote: remote}
}

// WriteVOp gathers locals, in order, into remote memory; at most Options.MaxSGE of them.
func WriteVOp(locals []Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMAWrite, remote: remote}.over(locals)
}

// ReadOp copies remote memory into local.
//
// Implements: ibv_post_send, RDMA_READ.
func ReadOp(local Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMARead, one: [1]Slice{local}, remote: remote}
}

// ReadVOp scatters remote memory over locals, in order; at most Options.MaxSGE of them.
func ReadVOp(locals []Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMARead, remote: remote}.over(locals)
}

// SendOp sends local as one message: see [Conn.Send].
//
// Implements: ibv_post_send, SEND.
func SendOp(local Slice) Op {
	return Op{kind: startSend, opcode: verbs.WRSend, one: [1]Slice{local}}
}

// SendVOp gathers locals, in order, into one message; at most Options.MaxSGE of them.
func SendVOp(locals []Slice) Op {
	return Op{kind: startSend, opcode: verbs.WRSend}.over(locals)
}

// SendBytesOp sends a copy of p, which is made when the operation is started: see
// [Conn.SendBytes].
func SendBytesOp(p []byte) Op { return Op{kind: startSendBytes, opcode: verbs.WRSend, bytes: p} }

// SendInvalidateOp is SendOp that also takes remote, a window that the peer has
// opened, away at the peer: it is shut when the message arrives, and the message
// says so.
//
// Implements: ibv_post_send, SEND_WITH_INV.
func SendInvalidateOp(local Slice, remote Remote) Op {
	return Op{kind: startSend, opcode: verbs.WRSendWithInv, one: [1]Slice{local}, remote: remote}
}

// CompareAndSwapOp replaces the 8 bytes at the beginning of remote by swap if they
// are compare, as a native-endian word at an address that is a multiple of 8.
// Result.Value is what they were before. It is atomic against other operations
// of the same device.
//
// Implements: ibv_post_send, ATOMIC_CMP_AND_SWP.
func CompareAndSwapOp(remote Remote, compare, swap uint64) Op {
	return Op{kind: startAtomic, opcode: verbs.WRAtomicCmpAndSwp, remote: remote, compareOrAdd: compare, swapTo: swap}
}

// FetchAndAddOp adds to the 8 bytes at the beginning of remote; otherwise as
// CompareAndSwapOp.
//
// Implements: ibv_post_send, ATOMIC_FETCH_AND_ADD.
func FetchAndAddOp(remote Remote, add uint64) Op {
	return Op{kind: startAtomic, opcode: verbs.WRAtomicFetchAndAdd, remote: remote, compareOrAdd: add}
}

// AtomicWriteOp stores the 8 bytes at the beginning of remote, as a native-endian
// word at an address that is a multiple of 8; nobody ever sees a part of it. It is
// what publishes data that was written, and flushed, before it. ErrNotSupported where
// the device cannot.
//
// Implements: ibv_wr_atomic_write.
func AtomicWriteOp(remote Remote, value uint64) Op {
	return Op{kind: startAtomicWrite, opcode: verbs.WRAtomicWrite, remote: remote, swapTo: value}
}

// FlushOp makes what this connection wrote to remote before visible to every
// agent of the peer's host (verbs.FlushGlobal), or persistent there
// (verbs.FlushPersistent), or both: a WRITE tells only that the peer's device has taken the
// data. The peer's region must have been registered with AccessFlushGlobal or
// AccessFlushPersistent. ErrNotSupported where the device cannot.
//
// Implements: ibv_wr_flush, selectivity range.
func FlushOp(remote Remote, p verbs.FlushPlacement) Op {
	return Op{kind: startFlush, opcode: verbs.WRFlush, remote: remote, placement: p}
}

// BindOp is Window.Bind as a value, for the window's connection. The descriptor is
// Window.Remote when the operation has succeeded.
func BindOp(w *Window, r *Region, off, n int, access verbs.AccessFlags) Op {
	return Op{kind: startBind, opcode: verbs.WRBindMW, window: w, bind: binding{r, off, n, access}}
}

// InvalidateOp is Window.Invalidate as a value, for the window's connection.
func InvalidateOp(w *Window) Op {
	return Op{kind: startInvalidate, opcode: verbs.WRLocalInv, window: w}
}

// PostRecvOp is Conn.PostRecv as a value.
func PostRecvOp(local Slice) Op { return Op{kind: startPostRecv, one: [1]Slice{local}} }

// PostRecvVOp scatters the message over locals, in order; at most Options.MaxSGE of them.
func PostRecvVOp(locals []Slice) Op { return Op{kind: startPostRecv}.over(locals) }
