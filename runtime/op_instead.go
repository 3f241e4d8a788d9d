package runtime

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Requests in place of FLUSH and ATOMIC_WRITE, on a device that does not execute these. They are those
// of librpma 1.3 (src/flush.c, src/mr.c), so that a peer sees the same packets from both.

// flushRead is the length in bytes of the READ that takes the place of a FLUSH.
const flushRead = 8

const flushAccess = verbs.AccessFlushGlobal | verbs.AccessFlushPersistent

// DeclareDirectWrite declares whether the peer's device writes to the peer's persistent memory past the
// processor's caches, so that a READ in place of a FLUSH makes earlier WRITEs persistent. Only the peer's
// operator knows that: on Intel processors it means that DDIO is off. A wrong declaration loses data when
// the peer loses power. It matters to FlushOp with verbs.FlushPersistent, if the device of this end does
// not execute FLUSH. Default false. DeclareDirectWrite does not block.
func (c *Conn) DeclareDirectWrite(direct bool) { c.direct.Store(direct) }

// granted returns the access that a region has for peers: what was asked for, and what the READ in place
// of a FLUSH needs.
func (m *memory) granted(access verbs.AccessFlags) verbs.AccessFlags {
	if !m.flushes && access&flushAccess != 0 {
		access |= verbs.AccessRemoteRead
	}
	return access
}

// onDevice returns the access with which the device registers or binds memory.
func (m *memory) onDevice(access verbs.AccessFlags) verbs.AccessFlags {
	if access = m.granted(access); !m.flushes {
		access &^= flushAccess
	}
	return access
}

// flushByRead starts the READ in place of the FLUSH op, which the descriptor permits. s has the
// flags and the remote address.
func (c *Conn) flushByRead(asked reactor.DoneContext, op *Op, s *reactor.Send, w submitOpts) (f Future, err error) {
	switch p := op.placement; {
	case p == 0 || p&^(verbs.FlushGlobal|verbs.FlushPersistent) != 0:
		return f, fmt.Errorf("%w: a FLUSH with placement 0x%x", reactor.ErrRequest, p)
	case p&verbs.FlushPersistent != 0 && !c.direct.Load():
		return f, fmt.Errorf("%w: a persistent FLUSH: the device does not execute FLUSH, and no direct write to the peer's persistent memory is declared", verbs.ErrNotSupported)
	case op.remote.Access&verbs.AccessRemoteRead == 0:
		return f, fmt.Errorf("%w: a FLUSH: the device does not execute FLUSH, and the descriptor does not permit a READ in its place", verbs.ErrNotSupported)
	}
	buf, err := c.rt.allocFor(asked, flushRead, w.mode)
	if err != nil {
		return f, err
	}
	local, err := buf.Slice().Sub(0, int(min(op.remote.Length, flushRead)))
	if err == nil {
		s.Opcode = verbs.WRRDMARead
		f, err = c.submitFrom(asked, s, local, w)
	}
	buf.drop() // the READ's lease keeps the buffer until the READ completes
	return f, err
}

// writeWord starts the WRITE in place of the ATOMIC_WRITE s, which the descriptor permits.
func (c *Conn) writeWord(asked reactor.DoneContext, s *reactor.Send, w submitOpts) (f Future, err error) {
	if s.Remote%wordSize != 0 {
		return f, fmt.Errorf("%w: %v at address 0x%x, want a multiple of %d", reactor.ErrRequest, s.Opcode, s.Remote, wordSize)
	}
	var word [wordSize]byte
	binary.NativeEndian.PutUint64(word[:], s.Swap)
	s.Opcode, s.Swap = verbs.WRRDMAWrite, 0
	s.Flags |= verbs.SendFence // earlier flushes are READs
	if c.q.Inline() >= wordSize {
		return c.submit(asked, s, reactor.Payload{Inline: word[:]}, w)
	}
	buf, err := c.rt.allocFor(asked, wordSize, w.mode)
	if err != nil {
		return f, err
	}
	copy(buf.Bytes(), word[:])
	f, err = c.submitFrom(asked, s, buf.Slice(), w)
	buf.drop()
	return f, err
}

// submitFrom submits s with the local memory local.
func (c *Conn) submitFrom(ctx context.Context, s *reactor.Send, local Slice, w submitOpts) (f Future, err error) {
	if err = local.begin(); err != nil {
		return f, err
	}
	s.Lease = local.lease
	sges := [1]verbs.SGE{local.SGE()}
	if f, err = c.submit(ctx, s, reactor.Payload{SGEs: sges[:]}, w); err != nil {
		local.lease.End()
	}
	return f, err
}
