package mem

import (
	"sort"
	"sync"
	"sync/atomic"
)

// entry is one live arena. reach is the largest end of this and all earlier
// entries: a walk to the left can stop where it falls short.
type entry struct {
	addr, end uint64
	reach     uint64
	arena     *Arena
}

// live is the registry: sorted by addr, copied on every write. Written under
// liveMu by register and unregister; read without a lock by Find and Live. The
// store publishes the table's contents, which never change afterwards.
var (
	liveMu sync.Mutex
	live   atomic.Pointer[[]entry]
)

func table() []entry {
	if p := live.Load(); p != nil {
		return *p
	}
	return nil
}

func register(a *Arena) {
	liveMu.Lock()
	defer liveMu.Unlock()
	old := table()
	i := sort.Search(len(old), func(i int) bool { return old[i].addr > a.addr })
	next := make([]entry, 0, len(old)+1)
	next = append(next, old[:i]...)
	next = append(next, entry{addr: a.addr, end: a.addr + uint64(a.total), arena: a})
	next = append(next, old[i:]...)
	publish(next)
}

func unregister(a *Arena) {
	liveMu.Lock()
	defer liveMu.Unlock()
	old := table()
	next := make([]entry, 0, len(old))
	for _, e := range old {
		if e.arena != a {
			next = append(next, e)
		}
	}
	publish(next)
}

func publish(t []entry) {
	var reach uint64
	for i := range t {
		reach = max(reach, t[i].end)
		t[i].reach = reach
	}
	live.Store(&t)
}

// Find is the smallest live arena that holds all n bytes at addr, or false. n
// may be 0, also at the very end of an arena. It takes no lock, does not
// allocate, and may be called from any goroutine. The answer may be unmapped a
// moment later: pin it before using it, or know otherwise that it lives.
func Find(addr uint64, n int) (*Arena, bool) {
	if n < 0 || addr+uint64(n) < addr {
		return nil, false
	}
	end := addr + uint64(n)
	t := table()
	// First entry that begins above addr; those that can hold it stand before.
	lo, hi := 0, len(t)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if t[mid].addr > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	var best *Arena
	var size uint64
	for i := lo - 1; i >= 0 && t[i].reach >= end; i-- {
		if t[i].end >= end {
			if s := t[i].end - t[i].addr; best == nil || s < size {
				best, size = t[i].arena, s
			}
		}
	}
	return best, best != nil
}

// Live is the number of live arenas, mapped and adopted, and their bytes. Tests
// use it to find leaks. It takes no lock.
func Live() (arenas int, bytes int64) {
	t := table()
	for i := range t {
		bytes += int64(t[i].end - t[i].addr)
	}
	return len(t), bytes
}
