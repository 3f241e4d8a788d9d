package mem

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
)

// entry is one live arena. reach is the largest end of this and all earlier entries of its chunk:
// a walk to the left stops where reach is too small.
type entry struct {
	addr, end uint64
	reach     uint64
	arena     *Arena
}

// chunk is a run of consecutive entries, at least one. It is immutable.
type chunk struct {
	entries []entry // sorted by addr
	reach   uint64  // the largest end in this and all earlier chunks
}

// chunkMax is the largest number of entries in a chunk. A change copies one chunk and the list of
// chunks: with the tens of thousands of arenas of as many connections the two are of similar
// size.
const chunkMax = 128

// live is the registry: chunks sorted by the address of their first entry, copied on
// every write. Written under liveMu by register and unregister; read without a lock by
// Find and Live. The store publishes the chunks, which never change afterwards.
var (
	liveMu sync.Mutex
	live   atomic.Pointer[[]chunk]
)

func table() []chunk {
	if p := live.Load(); p != nil {
		return *p
	}
	return nil
}

func register(a *Arena) {
	liveMu.Lock()
	defer liveMu.Unlock()
	old := table()
	e := entry{addr: a.addr, end: a.addr + uint64(a.total), arena: a}
	if len(old) == 0 {
		replace(nil, 0, 0, []entry{e})
		return
	}
	c := max(chunksTo(old, e.addr)-1, 0)
	es := old[c].entries
	grown := slices.Insert(slices.Clip(es), entriesTo(es, e.addr), e) // clipped: a copy
	if len(grown) <= chunkMax {
		replace(old, c, 1, grown)
		return
	}
	half := len(grown) / 2
	replace(old, c, 1, grown[:half:half], slices.Clone(grown[half:]))
}

func unregister(a *Arena) {
	liveMu.Lock()
	defer liveMu.Unlock()
	old := table()
	// Other arenas at the same address may come before it, even in an earlier chunk.
	for c := chunksTo(old, a.addr) - 1; c >= 0; c-- {
		es := old[c].entries
		i := slices.IndexFunc(es, func(e entry) bool { return e.arena == a })
		switch {
		case i < 0:
		case len(es) == 1:
			replace(old, c, 1)
			return
		default:
			replace(old, c, 1, slices.Concat(es[:i], es[i+1:]))
			return
		}
	}
}

// replace publishes old with others, which are not yet shared, in the place of n chunks from c
// on.
func replace(old []chunk, c, n int, others ...[]entry) {
	next := make([]chunk, 0, len(old)-n+len(others))
	next = append(next, old[:c]...)
	for _, es := range others {
		var reach uint64
		for i := range es {
			reach = max(reach, es[i].end)
			es[i].reach = reach
		}
		next = append(next, chunk{entries: es})
	}
	next = append(next, old[c+n:]...)
	var reach uint64
	for i := range next {
		es := next[i].entries
		reach = max(reach, es[len(es)-1].reach)
		next[i].reach = reach
	}
	live.Store(&next)
}

// chunksTo returns the number of chunks that begin at addr or below.
func chunksTo(t []chunk, addr uint64) int {
	lo, hi := 0, len(t)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if t[mid].entries[0].addr > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// entriesTo returns the number of entries that begin at addr or below.
func entriesTo(es []entry, addr uint64) int {
	lo, hi := 0, len(es)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if es[mid].addr > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// Find returns the smallest live arena that holds all n bytes at addr, or false. n may be 0, also
// at the very end of an arena. It takes no lock, does not allocate, and may be called from any
// goroutine. The arena may be unmapped at any moment: pin it before using it, unless it is known
// to live.
func Find(addr uint64, n int) (*Arena, bool) {
	if n < 0 || addr+uint64(n) < addr {
		return nil, false
	}
	end := addr + uint64(n)
	t := table()
	var best *Arena
	var size uint64
	// Only arenas that begin at addr or below can hold it.
	for c := chunksTo(t, addr) - 1; c >= 0 && t[c].reach >= end; c-- {
		es := t[c].entries
		for i := entriesTo(es, addr) - 1; i >= 0 && es[i].reach >= end; i-- {
			if es[i].end >= end {
				if s := es[i].end - es[i].addr; best == nil || s < size {
					best, size = es[i].arena, s
				}
			}
		}
	}
	return best, best != nil
}

// Live returns the number of live arenas, mapped and adopted, and their bytes. Tests use it to
// find leaks. It takes no lock.
func Live() (arenas int, bytes int64) {
	for _, c := range table() {
		for i := range c.entries {
			bytes += int64(c.entries[i].end - c.entries[i].addr)
		}
		arenas += len(c.entries)
	}
	return arenas, bytes
}

// All iterates over the live arenas by address. Tests use it to locate memory. It takes no lock.
func All() iter.Seq[*Arena] {
	return func(yield func(*Arena) bool) {
		for _, c := range table() {
			for i := range c.entries {
				if !yield(c.entries[i].arena) {
					return
				}
			}
		}
	}
}
