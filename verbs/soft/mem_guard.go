package soft

import (
	"math"
	"runtime"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// guard protects registered memory that packets point into from being read after its owner has
// taken it back. Requests carry the guard of their queue pair, READ responses the guard of the
// region they read.
//
//	          Enter / Leave
//	           ┌─────┐
//	           v     │          kill                    last Leave
//	live, 0 readers ─┴─ n ──────────> dead, n readers ──────────> dead, 0
//
// A receiver enters before it reads the payload and leaves afterwards. If the guard is dead it
// drops the packet, as if the link had lost it. kill marks the guard dead and waits only for the
// receivers that are copying at this moment, never for packets that wait in an inbox. So after an
// error or flush completion, a destroyed queue pair or a deregistered region, no receiver reads
// an old packet, and no control call waits for the network. A success needs no guard: its PSN is
// old, and old packets are dropped before their payload is read.
type guard struct {
	// state counts the receivers inside; it is negative once the guard is dead. Receivers (any
	// engine) and kill (the owner's engine) write it. A receiver's Enter happens before the kill
	// that waits for its Leave, so all its reads happen before the owner gets the memory back.
	state atomic.Int64

	// regions are the regions that packets under this guard point into, by slot. last is the one
	// noted last. Both belong to the owner's engine.
	regions []uint64
	last    *memoryRegion
	// lent is set when packets may carry this guard. Used for guards of windows only; it belongs
	// to the owner's engine.
	lent bool
}

// guardDead is added to state by kill.
const guardDead = math.MinInt64

var _ fabric.Guard = (*guard)(nil)

// PacketDone is called by the fabric when a packet's payload is no longer referenced. It does
// nothing: see guard.
func (g *guard) PacketDone(*fabric.Packet) {}

// Enter begins reading a payload. It returns false if the packet must be dropped.
func (g *guard) Enter() bool {
	if g.state.Add(1) > 0 {
		return true
	}
	g.state.Add(-1)
	return false
}

// Leave ends the read that Enter began.
func (g *guard) Leave() { g.state.Add(-1) }

// kill makes all later Enters fail and waits for the receivers inside. The caller must not be
// inside any guard itself (device.leaveGuard), or two engines could wait for each other.
func (g *guard) kill() {
	for {
		s := g.state.Load()
		if s < 0 {
			break
		}
		if g.state.CompareAndSwap(s, s+guardDead) {
			break
		}
	}
	for g.state.Load() != guardDead {
		runtime.Gosched()
	}
}

// note records that packets under this guard point into m.
func (g *guard) note(m *memoryRegion) {
	if g.last == m {
		return
	}
	g.last = m
	w := m.slot >> 6
	for len(g.regions) <= w {
		g.regions = append(g.regions, 0)
	}
	g.regions[w] |= 1 << (m.slot & 63)
}

// covers reports whether packets under this guard may point into m.
func (g *guard) covers(m *memoryRegion) bool {
	w := m.slot >> 6
	return w < len(g.regions) && g.regions[w]&(1<<(m.slot&63)) != 0
}
