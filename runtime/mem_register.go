package runtime

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// mapping is memory mapped by the runtime, with its registration.
type mapping struct {
	arena  *mem.Arena // nil for memory of another device
	mr     verbs.MR
	locked uint64 // bytes that m.registered counts for it
}

// locks returns how many of n registered bytes the system locks.
func locks(n uint64, access verbs.AccessFlags) uint64 {
	if access&verbs.AccessOnDemand != 0 {
		return 0
	}
	return n
}

// mapRegistered maps n bytes on a node (counted from 1; 0: anywhere) and
// registers exactly those. Under m.mu.
func (m *memory) mapRegistered(n, node int, access verbs.AccessFlags) (mapping, error) {
	if err := m.budget(int64(n)); err != nil {
		return mapping{}, err
	}
	a, err := mem.Map(n, mem.Options{Huge: m.cfg.HugePages, Node: node})
	if err != nil {
		return mapping{}, err
	}
	// Check again: the length in whole pages is known only now.
	if err := m.budget(int64(a.Len())); err != nil {
		return mapping{}, errors.Join(err, a.Unmap())
	}
	mr, err := m.register(a.Addr(), uint64(n), access)
	if err != nil {
		return mapping{}, errors.Join(err, a.Unmap())
	}
	m.mapped += int64(a.Len())
	return mapping{a, mr, locks(uint64(n), access)}, nil
}

// budget checks that n more bytes may be mapped, and releases unused
// memory if they do not fit. Under m.mu.
func (m *memory) budget(n int64) error {
	limit := m.cfg.MaxBytes
	if limit == 0 || n <= limit-m.mapped {
		return nil
	}
	// Memory that cannot be released still counts as mapped, and Close reports it.
	_ = m.reapLocked()
	_, _, _ = m.reclaim()
	if n <= limit-m.mapped {
		return nil
	}
	return &NoMemoryError{Limit: limit, Mapped: m.mapped, Wanted: n}
}

// discard ends a mapping. A mapping that cannot be ended goes to
// m.broken and stays counted. Under m.mu.
func (m *memory) discard(at mapping) error {
	if err := at.mr.Close(); err != nil {
		m.broken = append(m.broken, at)
		return fmt.Errorf("runtime: deregistering %d bytes: %w", at.mr.Length(), err)
	}
	m.registered -= at.locked
	if at.arena == nil {
		return nil
	}
	m.mapped -= int64(at.arena.Len())
	// The memory is no longer pinned. If the system refuses to unmap it now,
	// another try would fail too.
	return at.arena.Unmap()
}

// retryBroken tries again to end the mappings in m.broken. Under m.mu.
func (m *memory) retryBroken() error {
	var errs []error
	list := m.broken
	m.broken = nil
	for _, at := range list {
		errs = append(errs, m.discard(at))
	}
	return errors.Join(errs...)
}

// register registers n bytes at addr. If the limit on locked memory prevents it, register
// releases all unused memory and tries once more, then fails with a *[MemlockError]. A
// registration that locks no memory never fails for that limit. Under m.mu.
func (m *memory) register(addr, n uint64, access verbs.AccessFlags) (verbs.MR, error) {
	lockedOut := func(err error) bool { return locks(n, access) > 0 && m.lockedOut(err) }
	mr, err := m.pd.RegMR(addr, n, addr, access)
	if err != nil && lockedOut(err) && m.giveUpUnused() {
		mr, err = m.pd.RegMR(addr, n, addr, access)
	}
	if err != nil {
		if lockedOut(err) {
			limit, _ := m.memlock()
			return nil, &MemlockError{Limit: limit, Wanted: n, Registered: m.registered, Err: err}
		}
		if access&verbs.AccessFlushPersistent != 0 && errors.Is(err, syscall.EINVAL) {
			// Soft-RoCE returns a bare EINVAL (Linux 6.12
			// drivers/infiniband/sw/rxe/rxe_mr.c, is_pmem_page).
			err = fmt.Errorf("%w (AccessFlushPersistent wants memory that persists: NewFileRegion on the software RNIC; on a kernel device NewFileRegion of a file on a DAX file system)", err)
		}
		return nil, err
	}
	m.registered += locks(n, access)
	return mr, nil
}

// lockedOut reports whether a registration failed because of the limit on locked memory. The
// kernel returns ENOMEM above the limit and EPERM where nothing may be locked (ib_umem_get,
// can_do_mlock); mlock(2) also has EAGAIN. These errnos have other meanings too, so lockedOut
// returns false if the provider names another reason, or if there is no limit.
func (m *memory) lockedOut(err error) bool {
	if errors.Is(err, verbs.ErrMemlock) {
		return true
	}
	if op, ok := errors.AsType[*verbs.OpError](err); ok && op.Err != nil {
		return false
	}
	if limit, ok := m.memlock(); ok && limit == math.MaxUint64 {
		return false
	}
	return errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EAGAIN)
}

// giveUpUnused deregisters all unused memory and reports whether there was any. Under m.mu.
func (m *memory) giveUpUnused() bool {
	before := m.registered
	// Failures are kept and reported by Close.
	_ = m.reapLocked()
	_ = m.cache.Trim(0)
	_, _, _ = m.reclaim()
	return m.registered < before
}
