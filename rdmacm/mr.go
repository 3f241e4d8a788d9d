package rdmacm

import (
	"fmt"
	"math"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// MR is a registered memory region.
//
// Implements: struct ibv_mr.
type MR struct {
	verbs.MR
	buf   []byte
	arena *mem.Arena // makes buf known to the device; nil if this library has mapped buf
}

// RegMsgs registers memory for sends and receives. The memory must not be of the Go heap: see
// verbs.AllocMemory, or map it with the system. It belongs to the caller, and must stay mapped until
// Dereg. It may enter the kernel.
//
// Implements: rdma_reg_msgs.
func (id *ID) RegMsgs(buf []byte) (*MR, error) {
	if id == nil {
		return nil, errNil("rdma_reg_msgs")
	}
	return id.reg("rdma_reg_msgs", buf, verbs.AccessLocalWrite)
}

// RegRead registers memory that the peer may read. In all other respects it is like RegMsgs.
//
// Implements: rdma_reg_read.
func (id *ID) RegRead(buf []byte) (*MR, error) {
	if id == nil {
		return nil, errNil("rdma_reg_read")
	}
	return id.reg("rdma_reg_read", buf, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
}

// RegWrite registers memory that the peer may write. In all other respects it is like RegMsgs.
//
// Implements: rdma_reg_write.
func (id *ID) RegWrite(buf []byte) (*MR, error) {
	if id == nil {
		return nil, errNil("rdma_reg_write")
	}
	return id.reg("rdma_reg_write", buf, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
}

// reg registers buf in the protection domain of the queue pair, or else of the device.
func (id *ID) reg(op string, buf []byte, access verbs.AccessFlags) (*MR, error) {
	dev, err := id.bound(op)
	if err != nil {
		return nil, err
	}
	if id.lib.id(id.number) != id {
		return nil, failure(op, id, syscall.EBADF, verbs.ErrClosed)
	}
	pd := dev.pd
	if p := id.qp.Load(); p != nil {
		pd = p.pd
	}
	mr, err := RegMR(pd, buf, access)
	return mr, named(op, id, err)
}

// RegMR is RegMsgs with a protection domain and any access.
//
// Implements: ibv_reg_mr.
func RegMR(pd verbs.PD, buf []byte, access verbs.AccessFlags) (*MR, error) {
	const op = "ibv_reg_mr"
	if pd == nil {
		return nil, errNil(op)
	}
	m := &MR{buf: buf}
	var refused, err error // refused: by the device
	if m.arena, err = mem.AdoptFor(buf, func(addr, n uint64) error {
		m.MR, refused = pd.RegMR(addr, n, addr, access)
		return refused
	}); err == nil {
		return m, nil
	}
	if refused == nil {
		err = fmt.Errorf("%w: %w", verbs.ErrInvalid, err)
	}
	return nil, named(op, nil, err)
}

// Dereg ends the registration. The memory stays the caller's. No outstanding request may name it. It is
// idempotent.
//
// Implements: rdma_dereg_mr, ibv_dereg_mr.
func (m *MR) Dereg() error {
	if m == nil {
		return errNil("rdma_dereg_mr")
	}
	if err := m.MR.Close(); err != nil {
		return named("rdma_dereg_mr", nil, err)
	}
	if m.arena == nil {
		return nil
	}
	return m.arena.Unmap()
}

// Close is Dereg.
func (m *MR) Close() error { return m.Dereg() }

// Bytes returns the registered memory.
func (m *MR) Bytes() []byte { return m.buf }

// SGE returns n bytes of the region from byte off on, for the calls with scatter-gather lists. Like a
// slice expression it panics if they are not in the region, or more than an element can have, 4 GiB less one.
//
// Implements: struct ibv_sge.
func (m *MR) SGE(off, n int) verbs.SGE {
	if uint64(len(m.buf[off:off+n])) > math.MaxUint32 {
		panic(fmt.Sprintf("rdmacm: an element of %d bytes", n))
	}
	return verbs.SGE{Addr: m.IOVA() + uint64(off), Length: uint32(n), LKey: m.LKey()}
}

// sge returns the element for buf, which must be in the region.
func (m *MR) sge(buf []byte) (verbs.SGE, error) {
	addr, size := mem.AddrOf(buf), uint64(len(buf))
	if size == 0 {
		addr = m.Addr()
	}
	off := addr - m.Addr() // wraps to a large value if addr is below the region
	switch {
	case off > m.Length() || size > m.Length()-off:
		return verbs.SGE{}, fmt.Errorf("%w: %d bytes at 0x%x, the region has %d at 0x%x", ErrRange, size, addr, m.Length(), m.Addr())
	case size > math.MaxUint32:
		return verbs.SGE{}, tooLong(size)
	}
	return verbs.SGE{Addr: m.IOVA() + off, Length: uint32(size), LKey: m.LKey()}, nil
}

// tooLong returns the error for a buffer that is longer than an element can be.
func tooLong(size uint64) error { return fmt.Errorf("%w: %d bytes", verbs.ErrInvalid, size) }
