package runtime

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// The regions of a node. Peers write and read the region simNode.target, and read the region
// simNode.source. Poison is memory filled with mem.PoisonByte. A wrong write to poison changes a byte,
// and a check finds the change. Sizes are in bytes.
//
//	target:  shared words | area | area | …       an area belongs to one pair
//	area:    gap slot gap slot gap … words gap    gaps stay poison
//	source:  bytes computed from the node number  never written
//	scratch: chunks, local memory of operations   poison while free
const (
	simAreas      = 3 * simPairs
	simSlots      = 5
	simSlotSize   = 6000
	simGap        = 144
	simWords      = 8
	simAreaSize   = simSlots*(simSlotSize+simGap) + simGap + simWords*8 + simGap
	simShared     = 4
	simTargetHead = 256
	simSourceSize = 64 << 10
	simChunk      = 2048
	simChunks     = 96
	simSeats      = 2 // outstanding accepts of each listener
)

// Each node has three listeners: for managed connections, for raw connections, and for raw
// connections with shared receives.
const (
	simManaged = iota
	simRaw
	simSharing
	simListeners
)

type simNode struct {
	w        *simWorld
	i        int
	name     string
	addr     netip.Addr
	gid      verbs.GID
	rt       *Runtime // nil while the node is down
	target   *Region
	source   *Region
	scratch  *Region
	areas    []*simArea
	shared   [simShared]*simCounter
	chunks   []int // free chunks of scratch
	ln       [simListeners]*Listener
	seats    [simListeners][]futures.Future[*Conn]
	srq      *simSharedRecv
	packets  *simPackets
	stopping bool          // the node is being shut down
	removed  bool          // the node's device was removed
	portAt   time.Duration // if not 0, the node's port is down until this virtual time
	reopenAt time.Duration // while the node is down: the virtual time at which it opens again
}

// simCounter is the model of a word to which all connections add 1.
type simCounter struct {
	seen  map[uint64]bool // the values that the successful additions found
	added uint64          // successful additions
	tried uint64          // accepted additions
}

