package soft

import (
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// wrMemory reads receive work requests from off-heap memory. It caches the arena of the last one,
// because the next is usually in the same. It belongs to the poster.
type wrMemory struct{ arena *mem.Arena }

// recv returns the request at addr.
func (m *wrMemory) recv(addr uint64) (*verbs.RecvWR, bool) {
	if m.arena != nil {
		if wr, ok := mem.At[verbs.RecvWR](m.arena, addr); ok {
			return wr, true
		}
	}
	a, ok := mem.Find(addr, verbs.SizeofRecvWR)
	if !ok {
		return nil, false
	}
	m.arena = a
	return mem.At[verbs.RecvWR](a, addr)
}

// list returns the n elements at addr.
func (m *wrMemory) list(addr uint64, n uint32) ([]verbs.SGE, bool) {
	if n == 0 {
		return nil, true
	}
	if m.arena != nil {
		if s, ok := mem.Array[verbs.SGE](m.arena, addr, int(n)); ok {
			return s, true
		}
	}
	a, ok := mem.Find(addr, int(n)*verbs.SizeofSGE)
	if !ok {
		return nil, false
	}
	return mem.Array[verbs.SGE](a, addr, int(n))
}
