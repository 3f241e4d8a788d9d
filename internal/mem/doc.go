// Package mem owns off-heap memory and is the one place in Verbena that turns an address into a
// Go view of it.
//
// A device, real or in software, holds addresses past the call that passed them, so its memory
// must never move and never be collected. Go heap memory guarantees neither. All memory that a
// device may access therefore lives in an [Arena]: an anonymous mapping made by [Map], the
// mapping of a file made by [MapFile], or a mapping of the caller's that [Adopt] registered (Adopt
// refuses Go memory with [ErrGoHeap]).
//
// # Persistence
//
// [Arena.Sync] makes bytes of a mapped file persistent. What that takes depends on the file: an
// ordinary one needs the system (msync), persistent memory only an instruction of the processor
// (package writeback). [Arena.Kind] and [Arena.Method] show the choice, which [MapFile] makes. Everyone
// who makes bytes persistent calls Sync: the software RNIC for a FLUSH of a peer, and package runtime
// for its program. So a region behaves the same whatever its file is.
//
// # Addresses and views
//
// Addresses are plain uint64 values: they are stored in work requests and sent over the wire, so
// they are untrusted. A view is made by [Arena.Slice], [Arena.Word], [At] and [Array], which
// check bounds and alignment without overflow and derive the pointer from the base of the arena,
// never from the number alone. [Find] returns the live arena that holds an address.
//
// # Lifetime
//
// The owner of an arena ends it with [Arena.Unmap]. A registration pins the arena, and Unmap
// fails with [ErrPinned] while a pin is held. Views are ordinary Go pointers into memory that the
// garbage collector does not manage: an access after Unmap is a fault, so any user other than the
// owner pins the arena for as long as it keeps a view. The order is always Find, Pin, view: Pin
// refuses an arena that was unmapped in between.
//
// # The race detector
//
// It does not see accesses to mapped memory. Control words of queues therefore live on the Go
// heap (package ring), and freed buffers are filled with [Poison] and checked with [Poisoned]. In
// race builds [At] and [Array] also panic when their type holds Go pointers, which must never be
// off-heap.
//
// # Platforms
//
// Linux has NUMA binding and huge pages. Other systems, and Linux under the tag "portable", have
// plain mappings: [Options] are then hints without effect, and files cannot be mapped.
package mem