func (n *simNode) open() {
	w := n.w
	rt, err := Open(Config{
		Provider: w.prov, Device: n.name, Reactors: 1 + n.i%2, Memory: MemoryConfig{PoisonFreed: true},
		stepped: true, now: func() time.Time { return time.Unix(0, int64(w.fab.Now())) },
	})
	if err != nil {
		w.fail("opening %s: %v", n.name, err)
	}
	n.rt, n.stopping = rt, false
	all := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	n.target = n.region(simTargetHead+simAreas*simAreaSize, all|verbs.AccessFlushGlobal|verbs.AccessMWBind)
	mem.Poison(n.target.Bytes()[simTargetHead:])
	n.source = n.region(simSourceSize, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	fillFrom(n.source.Bytes(), uint64(n.i))
	n.scratch = n.region(simChunk*simChunks, verbs.AccessLocalWrite)
	mem.Poison(n.scratch.Bytes())
	n.areas, n.chunks = nil, nil
	for i := range simAreas {
		n.areas = append(n.areas, &simArea{n: n, at: simTargetHead + i*simAreaSize, shadow: make([]byte, simAreaSize)})
	}
	for i := range simChunks {
		n.chunks = append(n.chunks, i)
	}
	for i := range n.shared {
		n.shared[i] = &simCounter{seen: map[uint64]bool{}}
	}
	n.openShared()
	n.openPackets()
	n.listen()
}

func (n *simNode) region(size int, access verbs.AccessFlags) *Region {
	r, err := n.rt.NewRegion(size, access)
	if err != nil {
		n.w.fail("registering a region of %d bytes on %s: %v", size, n.name, err)
	}
	return r
}

// listen() opens each listener that is not open.
func (n *simNode) listen() {
	for i := range n.ln {
		if n.ln[i] != nil {
			continue
		}
		o := Options{
			Raw: i != simManaged, SendDepth: n.w.r.between(3, 48), RecvCredits: n.w.credits(i != simManaged), MessageSize: simMsgSize, Windows: true,
			Inline: n.w.r.between(16, 200), PeerTimeout: simPeerTimeout, KeepAlive: n.w.simAsks(),
		}
		if i == simSharing {
			o.Shared = n.srq.s
		}
		l, err := n.rt.ListenOptions(netip.AddrPortFrom(n.addr, 0).String(), o)
		if err != nil {
			n.w.fail("listening on %s: %v", n.name, err)
		}
		n.ln[i] = l
	}
}

func (n *simNode) shards() []*shard {
	if n.rt == nil {
		return nil
	}
	return n.rt.shards
}

// up() reports whether connections may be made to and from this node.
func (n *simNode) up() bool { return n.rt != nil && !n.stopping }

// collect() takes the accepted connections. It then starts accepts until each listener has simSeats
// outstanding accepts. If the node is down, collect() opens the node when reopenAt has passed.
func (n *simNode) collect() {
	if n.rt == nil {
		if n.w.now() >= n.reopenAt && !n.stopping {
			n.open()
		}
		return
	}
	if out := inFlight(n.scratch); out > simChunks-len(n.chunks) {
		n.w.fail("%s: %d operations have leases on the region scratch, but only %d of its chunks are in use", n.name, out, simChunks-len(n.chunks))
	}
	n.packets.collect()
	defer n.srq.collect() // runs after the loop below, which makes ends for the accepted connections
	for i, l := range n.ln {
		kept := n.seats[i][:0]
		for _, f := range n.seats[i] {
			c, err, ok := f.Poll()
			switch {
			case !ok:
				kept = append(kept, f)
			case err == nil:
				n.w.accepted(n, c)
			}
		}
		n.seats[i] = kept
		for l != nil && !n.stopping && len(n.seats[i]) < simSeats {
			f, err := l.AcceptAsync()
			if err != nil {
				n.w.fail("accepting on %s: %v", n.name, err)
			}
			n.seats[i] = append(n.seats[i], f)
		}
	}
}

// hangUp closes listener i. The next call of listen() opens a new listener in its place, at another
// port.
func (n *simNode) hangUp(i int) {
	if n.ln[i] != nil {
		n.ln[i].end()
		n.ln[i] = nil
	}
}

// finish() closes the listeners, the PacketConn and the shared receives of the node. It returns true
// when they and all connections of the node have ended. The caller repeats the call until finish()
// returns true.
func (n *simNode) finish() bool {
	if n.rt == nil {
		return true
	}
	for i := range n.ln {
		n.hangUp(i)
	}
	seats := 0
	for _, s := range n.seats {
		seats += len(s)
	}
	return len(n.rt.listeners) == 0 && len(n.rt.live) == 0 && seats == 0 && n.packets.end() && n.srq.end() && len(n.srq.out)+len(n.srq.came) == 0
}

// close() checks the node's memory against the model and closes the runtime. Call it after finish()
// has returned true.
func (n *simNode) close() {
	if n.rt == nil {
		return
	}
	w := n.w
	pattern := make([]byte, simSourceSize)
	fillFrom(pattern, uint64(n.i))
	if string(pattern) != string(n.source.Bytes()) {
		w.fail("%s: the region source was written, but peers may only read it", n.name)
	}
	for _, r := range []*Region{n.target, n.source, n.scratch} {
		if out := inFlight(r); out != 0 {
			w.fail("%s: when the node is closed, %d operations have leases on a region, want none", n.name, out)
		}
	}
	if len(n.chunks) != simChunks || !clean(n.scratch.Bytes()) {
		w.fail("%s: %d of %d chunks of the region scratch are free, want all; are all bytes poison? %t, want true",
			n.name, len(n.chunks), simChunks, clean(n.scratch.Bytes()))
	}
	for i, s := range n.shared {
		if v := n.word(i * 8); v < s.added || v > s.tried {
			w.fail("%s: shared word %d is %d, want from %d (successful additions) to %d (accepted additions)", n.name, i, v, s.added, s.tried)
		}
	}
	for i, a := range n.areas {
		if !a.used && !clean(a.bytes()) {
			w.fail("%s: area %d was written, but no connection has used it", n.name, i)
		}
	}
	if len(n.srq.out) != 0 {
		w.fail("%s: when the node is closed, %d shared receives are outstanding, want none", n.name, len(n.srq.out))
	}
	o := n.rt.dev.Objects()
	if o.QP != 0 {
		w.fail("%s: after all connections have ended, %d queue pairs exist, want none", n.name, o.QP)
	}
	for _, sh := range n.shards() {
		for _, pools := range sh.pools {
			for _, p := range pools {
				if !p.s.gone && (p.members.Load() != 0 || p.free.Load() != p.made.Load() || p.wide != 0) {
					w.fail("%s: without connections, a pool has %d members, %d of them with large windows, and %d of %d receives are free",
						n.name, p.members.Load(), p.wide, p.free.Load(), p.made.Load())
				}
			}
		}
	}
	if s := n.rt.MemoryStats(); s.Buffers != s.Receives {
		w.fail("%s: %d pool buffers were not released", n.name, s.Buffers-s.Receives)
	}
	dev := n.rt.dev
	if err := n.rt.Close(context.Background()); err != nil {
		w.fail("closing %s: %v", n.name, err)
	}
	if o := dev.Objects(); !o.Zero() {
		w.fail("%s: after the runtime was closed, objects of the device are left: %v", n.name, o)
	}
	if n.removed {
		n.removed = false
		if err := w.prov.Restore(n.name); err != nil {
			w.fail("restoring the device of %s: %v", n.name, err)
		}
	}
	n.rt, n.ln = nil, [simListeners]*Listener{}
}

func (n *simNode) String() string { return fmt.Sprintf("%s (%v)", n.name, n.addr) }

// simArea is a part of a node's target region, and the model of its content. Each area belongs to
// one pair. Only the end of that pair at the other node writes and reads the area.
type simArea struct {
	n      *simNode
	at     int // offset in the target region
	used   bool
	shadow []byte // content of the slots after all accepted WRITEs
	slots  [simSlots]simSlot
	words  [simWords]simWord
}

// simSlot is the model of a slot of an area.
type simSlot struct {
	pending int  // outstanding WRITEs
	readers int  // outstanding READs
	torn    bool // the content is unknown: a WRITE failed, or a split WRITE is outstanding
	// cutBy is the id of a split WRITE that posted only some of its fragments; 0: none. When a
	// later operation of the same end has succeeded, these fragments have ended.
	cutBy uint64
}

// simWord is the model of an 8-byte word that atomics change. It lists the values that the word may
// have. states[0] is the value after the last operation that is known to have succeeded. states[i]
// is the value after the next i accepted operations.
type simWord struct{ states []uint64 }

func (n *simNode) word(at int) uint64 {
	return binary.NativeEndian.Uint64(n.target.Bytes()[at:])
}

func slotAt(i int) int { return simGap + i*(simSlotSize+simGap) }

const wordsAt = simSlots*(simSlotSize+simGap) + simGap

func (a *simArea) bytes() []byte { return a.n.target.Bytes()[a.at : a.at+simAreaSize] }

// alive() reports whether the area's memory still exists. A restart of the node frees the memory.
func (a *simArea) alive() bool {
	return a.n.rt != nil && slices.Contains(a.n.areas, a)
}

func (a *simArea) take() {
	if !clean(a.bytes()) {
		a.n.w.fail("%s: an area was written after its connection ended, at byte %d of the area", a.n.name, mem.Poisoned(a.bytes()))
	}
	*a = simArea{n: a.n, at: a.at, used: true, shadow: a.shadow}
	// Fill the slots with other bytes than poison. If retire finds poison in a slot, a WRITE has read
	// a released buffer.
	for i := range a.slots {
		slot := a.bytes()[slotAt(i) : slotAt(i)+simSlotSize]
		fillFrom(slot, uint64(i))
		copy(a.shadow[slotAt(i):], slot)
	}
	clear(a.bytes()[wordsAt : wordsAt+simWords*8])
	for i := range a.words {
		a.words[i].states = []uint64{0}
	}
}

// area() takes an unused area for a pair. It returns nil if there is none.
func (n *simNode) area() *simArea {
	for _, a := range n.areas {
		if !a.used {
			a.take()
			return a
		}
	}
	return nil
}

// checkSlot compares a slot with the model. Call it only while no WRITE to the slot is outstanding.
func (a *simArea) checkSlot(i int, when string) {
	at := slotAt(i)
	got, want := a.bytes()[at:at+simSlotSize], a.shadow[at:at+simSlotSize]
	if bytes.Equal(got, want) {
		return
	}
	for k := range got {
		if got[k] != want[k] {
			a.n.w.fail("%s: slot %d of the area at %d, %s: byte %d is 0x%02x, want 0x%02x", a.n.name, i, a.at, when, k, got[k], want[k])
		}
	}
}

// settleSlot records that a WRITE to a slot has ended. If no other WRITE to the slot is outstanding, and
// the slot is not torn, settleSlot checks the slot.
func (a *simArea) settleSlot(i int) {
	s := &a.slots[i]
	if s.pending--; s.pending > 0 || !a.alive() {
		return
	}
	if !s.torn {
		a.checkSlot(i, "after a successful WRITE")
	}
}

// resync copies the content of a slot to the model, if no WRITE to the slot is outstanding.
func (a *simArea) resync(i int) {
	if s := &a.slots[i]; s.pending == 0 && a.alive() {
		s.torn, s.cutBy = false, 0
		at := slotAt(i)
		copy(a.shadow[at:at+simSlotSize], a.bytes()[at:])
	}
}

// poisonRun is a run of poison bytes that is too long to occur in random data.
var poisonRun = bytes.Repeat([]byte{mem.PoisonByte}, 12)

// retire() is called when both ends of the area's pair are gone. It checks the area, fills it with
// poison, and frees it.
func (a *simArea) retire() {
	if !a.alive() {
		return
	}
	b := a.bytes()
	for i := range a.slots {
		if !a.slots[i].torn {
			a.checkSlot(i, "when both ends were gone")
		} else if k := bytes.Index(b[slotAt(i):slotAt(i)+simSlotSize], poisonRun); k >= 0 {
			a.n.w.fail("%s: slot %d of the area at %d holds poison at byte %d: a buffer was read after its lease ended", a.n.name, i, a.at, k)
		}
		if gap := b[slotAt(i)-simGap : slotAt(i)]; !clean(gap) {
			a.n.w.fail("%s: the gap before slot %d of the area at %d was written", a.n.name, i, a.at)
		}
	}
	if !clean(b[wordsAt-simGap:wordsAt]) || !clean(b[wordsAt+simWords*8:]) {
		a.n.w.fail("%s: the gaps around the words of the area at %d were written", a.n.name, a.at)
	}
	for i := range a.words {
		v := a.n.word(a.at + wordsAt + i*8)
		if !slices.Contains(a.words[i].states, v) {
			a.n.w.fail("%s: word %d of the area at %d is %d, want one of %v", a.n.name, i, a.at, v, a.words[i].states)
		}
	}
	mem.Poison(b)
	a.used = false
}
