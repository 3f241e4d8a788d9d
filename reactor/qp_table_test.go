package reactor

import (
	"errors"
	"reflect"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// stingyPD registers memory, and fails if it is told to.
type stingyPD struct {
	verbs.PD
	regs          map[*stingyMR]bool // the open registrations
	refuse, stuck bool               // registrations fail; closing them fails
	limit         uint64             // registrations of more bytes fail; 0: no limit
}

type stingyMR struct {
	verbs.MR
	pd        *stingyPD
	addr, len uint64
}

func (p *stingyPD) RegMR(addr, length, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	if p.refuse || p.limit > 0 && length > p.limit {
		return nil, syscall.ENOMEM
	}
	r := &stingyMR{pd: p, addr: addr, len: length}
	p.regs[r] = true
	return r, nil
}

func (r *stingyMR) LKey() uint32 { return 7 }

func (r *stingyMR) Close() error {
	if r.pd.stuck {
		return syscall.EBUSY
	}
	delete(r.pd.regs, r)
	return nil
}

func addressOf(p any) uint64 { return uint64(reflect.ValueOf(p).Pointer()) }

func newStingy() *stingyPD { return &stingyPD{regs: map[*stingyMR]bool{}} }

func slabOf(pd *stingyPD, sends bool) *slab {
	return &slab{key: slabKey{pd: pd, maxSGE: 5, inline: 96, sends: sends}}
}

// Rule: slots are made when they are first used, eight at a time, with the first generation of the queue. Goroutines that use
// different slots of a chunk at the same time use the same chunk. A slot that was not made, or does not exist, has no posted
// request. Slots lie on cache lines of their own.
func TestSlotsAreMadeWhenUsed(t *testing.T) {
	const gen = 77
	tab := newTable(272, slabOf(newStingy(), true), gen)
	t.Cleanup(func() { must.Do(t, tab.free()) })
	made := func() (n int) {
		for i := range tab.chunks {
			if tab.chunks[i].Load() != nil {
				n++
			}
		}
		return n
	}
	if n := made(); n != 0 {
		t.Errorf("a new table has %d chunks of slots, want none", n)
	}
	for _, i := range []uint32{3, 271, 272, 1 << 15} {
		if tab.posted(i) != nil {
			t.Errorf("slot %d, which was not made, has a posted request", i)
		}
	}
	var chunks [chunkSlots]*chunk
	var wg sync.WaitGroup
	for i := range chunks {
		wg.Go(func() { chunks[i], _ = tab.make(8 + uint32(i)) })
	}
	wg.Wait()
	for i, c := range chunks {
		if c == nil || c != chunks[0] || tab.slot(8+uint32(i)) != &c.slots[i] || c.slots[i].gen != gen {
			t.Errorf("slot %d was not made, or twice, or has not the generation %d", 8+i, gen)
		}
	}
	if n := made(); n != 1 {
		t.Errorf("%d chunks were made for one chunk of slots", n)
	}
	if chunks[0].slots[2].posted = true; tab.posted(10) != &chunks[0].slots[2] || tab.posted(11) != nil {
		t.Error("posted does not return exactly the slots with posted requests")
	}
	const line = 64
	if at := addressOf(&chunks[0].slots); reflect.TypeFor[slot]().Size() == line && at%line != 0 {
		t.Errorf("the slots of a chunk are %d bytes behind the begin of a cache line", at%line)
	}
}

// Rule: the parts of blocks do not overlap. The device accesses only the results and inline bytes, so only these are
// registered, and receives alone need no registration.
func TestBlocksDoNotOverlap(t *testing.T) {
	pd := newStingy()
	s := slabOf(pd, true)
	used := map[uint64]bool{}
	claim := func(addr uint64, n int, device bool) {
		for at := addr; at < addr+uint64(n); at++ {
			if used[at] {
				t.Fatalf("address %#x belongs to two parts", at)
			}
			used[at] = true
		}
		registered := false
		for r := range pd.regs {
			registered = registered || addr >= r.addr && addr+uint64(n) <= r.addr+r.len
		}
		if registered != device {
			t.Fatalf("%d bytes at %#x: registered is %t, want %t", n, addr, registered, device)
		}
	}
	tab := newTable(3*minBlocks*chunkSlots, s, 1)
	for i := range uint32(3 * minBlocks * chunkSlots) {
		c := must.Get(tab.make(i))(t)
		if lkey := c.block.lkey; lkey != 7 {
			t.Fatalf("the key is %d, want that of the registration", lkey)
		}
		sges, at := c.elements(i)
		claim(at, len(sges)*verbs.SizeofSGE, false)
		claim(c.address(i), verbs.SizeofSendWR, false)
		claim(addressOf(&c.bytes[i%chunkSlots]), 4, false)
		inline, at := c.inline(i)
		claim(at, len(inline), true)
		_, at = c.result(i)
		claim(at, wordSize, true)
		if len(sges) != 5 || len(inline) != 96 || addressOf(c.receive(i)) != c.receiveAddress(i) {
			t.Fatalf("slot %d has %d elements and %d inline bytes, or its receive is elsewhere", i, len(sges), len(inline))
		}
	}
	if len(pd.regs) != 3 { // of 16, 16 and 32 blocks
		t.Errorf("%d blocks have %d registrations, want 3", 3*minBlocks, len(pd.regs))
	}
	must.Do(t, tab.free())
	clear(used)
	if len(pd.regs) != 0 || s.blocks != 0 || len(s.free) != 0 {
		t.Errorf("%d registrations and %d blocks are left of an unused slab", len(pd.regs), s.blocks)
	}
	recvs := newTable(16, slabOf(pd, false), 1)
	for i := range uint32(16) {
		c := must.Get(recvs.make(i))(t)
		sges, at := c.elements(i)
		claim(at, len(sges)*verbs.SizeofSGE, false)
		claim(c.receiveAddress(i), verbs.SizeofRecvWR, false)
		claim(addressOf(&c.bytes[i%chunkSlots]), 4, false)
	}
	if len(pd.regs) != 0 {
		t.Error("memory of receives was registered, which the device does not access")
	}
	must.Do(t, recvs.free())
}

// Rule: queues share arenas, and an arena goes when its last block is given back. If memory is refused, the slot is not made,
// and can be made later. If the device does not give memory back, the blocks still count, and free can be repeated.
func TestSlabUnderRefusals(t *testing.T) {
	pd := newStingy()
	s := slabOf(pd, true)
	_, before := mem.Live()
	a, b := newTable(2*chunkSlots, s, 1), newTable(minBlocks*chunkSlots, s, 1)
	pd.refuse = true
	if c, err := a.make(0); c != nil || !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("made a slot without memory: %v, %v", c, err)
	}
	if _, now := mem.Live(); now != before {
		t.Error("memory that could not be registered stays mapped")
	}
	pd.refuse = false
	must.Get(a.make(0))(t)
	for i := range uint32(minBlocks) {
		must.Get(b.make(i * chunkSlots))(t)
	}
	if len(pd.regs) != 2 {
		t.Fatalf("%d registrations for %d blocks, want 2", len(pd.regs), minBlocks+1)
	}
	must.Do(t, b.free())
	if len(pd.regs) != 1 || s.blocks != minBlocks {
		t.Errorf("%d registrations with %d blocks, want 1 with %d: one queue has one block", len(pd.regs), s.blocks, minBlocks)
	}
	pd.stuck = true
	if err := a.free(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("the device kept the memory, and free returned %v", err)
	}
	pd.stuck = false
	must.Do(t, a.free())
	must.Do(t, a.free())
	if _, now := mem.Live(); now != before || s.blocks != 0 || len(s.free) != 0 || len(pd.regs) != 0 {
		t.Errorf("%d blocks, %d free, %d registrations and %d bytes are left", s.blocks, len(s.free), len(pd.regs), now-before)
	}
}

// Rule: if there is no memory for a large arena, a smaller one does. An arena has at most maxArena bytes, or one block.
func TestArenasFitTheMemory(t *testing.T) {
	pd := newStingy()
	s := slabOf(pd, true)
	pd.limit = uint64(s.key.deviceSize()) * 3
	tab := newTable(10*chunkSlots, s, 1)
	for i := range uint32(10) {
		must.Get(tab.make(i * chunkSlots))(t)
	}
	if len(pd.regs) != 5 { // 16, 8 and 4 blocks are too many
		t.Errorf("10 blocks have %d registrations, want 5 of two blocks", len(pd.regs))
	}
	must.Do(t, tab.free())
	s = &slab{key: slabKey{pd: newStingy(), maxSGE: 5, inline: maxInlines, sends: true}}
	tab = newTable(maxBlocks*chunkSlots, s, 1)
	_, before := mem.Live()
	for i := range uint32(40) {
		must.Get(tab.make(i * chunkSlots))(t)
		_, now := mem.Live()
		if most := int64(maxArena + 8192); now-before > most {
			t.Fatalf("an arena has %d bytes, want at most %d", now-before, most)
		}
		before = now
	}
	must.Do(t, tab.free())
}
