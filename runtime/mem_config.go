package runtime

import "fmt"

// DefaultCacheEntries is how many unused registrations of caller-owned memory
// are kept. Each holds its memory pinned, so it is a handful of working sets
// and not a history.
const DefaultCacheEntries = 64

// MemoryConfig describes the memory of a runtime. The zero value works.
type MemoryConfig struct {
	// MaxBytes limits what is mapped for buffers and regions together; default
	// 0: no limit but the system's. At least one slab of 2 MiB. Memory that the
	// caller mapped and registers does not count.
	MaxBytes int64
	// HugePages asks for huge pages, reserved ones if the system has them, else
	// transparent ones. Every mapping is then rounded up to 2 MiB. Default: no.
	HugePages bool
	// Node is the NUMA node of all memory, counted from 1. Default 0: the device's,
	// where the system says which that is; else receive buffers are on the node of
	// their connection's reactor, and the rest on that of the thread that first touches
	// a page.
	Node int
	// PoisonFreed is for finding faults: a buffer given back is overwritten,
	// and a write to it before it is allocated again panics there, with the
	// offset. It costs two passes over the block per lease. Default: no.
	PoisonFreed bool
	// CacheEntries is how many unused registrations of caller-owned memory are
	// kept for the next [Runtime.Register]; default [DefaultCacheEntries],
	// negative for none.
	CacheEntries int
}

func (c MemoryConfig) validate() (MemoryConfig, error) {
	switch {
	case c.CacheEntries == 0:
		c.CacheEntries = DefaultCacheEntries
	case c.CacheEntries < 0:
		c.CacheEntries = 0
	}
	switch {
	case c.MaxBytes < 0 || c.MaxBytes > 0 && c.MaxBytes < slabSize:
		return c, fmt.Errorf("%w: MemoryConfig.MaxBytes is %d, want 0 or at least one slab of %d", ErrConfig, c.MaxBytes, slabSize)
	case c.Node < 0:
		return c, fmt.Errorf("%w: MemoryConfig.Node is %d, want 0 or a node counted from 1", ErrConfig, c.Node)
	}
	return c, nil
}
