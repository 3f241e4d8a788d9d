package runtime

import (
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// Op describes an operation of a connection. Functions such as [WriteOp] make an Op, and methods such
// as [Conn.Start] start the operation: see the package documentation (Starting operations). An Op
// may be started any number of times. The start of the zero Op fails with ErrInvalid.
//
// An Op refers to the caller's bytes ([SendBytesOp]) or to the caller's list of slices ([WriteVOp]
// and similar functions). Each start reads the bytes or the list before it returns. So the caller
// must not change them between making the Op and starting it, unless [Op.Keep] has copied them.
type Op struct {
	kind                 startKind
	opcode               verbs.WROpcode
	flags                verbs.SendFlags // FENCE, SOLICITED and SIGNALED
	imm                  uint32
	one                  [1]Slice // the local memory, if it is one piece
	several              []Slice  // the local memory, if it is several pieces; else nil
	bytes                []byte   // the data of startSendBytes, or the reason of startRefused
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
	startRefused // a modifier (Imm, Fence, Solicited or Signaled) does not suit the operation
)

// Op.over returns op with locals as its pieces of local memory.
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

// Keep returns op with copies of its bytes and of its list of slices. So the caller may change the
// originals before op is started. The memory of the slices is not copied.
func (op Op) Keep() Op {
	op.bytes, op.several = slices.Clone(op.bytes), slices.Clone(op.several)
	return op
}

// Imm returns op with immediate data, in host byte order. The peer gets the immediate data with the
// receive that the operation consumes. Imm applies to WRITEs, and to SENDs other than
// SendInvalidateOp. For any other Op it returns an Op whose start fails with ErrInvalid. A WRITE
// with immediate data consumes one of the peer's receives, after the data has arrived. So on a
// managed connection the start of such a WRITE waits for a credit.
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

// Fence returns op with the fence flag. The operation then begins only after all READs and atomics
// that were started earlier on the connection have ended. Inline data is an exception: it is copied
// when the request is posted, perhaps before these READs and atomics have ended. For a receive,
// Fence returns an Op whose start fails with ErrInvalid.
//
// Implements: IBV_SEND_FENCE.
func (op Op) Fence() Op {
	if op.kind == startPostRecv {
		return op.refused("cannot be fenced")
	}
	op.flags |= verbs.SendFence
	return op
}

// Solicited returns op with the solicited flag. The message of op then raises a solicited event at
// the peer. The event wakes a peer that arms its completion queue only for solicited events, as C
// programs may do. (A peer that uses this package wakes without the flag.) Solicited applies to
// SENDs, and to WRITEs with immediate data. It may be called before or after Imm. For an operation
// other than SEND and WRITE, it returns an Op whose start fails with ErrInvalid.
//
// Implements: IBV_SEND_SOLICITED.
func (op Op) Solicited() Op {
	if op.kind != startSend && op.kind != startSendBytes && (op.kind != startTransfer || op.opcode == verbs.WRRDMARead) {
		return op.refused("raises no solicited event")
	}
	op.flags |= verbs.SendSolicited
	return op
}

// Signaled returns op with the signaled flag: the device reports the completion of op by itself. Without
// the flag, the completion of a later operation may report that of op, which is cheaper; the result of
// op then waits for the later operation, if that was posted together with op. For a receive, Signaled
// returns an Op whose start fails with ErrInvalid.
//
// Implements: IBV_SEND_SIGNALED.
func (op Op) Signaled() Op {
	if op.kind == startPostRecv {
		return op.refused("always completes by itself")
	}
	op.flags |= verbs.SendSignaled
	return op
}

// Op.refused returns an Op whose start fails with ErrInvalid. The error text is the kind of the
// operation, followed by the given reason.
func (op Op) refused(why string) Op {
	switch op.kind {
	case startNone, startRefused:
		return op
	case startPostRecv:
		return Op{kind: startRefused, bytes: []byte("a receive " + why)}
	}
	return Op{kind: startRefused, bytes: fmt.Appendf(nil, "%v %s", op.opcode, why)}
}

// errNoOp returns the error of starting op, which is the zero Op or the result of Op.refused.
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

// WriteVOp returns a WRITE that gathers locals, in order, into remote memory. There may be at most
// Options.MaxSGE locals.
func WriteVOp(locals []Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMAWrite, remote: remote}.over(locals)
}

// ReadOp returns a READ that copies remote memory into local.
//
// Implements: ibv_post_send, RDMA_READ.
func ReadOp(local Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMARead, one: [1]Slice{local}, remote: remote}
}

// ReadVOp returns a READ that scatters remote memory over locals, in order. There may be at most
// Options.MaxSGE locals.
func ReadVOp(locals []Slice, remote Remote) Op {
	return Op{kind: startTransfer, opcode: verbs.WRRDMARead, remote: remote}.over(locals)
}

// SendOp returns a SEND of local as one message: see [Conn.Send].
//
// Implements: ibv_post_send, SEND.
func SendOp(local Slice) Op {
	return Op{kind: startSend, opcode: verbs.WRSend, one: [1]Slice{local}}
}

// SendVOp returns a SEND that gathers locals, in order, into one message. There may be at most
// Options.MaxSGE locals.
func SendVOp(locals []Slice) Op {
	return Op{kind: startSend, opcode: verbs.WRSend}.over(locals)
}

// SendBytesOp returns a SEND of a copy of p. The start of the operation makes the copy: see
// [Conn.SendBytes].
func SendBytesOp(p []byte) Op { return Op{kind: startSendBytes, opcode: verbs.WRSend, bytes: p} }

