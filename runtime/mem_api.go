package runtime

import "github.com/verbena-rdma/verbena/verbs"

// Alloc leases n bytes of registered memory from the runtime's pools; see
// Memory.Alloc.
func (rt *Runtime) Alloc(n int) (Buffer, error) { return rt.mem.Alloc(n) }

// NewRegion makes n bytes of memory that peers may use as access says; see
// Memory.NewRegion.
func (rt *Runtime) NewRegion(n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.NewRegion(n, access)
}

// NewFileRegion makes a file's bytes memory that peers may use, and persist; see
// Memory.NewFileRegion.
func (rt *Runtime) NewFileRegion(path string, n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.NewFileRegion(path, n, access)
}

// ImportDMABuf makes memory of another device memory that operations and peers may
// use; see Memory.ImportDMABuf.
func (rt *Runtime) ImportDMABuf(fd int, offset uint64, n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.ImportDMABuf(fd, offset, n, access)
}

// Register registers a mapping of the caller; see Memory.Register.
func (rt *Runtime) Register(b []byte, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.Register(b, access)
}

// Invalidate forgets all cached registrations of b; see Memory.Invalidate.
func (rt *Runtime) Invalidate(b []byte) error { return rt.mem.Invalidate(b) }

// MemoryStats are the counters of the runtime's memory.
func (rt *Runtime) MemoryStats() MemoryStats { return rt.mem.Stats() }
