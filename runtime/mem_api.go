package runtime

import "github.com/verbena-rdma/verbena/verbs"

// Alloc leases a buffer of n bytes, 0 or more, that the device may read and write
// and that peers may not access. The caller owns it until [Buffer.Release].
//
// Up to [MaxPooled] bytes it takes a block of the next power of two, at least 64 bytes, without
// blocking or allocating. If no block is free, it first maps and registers another 2 MiB of
// blocks. Alloc maps and registers a larger buffer on each call: keep it, or use a [Region].
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
// NewRegion fails with ErrNotSupported where DeviceAttr.ODP shows that the device
// does not support this. The same holds for Register and NewFileRegion.
//
// Implements: ibv_reg_mr.
func (rt *Runtime) NewRegion(n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.NewRegion(n, access)
}

// NewFileRegion is NewRegion on a file: peers write and read the file, and data
// that they FLUSH persistently (AccessFlushPersistent) is on disk when the future
// of the FLUSH is settled. It creates a missing file and extends a shorter one with
// zeroes; the region contains the file's bytes. No process may truncate the file while
// the region is open: an access to a page past the file's end kills this process.
//
// Linux only; elsewhere errors.ErrUnsupported. Persistent FLUSH needs a device
// that accepts file mappings, as the software RNIC does; kernel devices accept
// only mappings of persistent memory (a DAX file system). It blocks for the
// disk. Errors: as NewRegion, and the system's errors for the file.
//
// Implements: open(2), mmap(2), ibv_reg_mr.
func (rt *Runtime) NewFileRegion(path string, n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.NewFileRegion(path, n, access)
}

// ImportDMABuf registers n bytes from offset of a buffer that another device exports as a dma-buf
// descriptor (the memory of a GPU, for example), so that operations and peers reach it without an
// intermediate copy. The region and its slices have no Bytes; otherwise they behave like those of
// any region. The region keeps the buffer alive. The caller keeps fd, and may close it as soon as
// ImportDMABuf has returned.
//
// The argument access may contain local write, the remote bits and relaxed ordering,
// but no window binding and no FLUSH. The documentation of the other device says how
// to synchronize that device before it sees data written here.
//
// It blocks on the memory's mutex and enters the kernel. Errors: [ErrInvalid] for invalid arguments
// or an unsuitable fd; [ErrNotSupported] without support in the device, its driver, the library or
// the kernel (the software RNIC; Linux before 5.12); [ErrClosed]; errors of the provider.
//
// Implements: ibv_reg_dmabuf_mr.
func (rt *Runtime) ImportDMABuf(fd int, offset uint64, n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.ImportDMABuf(fd, offset, n, access)
}

// Register registers memory that the caller mapped (a file, shared memory of another
// process, a device's memory) through a cache. A range that is registered already needs no call
// of the device; without remote access the same holds for a part of such a range. The caller
// keeps owning b.
//
// Closing the region does not end the registration, which stays in the cache for the next user.
// Before the caller unmaps b it must therefore call [Runtime.Invalidate]; otherwise the device
// keeps the old pages, and a new mapping at the same address is mistaken for the old one. The
// processor must be able to read b, because it copies inline data (Options.Inline).
//
// It blocks on the memory's mutex and enters the kernel. Errors: as NewRegion;
// *[OwnMemoryError] for memory mapped by this library; errors of mem.Adopt,
// such as for memory of the Go heap, which a device must never access.
//
// Implements: ibv_reg_mr.
func (rt *Runtime) Register(b []byte, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.Register(b, access)
}

// Invalidate ends all cached registrations that overlap b, which the caller is about to
// unmap or has remapped. If regions still use some of them, Invalidate returns an error that
// wraps [ErrBusy]: those registrations are no longer shared and end when their regions are
// closed. The caller may unmap b only after Invalidate has returned nil. Invalidate blocks
// on the memory's mutex and enters the kernel.
//
// Implements: ibv_dereg_mr.
func (rt *Runtime) Invalidate(b []byte) error { return rt.mem.Invalidate(b) }

// MemoryStats returns the memory's counters. It takes the mutex and visits all leases: it is meant
// for monitoring. While buffers are allocated and released, InUse and Buffers are estimates.
func (rt *Runtime) MemoryStats() MemoryStats { return rt.mem.Stats() }
