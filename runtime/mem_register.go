package runtime

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// mapping is a registration and, if the runtime mapped the registered memory, the memory.
type mapping struct {
	arena  *mem.Arena // the memory; nil for memory of another device
	mr     verbs.MR
	locked uint64 // bytes by which this registration has increased memory.registered
}

// locks returns how many bytes the system locks for a registration of n bytes with the given access
// flags.
func locks(n uint64, access verbs.AccessFlags) uint64 {
	if access&verbs.AccessOnDemand != 0 {
		return 0
	}
	return n
}

// mapRegistered maps at least n bytes on a NUMA node and registers the first n of these bytes. The
// argument node is the number of the NUMA node plus 1, or 0 for any node. The caller holds m.mu.
func (m *memory) mapRegistered(n, node int, access verbs.AccessFlags) (mapping, error) {
	if err := m.budget(int64(n)); err != nil {
		return mapping{}, err
	}
	a, err := mem.Map(n, mem.Options{Huge: m.cfg.HugePages, Node: node})
	if err != nil {
		return mapping{}, err
	}
	// Check the limit again: only now is the length in whole pages known.
	err = m.budget(int64(a.Len()))
	m.mapped += int64(a.Len())
	if err != nil {
		return mapping{}, errors.Join(err, m.discard(mapping{arena: a}))
	}
	mr, err := m.register(a.Addr(), uint64(n), access)
	if err != nil {
		return mapping{}, errors.Join(err, m.discard(mapping{arena: a}))
	}
	return mapping{a, mr, locks(uint64(n), access)}, nil
}

// budget checks whether MemoryConfig.MaxBytes permits the mapping of n more bytes. If the limit
// does not permit it, budget releases unused memory and checks again. If the limit still does not
// permit the mapping, budget returns a *[NoMemoryError]. The caller holds m.mu.
func (m *memory) budget(n int64) error {
	limit := m.cfg.MaxBytes
	if limit == 0 || n <= limit-m.mapped {
		return nil
	}
	// Errors are ignored here: memory that cannot be released still counts as mapped, and
	// memory.Close tries again and reports the error.
	_ = m.reapLocked()
	_, _, _ = m.reclaim()
	if n <= limit-m.mapped {
		return nil
	}
	return &NoMemoryError{Limit: limit, Mapped: m.mapped, Wanted: n}
}

// discard is release that needs no second call: if the device or the system refuses, the mapping goes to
// m.broken, and still counts as mapped, and as registered if the device refused. The caller holds m.mu.
func (m *memory) discard(at mapping) error {
	err := m.release(&at)
	if err != nil {
		m.broken = append(m.broken, at)
	}
	return err
}

// release calls at.free and subtracts the freed bytes from the counters. The caller holds m.mu.
func (m *memory) release(at *mapping) error {
	f, err := at.free()
	m.count(f)
	return err
}

// count subtracts freed bytes from the counters. The caller holds m.mu.
func (m *memory) count(f freed) {
	m.registered -= f.locked
	m.mapped -= f.mapped
}

// freed has the numbers of bytes that mapping.free has freed.
type freed struct {
	locked uint64 // of memory.registered
	mapped int64  // of memory.mapped
}

// free deregisters and unmaps a mapping; of the zero mapping it does nothing. If the device or the system refuses, free
// can be called again. It needs no lock: the caller owns the mapping.
func (at *mapping) free() (f freed, err error) {
	if at.mr != nil {
		if err := at.mr.Close(); err != nil { // the second deregistration has no effect
			return f, fmt.Errorf("runtime: deregistering %d bytes: %w", at.mr.Length(), err)
		}
	}
	f.locked, at.locked = at.locked, 0
	if at.arena == nil {
		return f, nil
	}
	n := int64(at.arena.Len())
	if err = at.arena.Unmap(); err == nil {
		f.mapped = n
	}
	return f, err
}

// retryBroken tries again to deregister and unmap the mappings in m.broken. The caller holds m.mu.
func (m *memory) retryBroken() error {
	var errs []error
	list := m.broken
	m.broken = nil
	for _, at := range list {
		errs = append(errs, m.discard(at))
	}
	return errors.Join(errs...)
}

// register registers n bytes at addr. If the limit on locked memory prevents the registration,
// register deregisters unused memory. If there was unused memory, it then tries to register the n
// bytes a second time. If the limit still prevents the registration, register returns a
// *[MemlockError]. It never returns this error for a registration that locks no memory. The caller
// holds m.mu.
//
// If m.windows is set, register makes the memory bindable, for large messages (conn_large.go). That gives no
// peer access. A kernel device takes only writable memory for that (ib_access_writable): other memory is not bindable.
func (m *memory) register(addr, n uint64, access verbs.AccessFlags) (verbs.MR, error) {
	asked := m.onDevice(access)
	if m.windows && access&fetched == 0 {
		access |= verbs.AccessMWBind
	}
	access = m.onDevice(access)
	lockedOut := func(err error) bool { return locks(n, access) > 0 && m.lockedOut(err) }
	mr, err := m.pd.RegMR(addr, n, addr, access)
	if asked != access && errors.Is(err, syscall.EFAULT) {
		access = asked
		mr, err = m.pd.RegMR(addr, n, addr, access)
	}
	if err != nil && lockedOut(err) && m.giveUpUnused() {
		mr, err = m.pd.RegMR(addr, n, addr, access)
	}
	if err != nil {
		if lockedOut(err) {
			limit, _ := m.memlock()
			return nil, &MemlockError{Limit: limit, Wanted: n, Registered: m.registered, Err: err}
		}
		if access&verbs.AccessFlushPersistent != 0 && errors.Is(err, syscall.EINVAL) {
			// Soft-RoCE returns a bare EINVAL, without the reason (Linux 6.12
			// drivers/infiniband/sw/rxe/rxe_mr.c, is_pmem_page).
			err = fmt.Errorf("%w (AccessFlushPersistent requires persistent memory: on the software RNIC NewFileRegion of any file; on a kernel device NewFileRegion of persistent memory: a devdax device, or a file on a DAX file system)", err)
		}
		return nil, err
	}
	m.registered += locks(n, access)
	return mr, nil
}

// lockedOut reports whether err, the error of a registration, is due to the limit on locked memory.
// The kernel returns ENOMEM if the registration exceeds the limit, and EPERM if the process may
// lock no memory at all (ib_umem_get, can_do_mlock). mlock(2) also documents EAGAIN. These errnos
// have other meanings, too. So lockedOut returns false if the provider names another reason for the
// failure, or if there is no limit.
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

// giveUpUnused deregisters unused memory, and reports whether it has deregistered any memory. The
// caller holds m.mu.
func (m *memory) giveUpUnused() bool {
	before := m.registered
	// Errors are ignored here: memory.Close tries again and reports them.
	_ = m.reapLocked()
	_ = m.cache.Trim(0)
	_, _, _ = m.reclaim()
	return m.registered < before
}
