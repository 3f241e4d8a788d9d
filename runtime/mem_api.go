package runtime

import (
	"context"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Alloc leases a buffer of n bytes; n may be 0. The local device may read and write the buffer, but
// peers may not access it. The caller owns the buffer until [Buffer.Release].
//
// There are three cases:
//
//   - n is at most [MaxPooled], and a pool has a free block: Alloc takes the block, without
//     blocking or allocating. The block's size is n rounded up to a power of two, at least 64
//     bytes.
//   - n is at most MaxPooled, and no block of this size is free: Alloc first maps and registers
//     another 2 MiB of blocks.
//   - n is larger than MaxPooled: Alloc maps and registers memory on each call. To avoid this cost,
//     use a buffer of this size many times before you release it, or use a [Region].
//
// To map and register memory, Alloc blocks on the mutex of the runtime's memory and enters the
// kernel.
//
// Errors: *[RangeError] for a negative size; *[NoMemoryError];
// *[MemlockError]; [ErrClosed]; errors of the system or the provider.
//
// Implements: ibv_reg_mr, when Alloc registers memory.
func (rt *Runtime) Alloc(n int) (Buffer, error) { return rt.mem.Alloc(n) }

// AllocWait is Alloc that blocks only until ctx ends. If ctx has ended before the call, AllocWait allocates nothing. If
// ctx ends while the kernel pins pages, another goroutine finishes the work: a later call for a pooled size finds the
// blocks, and a larger buffer is freed again. Errors: those of Alloc; the context's error; ErrNilContext.
//
// Implements: ibv_reg_mr, when AllocWait registers memory.
func (rt *Runtime) AllocWait(ctx context.Context, n int) (Buffer, error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return Buffer{}, err
	}
	buf, err := rt.mem.allocUntil(asked, n)
	return buf, asked.Cause(ctx, err)
}

// NewRegion maps and registers n zeroed bytes. The region owns the bytes until Close. NewRegion
// blocks on the mutex of the runtime's memory and enters the kernel.
//
// Errors: [ErrInvalid] for an inconsistent set of access flags; *[NoMemoryError];
// *[MemlockError]; [ErrClosed]; errors of the system or the provider.
//
// With [verbs.AccessOnDemand] the memory is not locked: the device faults a page in when the device
// uses the page. [Region.Prefetch] faults pages in beforehand. If the device does not support
// on-demand memory (DeviceAttr.ODP), NewRegion fails with ErrNotSupported. In Register and
// NewFileRegion, AccessOnDemand has the same meaning.
//
// Implements: ibv_reg_mr.
func (rt *Runtime) NewRegion(n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.NewRegion(n, access)
}

// NewFileRegion is NewRegion for the first n bytes of a file: peers read and write the file. It
// creates a missing file, and extends a shorter file with zeroes. With AccessFlushPersistent, peers
// can FLUSH data persistently: when this FLUSH has completed with success, the data is persistent.
//
// The file may be on a disk, or be persistent memory: a file of a file system mounted with dax
// (fsdax), or a device such as /dev/dax0.0 (devdax), which has a fixed size. [Region.Persistence] shows
// what it is. No process may truncate the file while the region is open: an access to a page past the
// file's end kills the process of the runtime, unless the software RNIC makes the access: then an
// operation ends with an access error. So let no other user write the file or its folder.
//
// On the software RNIC an access to a file on a disk may wait for the disk: for a page that is not in memory, or, after
// the system has written the page back, for the file system's journal. Then the connections that access files of this
// file system wait, and no others. A peer that is another Verbena process waits for the disk, any other until its
// retries are used up. Each WRITE sets the file's times, and takes some 13 µs more than one into memory. Files on tmpfs
// and persistent memory are accessed at once.
//
// NewFileRegion works only on Linux; elsewhere it returns errors.ErrUnsupported. For
// AccessFlushPersistent the device must accept the mapping as persistent. The software RNIC
// accepts every mapping of a file. A kernel device accepts only persistent memory, and Soft-RoCE only
// devdax, because it pins pages for good, and the kernel refuses that for fsdax (FOLL_LONGTERM).
// NewFileRegion waits for the disk; the mutex of the runtime's memory is free meanwhile. If it fails, it
// removes a file that it has created; a file that it has extended stays so. Errors: those of NewRegion,
// and the system's errors for the file.
//
// Implements: open(2), mmap(2), ibv_reg_mr.
func (rt *Runtime) NewFileRegion(path string, n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.NewFileRegion(path, n, access)
}

