//go:build unix

package regcache

import (
	"errors"
	"maps"
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"pgregory.net/rapid"
)

// TestMain fails the run when goroutines, descriptors or mappings are left behind.
func TestMain(m *testing.M) { leak.Main(m) }

// fakeMR is a registration of a fake device.
type fakeMR struct {
	verbs.MR
	addr, length uint64
	access       verbs.AccessFlags
	closed       bool
}

func (m *fakeMR) Close() error { m.closed = true; return nil }

// modelEntry is a registration in the model.
type modelEntry struct {
	from, to int // pages
	access   verbs.AccessFlags
	users    int
	doomed   bool // an Invalidate found it in use
	used     int  // the time of its last release
}

// peersMay is the permissions that a peer's request needs, one by one.
var peersMay = []verbs.AccessFlags{
	verbs.AccessRemoteWrite, verbs.AccessRemoteRead, verbs.AccessRemoteAtomic, verbs.AccessFlushGlobal, verbs.AccessFlushPersistent,
}

// forPeers reports whether a peer with the key of a registration with access has any.
func forPeers(access verbs.AccessFlags) bool {
	return slices.ContainsFunc(peersMay, func(may verbs.AccessFlags) bool { return access&may != 0 })
}

// mayStandFor states the rule independently of the code: a registration may serve a request for
// pages [from, to) with access if it gives the device this access to these pages, if peers have
// access by neither, and if it is not doomed.
func (e *modelEntry) mayStandFor(from, to int, access verbs.AccessFlags) bool {
	switch {
	case e.doomed || from < e.from || to > e.to:
		return false
	case forPeers(e.access) || forPeers(access):
		return false
	case access&verbs.AccessLocalWrite != 0 && e.access&verbs.AccessLocalWrite == 0:
		return false
	}
	return access&verbs.AccessRelaxedOrdering == e.access&verbs.AccessRelaxedOrdering
}

// cacheModel models the registrations of a cache that keeps most idle ones.
type cacheModel struct {
	most    int
	clock   int
	entries map[*fakeMR]*modelEntry
}

// release ends one use.
func (m *cacheModel) release(mr *fakeMR) {
	e := m.entries[mr]
	m.clock++
	if e.users, e.used = e.users-1, m.clock; e.users > 0 {
		return
	}
	if e.doomed || forPeers(e.access) {
		delete(m.entries, mr)
		return
	}
	idle := slices.DeleteFunc(slices.Collect(maps.Keys(m.entries)), func(mr *fakeMR) bool { return m.entries[mr].users > 0 })
	if len(idle) > m.most {
		delete(m.entries, slices.MinFunc(idle, func(a, b *fakeMR) int { return m.entries[a].used - m.entries[b].used }))
	}
}

// invalidate reports whether an overlapping registration is in use.
func (m *cacheModel) invalidate(from, to int) (busy bool) {
	for mr, e := range m.entries {
		switch {
		case e.to <= from || to <= e.from:
		case e.users > 0:
			e.doomed, busy = true, true
		default:
			delete(m.entries, mr)
		}
	}
	return busy
}

