package rpma

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Read starts to copy n bytes of the peer's memory to dst. Without memory (both nil), all numbers must be
// 0: it is then an operation of no bytes. The local memory belongs to the device until the completion,
// which has the given word.
//
// No operation waits, except for the end of a handshake.
//
// Errors, for all operations: ErrInvalid for flags without CompletionOnError and CompletionAlways, bytes that are not in the memory, or more
// than a message carries, memory that was not registered for the operation, and after Close;
// ErrProvider with ENOMEM if ConnConfig.SQSize operations are started and not taken from the CQ, and with
// ENOTCONN if the connection has ended. An operation that is refused has no completion.
//
// Implements: rpma_read.
func (c *Conn) Read(dst *MR, dstOff int, src *RemoteMR, srcOff, n int, flags Flags, word uint64) error {
	const op = "rpma_read"
	if err := flags.check(op); err != nil {
		return err
	}
	local, remote, err := pieces(op, dst, dstOff, src, srcOff, n, verbs.AccessRemoteRead)
	if err != nil {
		return err
	}
	o := runtime.ReadOp(local, remote)
	return c.start(op, &o, flags, word)
}

// Write starts to copy n bytes of src to the peer's memory. In all other respects it is like Read. Its
// completion says that the data is at the peer's device: Flush takes it further.
//
// Implements: rpma_write.
func (c *Conn) Write(dst *RemoteMR, dstOff int, src *MR, srcOff, n int, flags Flags, word uint64) error {
	o, err := writeOp("rpma_write", dst, dstOff, src, srcOff, n, flags)
	if err != nil {
		return err
	}
	return c.start("rpma_write", &o, flags, word)
}

// WriteWithImm is Write that also gives the peer a number, in host order, with a receive that it consumes.
//
// Implements: rpma_write_with_imm.
func (c *Conn) WriteWithImm(dst *RemoteMR, dstOff int, src *MR, srcOff, n int, flags Flags, imm uint32, word uint64) error {
	o, err := writeOp("rpma_write_with_imm", dst, dstOff, src, srcOff, n, flags)
	if err != nil {
		return err
	}
	o = o.Imm(imm)
	return c.start("rpma_write_with_imm", &o, flags, word)
}

func writeOp(op string, dst *RemoteMR, dstOff int, src *MR, srcOff, n int, flags Flags) (o runtime.Op, err error) {
	if err = flags.check(op); err != nil {
		return o, err
	}
	local, remote, err := pieces(op, src, srcOff, dst, dstOff, n, verbs.AccessRemoteWrite)
	return runtime.WriteOp(local, remote), err
}

// AtomicWriteAlignment is what the offset of an atomic write must be a multiple of, and its length in bytes.
const AtomicWriteAlignment = 8

// AtomicWrite starts to copy the 8 bytes of src to the peer's memory, so that no reader sees a part of
// them. The bytes are copied before AtomicWrite returns. It is executed after earlier flushes of
// this connection: data that was written and flushed is there when the 8 bytes are. If the device does not
// execute atomic writes, a WRITE takes its place: see runtime.AtomicWriteOp.
//
// Errors: ErrInvalid also for a nil dst, and for an offset or an address that is no multiple of 8.
//
// Implements: rpma_atomic_write.
func (c *Conn) AtomicWrite(dst *RemoteMR, dstOff int, src [AtomicWriteAlignment]byte, flags Flags, word uint64) error {
	const op = "rpma_atomic_write"
	if err := flags.check(op); err != nil {
		return err
	}
	if dst == nil || dstOff%AtomicWriteAlignment != 0 {
		return invalid(op, "an atomic write to offset %d, want memory and a multiple of %d", dstOff, AtomicWriteAlignment)
	}
	remote, err := dst.at(dstOff, AtomicWriteAlignment)
	if err != nil {
		return classified(op, err)
	}
	o := runtime.AtomicWriteOp(remote, binary.NativeEndian.Uint64(src[:]))
	return c.start(op, &o, flags, word)
}

// FlushType says how far a flush takes the data of earlier writes.
type FlushType int

// The types of flushes.
const (
	Persistent FlushType = iota // to persistent memory
	Visibility                  // to where all of the peer's host sees it
)

// flushReads is how many bytes a READ in place of a flush has, whatever is flushed.
const flushReads = 8

// Flush starts to take the data of earlier writes of this connection to the n bytes of the peer's memory further. Its
// completion says that the data is there. If the device does not execute FLUSH, a READ of 8 bytes at
// dstOff takes its place, and these bytes must be in the memory even if n is smaller.
//
// Errors: ErrInvalid also for a nil dst and an unknown type; ErrNotSupported if the type is Persistent and
// no peer configuration with direct write to persistent memory was applied, or if the peer's memory is
// not for flushes of the type.
//
// Implements: rpma_flush.
func (c *Conn) Flush(dst *RemoteMR, dstOff, n int, t FlushType, flags Flags, word uint64) error {
	const op = "rpma_flush"
	if err := flags.check(op); err != nil {
		return err
	}
	need, placement := FlushPersistent, verbs.FlushPersistent
	if t == Visibility {
		need, placement = FlushVisibility, verbs.FlushGlobal
	}
	switch {
	case dst == nil || t != Persistent && t != Visibility:
		return invalid(op, "a flush of type %d, or of no memory", t)
	case t == Persistent && !c.direct.Load():
		return unsupported(op, "the peer has declared no direct write to persistent memory")
	case dst.FlushTypes()&need == 0:
		return unsupported(op, "the peer's memory is for "+dst.d.usage.String())
	case !c.peer.flushes():
		n = flushReads
	}
	remote, err := dst.at(dstOff, n)
	if err != nil {
		return classified(op, err)
	}
	if t == Persistent {
		conn, err := c.live(op)
		if err != nil {
			return err
		}
		conn.DeclareDirectWrite(true) // as ApplyRemotePeerConfig has told
	}
	o := runtime.FlushOp(remote, placement)
	return c.start(op, &o, flags, word)
}
