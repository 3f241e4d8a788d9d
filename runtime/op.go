package runtime

import (
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// Op describes an operation of a connection. The functions below make it; the methods
// listed in the package documentation (Starting operations) start it. It owns nothing:
// the slices and bytes that it refers to must not change until it is started, unless
// Keep copied them. It may be started any number of times. The zero Op is not an operation.
type Op struct {
	kind                 startKind
	opcode               verbs.WROpcode
	flags                verbs.SendFlags // FENCE and SOLICITED
	imm                  uint32
	one                  [1]Slice // the piece of an operation on one piece
	several              []Slice  // the pieces of an operation on several; nil: one
	bytes                []byte
	remote               Remote
	placement            verbs.FlushPlacement
	compareOrAdd, swapTo uint64
	window               *Window
	bind                 binding
}

// startKind selects the method of Conn that starts an Op.
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
	startRefused // a modifier does not fit; bytes holds the reason
)

// over returns op with the pieces locals.
func (op Op) over(locals []Slice) Op {
	if len(locals) == 1 {
		op.one[0] = locals[0]
	} else {
		op.several = locals
	}
	return op
}

// locals returns the pieces of local memory.
func (op *Op) locals() []Slice {
	if op.several != nil {
		return op.several
	}
	return op.one[:]
}

// Keep returns op with copies of its bytes and of its list of slices, so the caller may
// change the originals before op is started. The memory of the slices is not copied.
func (op Op) Keep() Op {
	op.bytes, op.several = slices.Clone(op.bytes), slices.Clone(op.several)
	return op
}

// Imm returns op with immediate data, in host order, which the peer receives with the
// message. It applies to WRITEs, and to SENDs other than SendInvalidateOp. A WRITE with
// immediate data consumes one of the peer's receives after the data has arrived, and on a
// managed connection waits for a credit. Any other Op with Imm fails to start: ErrInvalid.
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

// Fence returns op with the fence flag: the operation begins when the READs and
// atomics started earlier on the connection have ended. It does not apply to receives.
// (Inline data does not wait for the fence: it is read when the request is posted.)
//
// Implements: IBV_SEND_FENCE.
func (op Op) Fence() Op {
	if op.kind == startPostRecv {
		return op.refused("cannot be fenced")
	}
	op.flags |= verbs.SendFence
	return op
}

// Solicited returns op with the solicited flag: its message raises a solicited
// event, which wakes a peer that arms its completion queue for these events
// only, as C programs may. (A runtime is always woken.) It applies to SENDs, and
// to WRITEs with immediate data, before or after Imm.
//
// Implements: IBV_SEND_SOLICITED.
func (op Op) Solicited() Op {
	if op.kind != startSend && op.kind != startSendBytes && (op.kind != startTransfer || op.opcode == verbs.WRRDMARead) {
		return op.refused("raises no solicited event")
	}
	op.flags |= verbs.SendSolicited
	return op
}

// refused returns an Op that fails to start with the reason why.
func (op Op) refused(why string) Op {
	switch op.kind {
	case startNone, startRefused:
		return op
	case startPostRecv:
		return Op{kind: startRefused, bytes: []byte("a receive " + why)}
	}
	return Op{kind: startRefused, bytes: fmt.Appendf(nil, "%v %s", op.opcode, why)}
}

// errNoOp returns the error of starting the zero Op, or an Op with an unsuitable modifier.
func (op *Op) errNoOp() error {
	if op.kind == startRefused {
		return fmt.Errorf("%w: %s", ErrInvalid, op.bytes)
	}
	return fmt.Errorf("%w: the zero Op", ErrInvalid)
}

// WriteOp returns a WRITE that copies local into remote memory.
//
// Implements: ibv_post_send, RDMA_WRITE.
func WriteOp(local Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMAWrite, one: [1]Slice{local}, remote: remote}
}

// WriteVOp returns a WRITE that gathers locals, in order, into remote
// memory; at most Options.MaxSGE of them.
func WriteVOp(locals []Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMAWrite, remote: remote}.over(locals)
}

// ReadOp returns a READ that copies remote memory into local.
//
// Implements: ibv_post_send, RDMA_READ.
func ReadOp(local Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMARead, one: [1]Slice{local}, remote: remote}
}

// ReadVOp returns a READ that scatters remote memory over locals, in
// order; at most Options.MaxSGE of them.
func ReadVOp(locals []Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMARead, remote: remote}.over(locals)
}

