package runtime

import "fmt"

// DefaultCacheEntries is how many unused registrations of caller-owned memory a runtime keeps by
// default. The number is small, because each unused registration keeps its memory pinned.
const DefaultCacheEntries = 64

// MemoryConfig describes the memory of a runtime. The zero value works.
type MemoryConfig struct {
	// MaxBytes limits the memory mapped for buffers and regions together, and must be at least 2
	// MiB. Memory that the caller mapped and registered does not count. With 0, the default, only
	// the system limits the memory.
	MaxBytes int64
	// HugePages requests huge pages: reserved huge pages if the system has them, otherwise
	// transparent huge pages. The size of every mapping is then rounded up to a multiple of 2 MiB.
	// Default: no.
	HugePages bool
	// Node selects the NUMA node of all memory: n+1 stands for node n of the system. The default 0
	// means the device's node. If the system does not report the device's node, the receive buffers
	// of a managed connection are on the node of the connection's reactor, and each other page is
	// on the node of the thread that first touches the page.
	Node int
	// PoisonFreed finds writes to released buffers. The runtime overwrites a released buffer with a
	// pattern. Before the runtime allocates the memory again or unmaps it, the runtime checks the
	// pattern. If a byte has changed, the runtime panics with the offset of this byte. The cost is
	// that each Alloc reads the whole block of memory, and each release writes the whole block.
	// Default: no.
	PoisonFreed bool
	// CacheEntries is how many unused registrations of caller-owned memory the runtime keeps for
	// later calls of [Runtime.Register]. Default [DefaultCacheEntries]; negative: none.
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
