package fabric

import (
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Link is the fault script of one directed link. The zero value is a perfect
// link. Probabilities are per packet, 0 to 1.
type Link struct {
	Loss    float64 // dropped
	Dup     float64 // delivered twice; the copy draws its own delay
	Reorder float64 // held back by up to ReorderBy, so that later packets overtake it

	// ReorderBy bounds the extra delay of a reordered packet. Default 10 µs.
	ReorderBy time.Duration
	// Delay is the delay of every packet, Jitter the upper bound of a random addition. Packets with
	// the same delay stay in order.
	Delay, Jitter time.Duration

	Down  bool   // drops everything
	Rules []Rule // each is checked for each packet; all that match apply
}

// defaultReorderBy is long compared with a run and short compared with any timeout.
const defaultReorderBy = 10 * time.Microsecond

// Rule is a fault for chosen packets of a link, without randomness.
type Rule struct {
	// Opcodes are the opcodes that the rule applies to; empty: all. The rule numbers packets with
	// one of them, from 1, since SetLink; packets dropped by a link that is down or cut have no
	// number.
	Opcodes []wire.Opcode
	// From and To bound the numbers, both inclusive; 0 is no bound.
	From, To uint64
	// Every selects every n-th packet from From on (From itself is the first); 0 and 1 select each.
	Every uint64

	// Effects; several may be set.
	Drop  bool
	Dup   bool
	Delay time.Duration // added
	// Corrupt changes a header byte: byte Offset is exclusive-ored with Mask. An Offset outside the
	// headers has no effect.
	Corrupt bool
	Offset  int
	Mask    byte
}

// perfect reports whether the link has no faults.
func (l *Link) perfect() bool {
	return l.Loss == 0 && l.Dup == 0 && l.Reorder == 0 && l.Delay == 0 && l.Jitter == 0 && !l.Down && len(l.Rules) == 0
}

// script is the fault state of a route. link and cut are fixed; counts, one for each rule, belongs
// to the sender's run and survives a partition.
type script struct {
	link   Link
	cut    bool
	counts []uint64
}

func (r *Route) setScript(l Link, cut bool) {
	if l.perfect() && !cut {
		r.script.Store(nil)
		return
	}
	l.Rules = slices.Clone(l.Rules)
	if l.ReorderBy <= 0 {
		l.ReorderBy = defaultReorderBy
	}
	r.script.Store(&script{link: l, cut: cut, counts: make([]uint64, len(l.Rules))})
}

// setCut changes only whether a partition cuts the route.
func (r *Route) setCut(cut bool) {
	s := r.script.Load()
	switch {
	case s == nil && cut:
		r.script.Store(&script{cut: true})
	case s != nil && s.link.perfect() && !cut:
		r.script.Store(nil)
	case s != nil && s.cut != cut:
		r.script.Store(&script{link: s.link, cut: cut, counts: s.counts})
	}
}

// SetLink sets the fault script of the links from src to dst, whether ports are attached there or
// not. It applies from the next packet on; rules start counting anew, for each path by itself. Any
// goroutine.
func (f *Fabric) SetLink(src, dst verbs.GID, l Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routeLocked(src, wire.To(dst)) // keeps the script for further paths
	for key, r := range f.routes {
		if key.src == src && key.dst.Peer == dst {
			r.setScript(l, f.cutLocked(src, dst))
		}
	}
}

// SetAll sets the fault script of every link, existing and new. Each link counts and draws by
// itself. Any goroutine.
func (f *Fabric) SetAll(l Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = l
	for key, r := range f.routes {
		r.setScript(l, f.cutLocked(key.src, key.dst.Peer))
	}
}

// Partition cuts every link between different groups, and replaces an earlier partition. A GID in
// no group keeps all its links. Packets in flight arrive. Any goroutine.
func (f *Fabric) Partition(groups ...[]verbs.GID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sides = map[verbs.GID]int{}
	for i, g := range groups {
		for _, gid := range g {
			f.sides[gid] = i
		}
	}
	f.recutLocked()
}

// Heal ends the partition; fault scripts stay. Any goroutine.
func (f *Fabric) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sides = nil
	f.recutLocked()
}

func (f *Fabric) recutLocked() {
	for key, r := range f.routes {
		r.setCut(f.cutLocked(key.src, key.dst.Peer))
	}
}

func (f *Fabric) cutLocked(src, dst verbs.GID) bool {
	a, okA := f.sides[src]
	b, okB := f.sides[dst]
	return okA && okB && a != b
}

// apply applies the rules to one packet. In the sender's run.
func (s *script) apply(k *Packet) (drop, dup, corrupted bool, delay time.Duration) {
	op := wire.Opcode(k.Hdr[0])
	for i := range s.link.Rules {
		u := &s.link.Rules[i]
		if len(u.Opcodes) > 0 && !slices.Contains(u.Opcodes, op) {
			continue
		}
		s.counts[i]++
		if !u.wants(s.counts[i]) {
			continue
		}
		drop = drop || u.Drop
		dup = dup || u.Dup
		delay += u.Delay
		if u.Corrupt && u.Offset >= 0 && u.Offset < k.HdrLen {
			k.Hdr[u.Offset] ^= u.Mask
			corrupted = true
		}
	}
	return drop, dup, corrupted, delay
}

// wants reports whether the rule applies to its n-th packet.
func (u *Rule) wants(n uint64) bool {
	from := max(u.From, 1)
	if n < from || u.To != 0 && n > u.To {
		return false
	}
	return u.Every <= 1 || (n-from)%u.Every == 0
}
