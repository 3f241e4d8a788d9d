package runtime

import "github.com/verbena-rdma/verbena/verbs"

// Alloc leases a buffer of n bytes, 0 or more, that the device may read and write
// and that peers may not access. The caller owns it until [Buffer.Release].
//
// For up to [MaxPooled] bytes Alloc takes a block from a pool, without blocking or allocating. The
// block's size is the next power of two, at least 64 bytes. If no block is free, Alloc first maps
// and registers another 2 MiB of blocks. For a larger buffer each call of Alloc maps and registers
// memory. Keep such a buffer, or use a [Region].
//
// Errors: *[RangeError] for a negative size; *[NoMemoryError];
// *[MemlockError]; [ErrClosed]; errors of the system or the provider.
//
// Implements: ibv_reg_mr, when it grows.
func (rt *Runtime) Alloc(n int) (Buffer, error) { return rt.mem.Alloc(n) }

// NewRegion maps and registers n zeroed bytes. The region owns them
// until Close. It blocks on the memory's mutex and enters the kernel.
//
// Errors: [ErrInvalid] for an inconsistent set of access flags; *[NoMemoryError];
// *[MemlockError]; [ErrClosed]; errors of the system or the provider.
//
// With [verbs.AccessOnDemand] the memory is not locked: the device faults
// pages in when it uses them; [Region.Prefetch] faults them in beforehand.
// NewRegion fails with ErrNotSupported if the device does not support on-demand memory
// (DeviceAttr.ODP). Register and NewFileRegion treat AccessOnDemand in the same way.
//
// Implements: ibv_reg_mr.
func (rt *Runtime) NewRegion(n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.NewRegion(n, access)
}

// NewFileRegion is NewRegion with the bytes of a file, which peers then write and read. It creates
// a missing file and extends a shorter file with zeroes. With AccessFlushPersistent peers can FLUSH
// data persistently: the data is on disk when the future of the FLUSH is settled. No process may
// truncate the file while the region is open: an access to a page past the file's end kills this
// process.
//
// NewFileRegion works only on Linux; elsewhere it returns errors.ErrUnsupported. For
// AccessFlushPersistent the device must accept file mappings, as the software RNIC does; kernel
// devices accept only mappings of persistent memory (a DAX file system). NewFileRegion waits for
// the disk. Errors: as NewRegion, and the system's errors for the file.
//
// Implements: open(2), mmap(2), ibv_reg_mr.
func (rt *Runtime) NewFileRegion(path string, n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.NewFileRegion(path, n, access)
}

// ImportDMABuf registers a buffer of another device, for example memory of a GPU, so that
// operations and peers access the buffer without an intermediate copy. The other device exports
// the buffer as the dma-buf descriptor fd. The region is the buffer's n bytes from offset. Bytes
// returns nil for the region and its slices; everything else is as for any region. The region
// keeps the buffer alive. The caller still owns fd, and may close it as soon as ImportDMABuf has
// returned.
//
// The argument access may contain local write, the remote bits and relaxed ordering, but no
// window binding and no FLUSH. The other device may have to be synchronized before it sees data
// written to the region: see its documentation.
//
// It blocks on the memory's mutex and enters the kernel. Errors: [ErrInvalid] for invalid arguments
// or an unsuitable fd; [ErrNotSupported] without support in the device, its driver, the library or
// the kernel (the software RNIC; Linux before 5.12); [ErrClosed]; errors of the provider.
//
// Implements: ibv_reg_dmabuf_mr.
func (rt *Runtime) ImportDMABuf(fd int, offset uint64, n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.ImportDMABuf(fd, offset, n, access)
}

// Register registers memory that the caller mapped (a file, shared memory of another process, a
// device's memory). It keeps registrations in a cache: if b is registered already with the same
// access, Register does not call the device. Without remote access it is enough that b is part of a
// registered range. The caller still owns b.
//
// Closing the region does not end the registration, which stays in the cache for the next Register.
// The caller must therefore call [Runtime.Invalidate] before it unmaps b. Otherwise the device
// keeps the old pages, and Register takes a new mapping at the same address for the old one. The
// processor must be able to read b, because it copies inline data (Options.Inline).
//
// It blocks on the memory's mutex and enters the kernel. Errors: as NewRegion;
// *[OwnMemoryError] for memory mapped by this library; errors of mem.Adopt,
// for example if b is on the Go heap, which a device must never access.
//
// Implements: ibv_reg_mr.
func (rt *Runtime) Register(b []byte, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.Register(b, access)
}

// Invalidate ends all cached registrations that overlap b. Call it before you unmap b, or after you
// have remapped b. If regions still use some of the registrations, Invalidate returns an error that
// wraps [ErrBusy]. New calls of Register do not share these registrations, and they end when their
// regions are closed. The caller may unmap b only after Invalidate has returned nil. Invalidate
// blocks on the memory's mutex and enters the kernel.
//
// Implements: ibv_dereg_mr.
func (rt *Runtime) Invalidate(b []byte) error { return rt.mem.Invalidate(b) }

// MemoryStats returns the memory's counters. It is meant for monitoring, because it locks the
// memory's mutex and visits all leases. While other goroutines allocate and release buffers, InUse
// and Buffers are estimates.
func (rt *Runtime) MemoryStats() MemoryStats { return rt.mem.Stats() }