// Rule: a registration is shared exactly when peers have no access by it, and sharing gives the device
// no more or less than was requested; idle ones are kept, the most recently used, until they are
// invalidated. One with access for peers ends with its only user. The cache always holds the same
// registrations as the model.
func TestCacheAgainstModel(t *testing.T) {
	const pages, page, most = 6, 4096, 3 // few enough that pieces often overlap
	b := must.Get(syscall.Mmap(-1, 0, pages*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE))(t)
	defer func() {
		if err := syscall.Munmap(b); err != nil {
			t.Errorf("the caller cannot unmap its memory: %v", err)
		}
	}()
	const openToPeers = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead
	accesses := []verbs.AccessFlags{
		0, verbs.AccessLocalWrite, verbs.AccessRemoteRead, verbs.AccessLocalWrite | verbs.AccessRemoteRead, openToPeers,
		verbs.AccessLocalWrite | verbs.AccessRelaxedOrdering,
	}
	shared, fresh := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		calls, registered := 0, uint64(0)
		c := &Cache{Keep: most, Register: func(addr, n uint64, access verbs.AccessFlags) (verbs.MR, error) {
			calls++
			registered += n
			return &fakeMR{addr: addr, length: n, access: access}, nil
		}, Deregistered: func(n uint64, _ verbs.AccessFlags) { registered -= n }}
		model := &cacheModel{most: most, entries: map[*fakeMR]*modelEntry{}}
		var open []*Registration
		piece := func() (from, to int, p []byte) {
			from = rapid.IntRange(0, pages-1).Draw(rt, "from")
			to = rapid.IntRange(from+1, pages).Draw(rt, "to")
			return from, to, b[from*page : to*page]
		}
		rt.Repeat(map[string]func(*rapid.T){
			"register": func(rt *rapid.T) {
				from, to, p := piece()
				access := rapid.SampledFrom(accesses).Draw(rt, "access")
				possible := false
				for _, e := range model.entries {
					possible = possible || e.mayStandFor(from, to, access)
				}
				before := calls
				r := must.Get(c.Acquire(p, access))(rt)
				mr := r.MR().(*fakeMR)
				e := model.entries[mr]
				switch {
				case (calls == before) != possible:
					rt.Fatalf("pages %d to %d with %v: the device was asked %d times, may be shared %v", from, to, access, calls-before, possible)
				case possible && (e == nil || !e.mayStandFor(from, to, access)):
					rt.Fatalf("pages %d to %d with %v share %+v", from, to, access, e)
				case possible:
					shared++
				default:
					fresh++
					e = &modelEntry{from: from, to: to, access: access}
					if addr, end := span(p); mr.addr != addr || mr.addr+mr.length != end || mr.access != access {
						rt.Fatalf("pages %d to %d with %v are registered as [%#x,%#x) with %v", from, to, access, mr.addr, mr.addr+mr.length, mr.access)
					}
					model.entries[mr] = e
				}
				e.users++
				open = append(open, r)
			},
			"close": func(rt *rapid.T) {
				if len(open) == 0 {
					rt.Skip("no region")
				}
				i := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
				must.Do(rt, c.Release(open[i]))
				model.release(open[i].MR().(*fakeMR))
				open = append(open[:i], open[i+1:]...)
			},
			"invalidate": func(rt *rapid.T) {
				from, to, p := piece()
				busy := model.invalidate(from, to)
				if err := c.Invalidate(p); errors.Is(err, verbs.ErrBusy) != busy || !busy && err != nil {
					rt.Fatalf("Invalidate: %v, in use %v", err, busy)
				}
			},
			"": func(rt *rapid.T) {
				idle, bytes := 0, uint64(0)
				for mr, e := range model.entries {
					if mr.closed {
						rt.Fatalf("%+v is not registered any more", e)
					}
					if bytes += mr.length; e.users == 0 {
						idle++
					}
				}
				if _, _, n := c.Stats(); n != idle || len(c.index) != len(model.entries) || registered != bytes {
					rt.Fatalf("%d registrations, %d of them idle, %d bytes counted; want %d, %d and %d",
						len(c.index), n, registered, len(model.entries), idle, bytes)
				}
			},
		})
		for _, r := range open {
			must.Do(rt, c.Release(r))
		}
		if err := c.Trim(0); err != nil || registered != 0 || len(c.index) != 0 {
			rt.Fatalf("at the end: %v, %d registrations of %d bytes are left", err, len(c.index), registered)
		}
	})
	if shared == 0 || fresh == 0 {
		t.Errorf("%d were shared and %d were not: the run does not show what it should", shared, fresh)
	}
	t.Logf("%d were shared, %d were not", shared, fresh)
}
