package runtime

import "github.com/verbena-rdma/verbena/verbs"

// Alloc leases a buffer of n bytes, 0 or more, that the device may read and
// write, and peers may not touch. The caller owns it until [Buffer.Release].
//
// Up to [MaxPooled] bytes it takes a block of the next power of two, at least
// 64 bytes, without blocking or allocating; if there is none, it maps and
// registers another 2 MiB of them first. A larger buffer is mapped and
// registered each time: keep it, or use a [Region].
//
// Errors: *[RangeError] for a negative size; *[NoMemoryError];
// *[MemlockError]; [ErrClosed]; what the system or the provider answered.
//
// Implements: ibv_reg_mr, when it grows.
func (rt *Runtime) Alloc(n int) (Buffer, error) { return rt.mem.Alloc(n) }

// NewRegion maps and registers size bytes, zeroed. The region owns them until
// Close. It blocks on the memory's mutex and enters the kernel.
//
// Errors: [ErrInvalid] for access that does not fit together;
// *[NoMemoryError]; *[MemlockError]; [ErrClosed]; what the system or the
// provider answered.
//
// With [verbs.AccessOnDemand] the memory is not locked: the device brings pages in
// as they are used, at the cost of a fault each ([Region.Prefetch] takes it
// beforehand). It is ErrNotSupported where DeviceAttr.ODP says that the device
// cannot. The same goes for Register and NewFileRegion.
//
// Implements: ibv_reg_mr.
func (rt *Runtime) NewRegion(n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.NewRegion(n, access)
}

// NewFileRegion is NewRegion on a file: peers write and read it, and what they
// FLUSH persistently (AccessFlushPersistent) is on disk when their future is
// settled. A missing file is made, a shorter one extended with zeroes; its bytes
// are the region's. The file must not be cut short by anybody while the region is
// open: touching a page behind its end kills the process.
//
// Linux only; elsewhere errors.ErrUnsupported. Persistent FLUSH needs a device
// that takes file mappings, as the software RNIC does; devices of the kernel take
// those of persistent memory (a DAX file system) only. It blocks for the disk.
// Errors: as NewRegion, and what the system says of the file.
//
// Implements: open(2), mmap(2), ibv_reg_mr.
func (rt *Runtime) NewFileRegion(path string, n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.NewFileRegion(path, n, access)
}

// ImportDMABuf registers size bytes from offset of a buffer that another device
// exports as a descriptor (a dma-buf: the memory of a GPU, say), so that
// operations and peers reach it without a copy in between. The region and its
// slices have no Bytes; all else is as of other regions. It holds the buffer: fd
// stays the caller's, who may close it at once.
//
// Access may have local write, the remote bits and relaxed ordering; no windows,
// no FLUSH. What else is to be done before the other device sees what was
// written, its documentation says.
//
// It blocks on the memory's mutex and enters the kernel. Errors: [ErrInvalid]
// for arguments or an fd that do not fit; [ErrNotSupported] where the device,
// its driver, the library or the kernel cannot (the software RNIC; Linux before
// 5.12); [ErrClosed]; what the provider answered.
//
// Implements: ibv_reg_dmabuf_mr.
func (rt *Runtime) ImportDMABuf(fd int, offset uint64, n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.ImportDMABuf(fd, offset, n, access)
}

// Register registers memory that the caller mapped (a file, shared memory of
// another process, a device's), through a cache: a range registered before, or
// inside one that peers cannot reach, costs no call of the device. The caller
// keeps owning b.
//
// Closing the region does not end the registration, which waits in the cache
// for the next user. Before the caller unmaps b it must therefore call
// [Runtime.Invalidate]: else the device keeps the old pages, and a new mapping at
// the same address would be taken for the old one. The device is not the only one to read
// b: what a request carries in itself (Options.Inline) the processor reads.
//
// It blocks on the memory's mutex and enters the kernel. Errors: as NewRegion,
// *[OwnMemoryError] for memory of this library's, and what mem.Adopt answers, such as for memory of the Go heap, which a device
// may never have.
//
// Implements: ibv_reg_mr.
func (rt *Runtime) Register(b []byte, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.Register(b, access)
}

// Invalidate ends all cached registrations that overlap b, which the caller is
// about to unmap, or has remapped. If some are in use it returns an error that
// wraps [ErrBusy]: those are not shared any more and go when their regions
// are closed; then b may be unmapped once Invalidate returned nil. It blocks on
// the memory's mutex and enters the kernel.
//
// Implements: ibv_dereg_mr.
func (rt *Runtime) Invalidate(b []byte) error { return rt.mem.Invalidate(b) }

// MemoryStats counts what the memory has. It waits for the mutex and walks all leases: it is for
// monitoring. While buffers come and go, InUse and Buffers are estimates.
func (rt *Runtime) MemoryStats() MemoryStats { return rt.mem.Stats() }
