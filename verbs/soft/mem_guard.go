package soft

import (
	"math"
	"runtime"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// guard stands between a packet whose payload points into registered memory
// and the owner who wants that memory back. Requests carry the guard of their
// queue pair, READ responses the guard of the region they read.
//
//	          enter / leave
//	           ┌─────┐
//	           v     │          kill                    last leave
//	live, 0 readers ─┴─ n ──────────> dead, n readers ──────────> dead, 0
//
// A receiver enters before it reads the payload and leaves behind it; if the
// guard is dead it drops the packet, as if the link had lost it. kill makes
// the guard dead and waits only for the receivers that are copying at this
// moment, never for packets that wait in an inbox. So no error or flush
// completion, no destroyed queue pair and no deregistered region ever leaves a
// packet behind that somebody will still read, and no control call waits for
// the network. A success needs no guard: its PSN is old, and what is old is
// dropped before its payload is looked at.
type guard struct {
	// state counts the receivers inside; it is negative once the guard is
	// dead. Written by receivers (any engine) and by kill (the owner's engine).
	// A receiver's enter happens before the kill that waits for its leave, so
	// everything it read was read before the owner got the memory back.
	state atomic.Int64

	// regions are the regions that packets under this guard point into, by
	// slot. Only the owner's engine touches it. last is the one noted last.
	regions []uint64
	last    *memoryRegion
	// lent says that packets may carry this guard. Of windows' guards only; the
	// owner's engine.
	lent bool
}

// guardDead is added to state by kill.
const guardDead = math.MinInt64

var _ fabric.Holder = (*guard)(nil)

// PacketDone is told by the fabric when a packet's payload is no longer
// referenced. Nothing depends on it: see guard.
func (g *guard) PacketDone(*fabric.Packet) {}

// enter begins reading a payload; false says that the packet must be dropped.
func (g *guard) enter() bool {
	if g.state.Add(1) > 0 {
		return true
	}
	g.state.Add(-1)
	return false
}

// leave ends what enter began.
func (g *guard) leave() { g.state.Add(-1) }

// kill makes all later enters fail and waits for the receivers inside. The
// caller must not be inside any guard itself (device.leaveGuard), or two
// engines could wait for each other.
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

// note remembers that packets under this guard point into m.
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

// covers tells whether packets under this guard may point into m.
func (g *guard) covers(m *memoryRegion) bool {
	w := m.slot >> 6
	return w < len(g.regions) && g.regions[w]&(1<<(m.slot&63)) != 0
}