// SendInvalidateOp returns a SEND of local that also invalidates a memory window of the peer. The
// argument remote is the descriptor of the window. The message carries the window's key. When the
// message arrives, the peer's device unbinds the window. Each binding may be ended by one such message.
//
// A result without an error means that the peer's device has the message, not that it has accepted the
// key. If the key was invalid already, the peer never receives the message and the connection ends: many
// devices acknowledge the message before they look at the key. A key is invalid after an earlier message of
// this kind, and also if the peer itself has ended the binding, except on the software RNIC; see Window.
//
// Implements: ibv_post_send, SEND_WITH_INV.
func SendInvalidateOp(local Slice, remote Remote) Op {
	return Op{kind: startSend, opcode: verbs.WRSendWithInv, one: [1]Slice{local}, remote: remote}
}

// CompareAndSwapOp returns an atomic on the first 8 bytes of remote, a native-endian word. If the
// word equals compare, the atomic replaces the word with swap. Result.Value is the previous value
// of the word. The address of the word must be a multiple of 8. The operation is atomic with
// respect to other operations that the peer's device carries out, but not necessarily with respect
// to the peer's processors.
//
// Implements: ibv_post_send, ATOMIC_CMP_AND_SWP.
func CompareAndSwapOp(remote Remote, compare, swap uint64) Op {
	return Op{kind: startAtomic, opcode: verbs.WRAtomicCmpAndSwp, remote: remote, compareOrAdd: compare, swapTo: swap}
}

// FetchAndAddOp returns an atomic that increments the word in the first 8 bytes of remote by the
// value of add. In all other respects it is like CompareAndSwapOp.
//
// Implements: ibv_post_send, ATOMIC_FETCH_AND_ADD.
func FetchAndAddOp(remote Remote, add uint64) Op {
	return Op{kind: startAtomic, opcode: verbs.WRAtomicFetchAndAdd, remote: remote, compareOrAdd: add}
}

// AtomicWriteOp returns an operation that stores value in the first 8 bytes of remote, a
// native-endian word. The address of the word must be a multiple of 8. No reader ever sees a
// partial value. An atomic write can publish data: first write and flush the data, then store a flag
// or pointer with AtomicWriteOp. If the device does not execute atomic writes, the operation is a
// WRITE of 8 bytes that the request carries inline, with the fence flag: so it begins after earlier
// flushes, which are READs on such a device. Adapters write 8 aligned bytes at once, but no
// specification says so.
//
// Implements: ibv_wr_atomic_write.
func AtomicWriteOp(remote Remote, value uint64) Op {
	return Op{kind: startAtomicWrite, opcode: verbs.WRAtomicWrite, remote: remote, swapTo: value}
}

// FlushOp returns an operation that flushes earlier WRITEs of this connection to remote. The
// argument p has one or both of these flags:
//
//	verbs.FlushGlobal       the WRITEs become visible to every agent of the peer's host
//	verbs.FlushPersistent   the WRITEs become persistent on the peer's host
//
// Without a flush, the completion of a WRITE means only that the data is at the peer's device. The
// peer's region needs AccessFlushGlobal for verbs.FlushGlobal, and AccessFlushPersistent for
// verbs.FlushPersistent. If the device does not execute flushes, the operation is a READ of the first 8
// bytes of remote, or of fewer if remote is shorter: the peer's device carries out a READ after earlier
// WRITEs of the connection, and its answer follows them to the peer's memory. For that the
// peer's region needs AccessRemoteRead, too; a region of a device that does not execute flushes has it.
// Such a READ makes WRITEs persistent only if the peer's device writes to persistent memory past the
// processor's caches. So without [Conn.DeclareDirectWrite], a FLUSH with verbs.FlushPersistent then fails
// with ErrNotSupported.
//
// A persistent FLUSH lasts as long as the peer's disk. The software RNIC waits for it up to the bound of a silent peer
// (Options.PeerTimeout, 5 s by default) on a connection of the connection manager whose RNR retries are unlimited, as
// those of this package are. Other connections (Prepared) fail with RETRY_EXC_ERR when their retries are used up:
// after 4.096 µs × 2^AckTimeout × (RetryCount + 1), 1.07 s by default.
//
// Implements: ibv_wr_flush, selectivity range.
func FlushOp(remote Remote, p verbs.FlushPlacement) Op {
	return Op{kind: startFlush, opcode: verbs.WRFlush, remote: remote, placement: p}
}

// BindOp returns an operation that binds w, as Window.Bind does. It must be started on the
// connection of w. After the operation has succeeded, Window.Remote returns the descriptor.
func BindOp(w *Window, r *Region, off, n int, access verbs.AccessFlags) Op {
	return Op{kind: startBind, opcode: verbs.WRBindMW, window: w, bind: binding{r, off, n, access}}
}

// InvalidateOp returns an operation that unbinds w, as Window.Invalidate does. It must be started
// on the connection of w.
func InvalidateOp(w *Window) Op {
	return Op{kind: startInvalidate, opcode: verbs.WRLocalInv, window: w}
}

// PostRecvOp returns an operation that posts a receive into local: see [Conn.PostRecv].
func PostRecvOp(local Slice) Op { return Op{kind: startPostRecv, one: [1]Slice{local}} }

// PostRecvVOp returns an operation that posts a receive. The receive scatters the message over
// locals, in order. There may be at most Options.MaxSGE locals.
func PostRecvVOp(locals []Slice) Op { return Op{kind: startPostRecv}.over(locals) }