// SendOp returns a SEND of local as one message: see [Conn.Send].
//
// Implements: ibv_post_send, SEND.
func SendOp(local Slice) Op {
	return Op{kind: startSend, opcode: verbs.WRSend, one: [1]Slice{local}}
}

// SendVOp returns a SEND that gathers locals, in order, into one
// message; at most Options.MaxSGE of them.
func SendVOp(locals []Slice) Op {
	return Op{kind: startSend, opcode: verbs.WRSend}.over(locals)
}

// SendBytesOp returns a SEND of a copy of p, which is made when the
// operation is started: see [Conn.SendBytes].
func SendBytesOp(p []byte) Op { return Op{kind: startSendBytes, opcode: verbs.WRSend, bytes: p} }

// SendInvalidateOp is SendOp that also invalidates remote, a window opened by the peer:
// the window is unbound when the message arrives, and the message carries its key.
//
// Implements: ibv_post_send, SEND_WITH_INV.
func SendInvalidateOp(local Slice, remote Remote) Op {
	return Op{kind: startSend, opcode: verbs.WRSendWithInv, one: [1]Slice{local}, remote: remote}
}

// CompareAndSwapOp returns an atomic that replaces the 8 bytes at the
// beginning of remote by swap if they equal compare. They are a native-endian
// word, and its address must be a multiple of 8. Result.Value is the previous
// value. It is atomic with respect to other operations of the same device.
//
// Implements: ibv_post_send, ATOMIC_CMP_AND_SWP.
func CompareAndSwapOp(remote Remote, compare, swap uint64) Op {
	return Op{kind: startAtomic, opcode: verbs.WRAtomicCmpAndSwp, remote: remote, compareOrAdd: compare, swapTo: swap}
}

// FetchAndAddOp returns an atomic that increases the 8 bytes at the
// beginning of remote by add; otherwise as CompareAndSwapOp.
//
// Implements: ibv_post_send, ATOMIC_FETCH_AND_ADD.
func FetchAndAddOp(remote Remote, add uint64) Op {
	return Op{kind: startAtomic, opcode: verbs.WRAtomicFetchAndAdd, remote: remote, compareOrAdd: add}
}

// AtomicWriteOp returns an operation that stores value in the first 8 bytes of
// remote, as a native-endian word; its address must be a multiple of 8. No
// reader ever sees a partial value. Use it to publish data that was written, and
// flushed, before it. It fails with ErrNotSupported where the device cannot.
//
// Implements: ibv_wr_atomic_write.
func AtomicWriteOp(remote Remote, value uint64) Op {
	return Op{kind: startAtomicWrite, opcode: verbs.WRAtomicWrite, remote: remote, swapTo: value}
}

// FlushOp returns an operation that makes earlier writes of this connection to remote
// visible to every agent of the peer's host (verbs.FlushGlobal), or persistent there
// (verbs.FlushPersistent), or both. A completed WRITE shows only that the peer's device
// has the data. The peer's region must have been registered with AccessFlushGlobal or
// AccessFlushPersistent. It fails with ErrNotSupported where the device cannot.
//
// Implements: ibv_wr_flush, selectivity range.
func FlushOp(remote Remote, p verbs.FlushPlacement) Op {
	return Op{kind: startFlush, opcode: verbs.WRFlush, remote: remote, placement: p}
}

// BindOp returns the Op of Window.Bind, for the window's connection. Once the
// operation has succeeded, Window.Remote returns the descriptor.
func BindOp(w *Window, r *Region, off, n int, access verbs.AccessFlags) Op {
	return Op{kind: startBind, opcode: verbs.WRBindMW, window: w, bind: binding{r, off, n, access}}
}

// InvalidateOp returns the Op of Window.Invalidate, for the window's connection.
func InvalidateOp(w *Window) Op {
	return Op{kind: startInvalidate, opcode: verbs.WRLocalInv, window: w}
}

// PostRecvOp returns the Op of Conn.PostRecv.
func PostRecvOp(local Slice) Op { return Op{kind: startPostRecv, one: [1]Slice{local}} }

// PostRecvVOp returns a receive that scatters the message over locals,
// in order; at most Options.MaxSGE of them.
func PostRecvVOp(locals []Slice) Op { return Op{kind: startPostRecv}.over(locals) }
