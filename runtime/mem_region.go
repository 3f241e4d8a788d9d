package runtime

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/verbena-rdma/verbena/runtime/internal/regcache"
	"github.com/verbena-rdma/verbena/verbs"
)

// Region is registered memory that lives until it is closed. The runtime maps the memory
// ([Runtime.NewRegion], [Runtime.NewFileRegion]), the caller has mapped it ([Runtime.Register]), or
// another device exports it ([Runtime.ImportDMABuf]). The access flags of the region determine how
// peers may access it. [Region.Remote] returns the descriptor with which a peer addresses the
// region.
//
// Methods may be called from any goroutine. Only Close, Prefetch and Sync block.
type Region struct {
	m         *memory
	lease     lease // counts the operations in flight; its home is the region, and its generation is 0 until Close
	access    verbs.AccessFlags
	mr        verbs.MR
	addr      uint64 // address of the first byte in work requests, both local and of peers
	b         []byte
	deviceLen int // length of memory that this process cannot access (ImportDMABuf), else 0

	// For a region of Register, Region.shared is the registration, and Region.own is zero. For any
	// other region, Region.own has the registration, and Region.shared is nil. For a region of
	// NewRegion or NewFileRegion, Region.own also has the mapping.
	own    mapping
	shared *regcache.Registration

	// closing is held by Close, longer than m.mu, and locked before it. It guards the fields below, and the end of own.
	closing sync.Mutex
	retired bool // no operation is in flight, and none can begin
	closed  bool
}

// NewRegion implements [Runtime.NewRegion].
func (m *memory) NewRegion(size int, access verbs.AccessFlags) (*Region, error) {
	return m.addRegion(size, access, func(r *Region) (err error) {
		if r.own, err = m.mapRegistered(size, m.cfg.Node, access); err != nil {
			return err
		}
		r.mr, r.b = r.own.mr, r.own.arena.Bytes()[:size:size]
		r.addr = r.mr.IOVA()
		return nil
	})
}

// Register implements [Runtime.Register].
func (m *memory) Register(b []byte, access verbs.AccessFlags) (*Region, error) {
	return m.addRegion(len(b), access, func(r *Region) (err error) {
		r.shared, err = m.cache.Acquire(b, access)
		switch {
		case errors.Is(err, regcache.ErrOwn):
			return &OwnMemoryError{Addr: uint64(reflect.ValueOf(b).Pointer()), Len: uint64(len(b))}
		case err != nil:
			return err
		}
		r.mr, r.b, r.addr = r.shared.MR(), b[:len(b):len(b)], r.shared.IOVA(b)
		return nil
	})
}

// addRegion makes a region of size bytes and adds it to m.regions. The given function sets the
// memory and the registration of the region. It is called with m.mu held.
func (m *memory) addRegion(size int, access verbs.AccessFlags, fill func(*Region) error) (*Region, error) {
	if err := checkRegion(size, access); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing.Load() {
		return nil, errMemoryClosed
	}
	r := &Region{m: m, access: m.granted(access)}
	r.lease.home, r.lease.memory = r, m
	if err := fill(r); err != nil {
		return nil, fmt.Errorf("runtime: region of %d bytes: %w", size, err)
	}
	m.regions[r] = struct{}{}
	return r, nil
}

// checkRegion returns an error if no region has this size and access.
func checkRegion(size int, access verbs.AccessFlags) error {
	if size <= 0 {
		return fmt.Errorf("%w: a region of %d bytes", verbs.ErrInvalid, size)
	}
	if !access.Consistent() {
		return fmt.Errorf("%w: region access %v needs LOCAL_WRITE", verbs.ErrInvalid, access)
	}
	return nil
}

// giveBack implements leaseHome. It does nothing, because Region.Close gives the memory back.
func (r *Region) giveBack(uint32) {}

// registration implements leaseHome.
func (r *Region) registration() verbs.MR { return r.mr }

// Invalidate implements [Runtime.Invalidate].
func (m *memory) Invalidate(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cache.Invalidate(b)
}

// Bytes returns the region's memory. It returns nil after Close, and for memory of another device.
// The caller may use the bytes only while the region is open. If a peer or an operation in flight
// may write a byte, read this byte only with atomics, or after a completion that shows that the
// byte has been written.
func (r *Region) Bytes() []byte {
	if !r.lease.live(0) {
		return nil
	}
	return r.b
}

// Len returns the length in bytes.
func (r *Region) Len() int { return len(r.b) + r.deviceLen }

// Access returns the access flags with which the region was registered.
func (r *Region) Access() verbs.AccessFlags { return r.access }

// Slice returns n bytes of the region, from offset off, for use as local memory of operations.
// Errors: *[RangeError] if the range is not inside the region; [ErrReleased] after Close.
func (r *Region) Slice(off, n int) (Slice, error) {
	if err := checkRange("region", off, n, r.Len()); err != nil {
		return Slice{}, err
	}
	if !r.lease.live(0) {
		return Slice{}, ErrReleased
	}
	s := Slice{addr: r.addr + uint64(off), lkey: r.mr.LKey(), access: r.access, lease: &r.lease}
	if r.deviceLen > 0 {
		s.deviceLen = n
	} else {
		s.b = r.b[off : off+n : off+n]
	}
	return s, nil
}

// Remote returns a descriptor with which a peer can address n bytes of the region, from offset off.
// The key of the descriptor opens the whole region: the device checks the peer's requests against
// the bounds of the region, not against those of the n bytes. Errors: *[RangeError]; [ErrReleased]
// after Close; [ErrInvalid] if the region's access flags permit no remote access.
func (r *Region) Remote(off, n int) (Remote, error) {
	if err := checkRange("region", off, n, r.Len()); err != nil {
		return Remote{}, err
	}
	if !r.lease.live(0) {
		return Remote{}, ErrReleased
	}
	if r.access&regcache.RemoteAccess == 0 {
		return Remote{}, fmt.Errorf("%w: a region with access %v permits no remote access", verbs.ErrInvalid, r.access)
	}
	return Remote{Addr: r.addr + uint64(off), Length: uint64(n), RKey: r.mr.RKey(), Access: r.access & regcache.RemoteAccess}, nil
}

// Close ends the region. It deregisters the memory, and unmaps it if the runtime mapped it. The
// region's keys become invalid: a peer that still uses a key gets a remote access error. A region
// of [Runtime.Register] without remote access is different: Close returns its registration to the
// cache.
//
// While operations are in flight or windows are bound, Close changes nothing and returns an error
// that wraps [ErrBusy]. Close is idempotent. It waits for the mutex of the runtime's memory and
// enters the kernel. On the software RNIC it waits for the disk if FLUSHes or accesses of peers are waiting for the
// region's file.
//
// Implements: ibv_dereg_mr.
func (r *Region) Close() error {
	r.closing.Lock()
	defer r.closing.Unlock()
	if r.closed {
		return nil
	}
	if !r.retired {
		if n, ok := r.lease.retire(0); !ok {
			return fmt.Errorf("%w: %d operations in flight or bound windows use a region of %d bytes", verbs.ErrBusy, n, r.Len())
		}
		r.retired = true
	}
	f, err := r.own.free() // may wait for the disk, so m.mu is not locked
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.m.count(f)
	if r.shared != nil {
		err = r.m.cache.Release(r.shared)
	} else if err != nil {
		err = fmt.Errorf("runtime: closing a region of %d bytes: %w", r.Len(), err)
	}
	if err != nil {
		return err // a later Close tries again
	}
	r.closed = true
	delete(r.m.regions, r)
	return nil
}
