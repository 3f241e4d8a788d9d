package rpma

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// MR is a memory region of this end. The device owns what an operation names until its completion; the
// rest is the program's, which must not touch bytes that a peer may be writing.
//
// Implements: struct rpma_mr_local.
type MR struct {
	peer   *Peer
	region *runtime.Region
	usage  Usage

	mine   bool        // Close closes the region; immutable
	mapped []byte      // memory of RegMR, whose registration the runtime would keep; immutable
	mu     sync.Mutex  // held by Close
	closed atomic.Bool // written by Close; operations read it. It publishes nothing
}

// RegMR registers memory for the given uses. The memory must not be on the Go heap. It stays the caller's,
// who must keep it mapped until Close. Where the device refuses to lock the memory with EOPNOTSUPP (a
// file on a DAX file system), and is capable of on-demand paging, RegMR registers it on demand. Memory that
// is mapped without the permission to write can be ReadSrc, WriteSrc and SendBuf. RegMR enters the kernel.
//
// Errors: ErrInvalid for no bytes, no uses, or memory of the Go heap; ErrNoMemory; ErrProvider if the
// registration fails, with EFAULT if the memory does not permit the uses or reaches beyond the end of its
// file.
//
// Implements: rpma_mr_reg.
func (p *Peer) RegMR(b []byte, usage Usage) (*MR, error) {
	const op = "rpma_mr_reg"
	if len(b) == 0 || usage == 0 {
		return nil, invalid(op, "%d bytes for the uses %q", len(b), usage)
	}
	m, err := p.newMR(op, usage, true, func(access verbs.AccessFlags) (*runtime.Region, error) { return p.rt.Register(b, access) })
	if err == nil {
		m.mapped = b
	}
	return m, err
}

// NewMR is RegMR for size bytes of zeroes, which it maps and which Close unmaps.
func (p *Peer) NewMR(size int, usage Usage) (*MR, error) {
	const op = "rpma_mr_reg"
	if size <= 0 || usage == 0 {
		return nil, invalid(op, "%d bytes for the uses %q", size, usage)
	}
	return p.newMR(op, usage, true, func(access verbs.AccessFlags) (*runtime.Region, error) { return p.rt.NewRegion(size, access) })
}

// RegRegion makes a memory region of a region of the runtime, such as one on a file. Its access flags must
// permit the uses. The caller closes the MR first, and then the region.
func (p *Peer) RegRegion(r *runtime.Region, usage Usage) (*MR, error) {
	const op = "rpma_mr_reg"
	if r == nil || r.Len() == 0 || usage == 0 {
		return nil, invalid(op, "no region, or the uses %q", usage)
	}
	return p.newMR(op, usage, false, func(access verbs.AccessFlags) (*runtime.Region, error) {
		if missing := access &^ r.Access(); missing != 0 {
			return nil, fmt.Errorf("%w: the uses %v need also %v", verbs.ErrInvalid, usage, missing)
		}
		return r, nil
	})
}

func (p *Peer) newMR(op string, usage Usage, mine bool, reg func(verbs.AccessFlags) (*runtime.Region, error)) (_ *MR, err error) {
	if err = p.enter(op); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.leave()
		}
	}()
	access := usage.access(p.iWARP)
	r, err := reg(access)
	if errors.Is(err, syscall.EFAULT) && usage&(ReadDst|WriteDst|RecvBuf) == 0 && access&verbs.AccessLocalWrite != 0 {
		access &^= verbs.AccessLocalWrite // of WriteSrc, as librpma; no device writes there
		r, err = reg(access)
	}
	if errors.Is(err, syscall.EOPNOTSUPP) && p.ODPCapable() {
		r, err = reg(access | verbs.AccessOnDemand)
	}
	if _, device := errors.AsType[*verbs.OpError](err); device {
		return nil, fail(op, ErrProvider, err)
	}
	if err != nil {
		return nil, classified(op, err)
	}
	return &MR{peer: p, region: r, usage: usage, mine: mine}, nil
}

// Bytes returns the memory, or nil after Close.
//
// Implements: rpma_mr_get_ptr.
func (m *MR) Bytes() []byte {
	if m.closed.Load() {
		return nil
	}
	return m.region.Bytes()
}

// Size returns the length of the memory in bytes.
//
// Implements: rpma_mr_get_size.
func (m *MR) Size() int { return m.region.Len() }

// Usage returns the uses of the memory.
func (m *MR) Usage() Usage { return m.usage }

// Descriptor returns the form in which the memory is described to peers, for ParseRemoteMR or for
// rpma_mr_remote_from_descriptor. It contains the key to the memory.
//
// Errors: ErrInvalid after Close.
//
// Implements: rpma_mr_get_descriptor.
func (m *MR) Descriptor() (desc [MRSize]byte, err error) {
	at, err := m.slice(0, 0)
	if err != nil {
		return desc, classified("rpma_mr_get_descriptor", err)
	}
	d := descriptor{addr: at.SGE().Addr, size: uint64(m.Size()), usage: m.usage}
	if r, rerr := m.region.Remote(0, m.Size()); rerr == nil { // else the region is not for peers
		d.rkey = r.RKey
	}
	return d.encode(), nil
}

// Advise tells the device how the n bytes from off on will be used. With verbs.AdviseFlush it waits until
// the device has followed the advice.
//
// Errors: ErrInvalid if the bytes are not in the region, or if the region is not on demand or not for that
// use; ErrNotSupported if the device follows no advice.
//
// Implements: rpma_mr_advise.
func (m *MR) Advise(off, n int, advice verbs.Advice, flags verbs.AdviseFlags) error {
	const op = "rpma_mr_advise"
	if _, err := m.slice(off, n); err != nil {
		return classified(op, err)
	}
	if !m.peer.rt.DeviceAttr().ODP.Has() {
		return fail(op, ErrNotSupported, verbs.ErrNotSupported)
	}
	err := m.region.Advise(off, n, advice, flags)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOTSUP) {
		return fail(op, ErrNotSupported, err)
	}
	if errors.Is(err, syscall.EFAULT) || errors.Is(err, syscall.EINVAL) {
		return fail(op, ErrInvalid, err)
	}
	return classified(op, err)
}

// Close ends the registration, and with it the peers' access: no other MR has its key. An MR of RegRegion
// has the key of its region, which ends with the region. While operations use the memory, Close changes
// nothing and returns an ErrProvider that matches runtime.ErrBusy. Close is idempotent. It enters the kernel.
//
// Implements: rpma_mr_dereg.
func (m *MR) Close() error {
	const op = "rpma_mr_dereg"
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed.Load() {
		return nil
	}
	if m.mine {
		if err := m.region.Close(); err != nil {
			return fail(op, ErrProvider, err)
		}
	}
	if m.mapped != nil {
		if err := m.peer.rt.Invalidate(m.mapped); err != nil && !errors.Is(err, verbs.ErrBusy) { // busy: another MR has the same memory
			return fail(op, ErrProvider, err)
		}
	}
	m.closed.Store(true)
	m.peer.leave()
	return nil
}

// slice returns n bytes from off on. A nil MR has no bytes.
func (m *MR) slice(off, n int) (s runtime.Slice, err error) {
	if m == nil {
		return s, nil
	}
	if m.closed.Load() {
		return s, runtime.ErrReleased
	}
	if s, err = m.region.Slice(off, n); err != nil && !errors.Is(err, runtime.ErrReleased) {
		err = fmt.Errorf("%w: %w", verbs.ErrInvalid, err)
	}
	return s, err
}