// ImportDMABuf registers a buffer of another device, for example memory of a GPU. Operations and
// peers then access the buffer without an intermediate copy. The other device exports the buffer as
// a dma-buf; fd is the dma-buf's descriptor. The region has n bytes of the buffer, from offset. The
// method Bytes of the region and of its slices returns nil; in all other respects the region is
// like any other region. The region keeps the buffer alive. The caller still owns fd, and may close
// fd when ImportDMABuf has returned.
//
// The argument access may contain local write, remote access and relaxed ordering, but no window
// binding and no FLUSH. The program may have to synchronize the other device before that device
// sees data that was written to the region: see the documentation of that device.
//
// ImportDMABuf blocks on the mutex of the runtime's memory and enters the kernel. Errors:
// [ErrInvalid] for invalid arguments or an unsuitable fd; [ErrNotSupported] if the device, its
// driver, libibverbs or the kernel does not support dma-bufs (the software RNIC and Linux before
// 5.12 do not); [ErrClosed]; errors of the provider.
//
// Implements: ibv_reg_dmabuf_mr.
func (rt *Runtime) ImportDMABuf(fd int, offset uint64, n int, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.ImportDMABuf(fd, offset, n, access)
}

// Register registers the memory b, which the caller has mapped: a file, shared memory of another
// process, or a device's memory. The caller still owns b. The processor must be able to read b,
// because the processor copies inline data (Options.Inline).
//
// With remote access the region has a registration, and a key, of its own, which Close ends. So each
// Register and each Close calls the device. On the software RNIC the two take some 65 µs, of which most
// is the list of the process's mappings; a kernel device also pins and releases each page. To open and
// close memory for peers often, use a [Window].
//
// Without remote access registrations are cached. If b, or a larger range that includes b, is
// registered already with the same access, Register shares this registration and does not call the
// device. Closing the region does not end the registration: the registration stays in the cache for
// later calls of Register. So the caller must call [Runtime.Invalidate] before it unmaps b. Otherwise
// the device keeps the old pages, and a later Register of a new mapping at the same address shares the
// old registration.
//
// The mapping must permit the access: with LOCAL_WRITE also to write, and without
// [verbs.AccessOnDemand] b may not reach beyond the end of its file. It must stay so, and stay mapped,
// while it is registered. If it does not, an operation that meets it ends with an access error at both
// ends of the connection; inline data makes the system's driver of a kernel device fault.
//
// Register blocks on the mutex of the runtime's memory and may enter the kernel. Errors: those of
// NewRegion; EFAULT if the mapping of b does not permit access, or has no pages there;
// *[OwnMemoryError] for memory that this library mapped; an error if b is on the Go heap, which a
// device must never access, and other errors of mem.Adopt.
//
// Implements: ibv_reg_mr.
func (rt *Runtime) Register(b []byte, access verbs.AccessFlags) (*Region, error) {
	return rt.mem.Register(b, access)
}

// Invalidate ends all cached registrations that overlap b. Call it before you unmap b, or after you
// have remapped b. If an open region uses one of these registrations, Invalidate returns an error
// that wraps [ErrBusy]. Later calls of Register do not share that registration, which ends when all
// regions that use it are closed. The caller may unmap b only after Invalidate has returned nil.
// Invalidate blocks on the mutex of the runtime's memory and enters the kernel.
//
// Implements: ibv_dereg_mr.
func (rt *Runtime) Invalidate(b []byte) error { return rt.mem.Invalidate(b) }

// MemoryStats returns the counters of the runtime's memory. Do not call it often: it locks the
// mutex of the memory and visits all leases. While other goroutines allocate and release buffers,
// InUse, Buffers and Receives are estimates; Receives never exceeds Buffers.
func (rt *Runtime) MemoryStats() MemoryStats {
	receives := 0 // counted first: what is made afterwards counts in Buffers only
	for _, sh := range rt.shards {
		receives += sh.pooledRecvs()
	}
	s := rt.mem.Stats()
	s.Receives = min(receives, s.Buffers) // some may have been released in between
	return s
}
