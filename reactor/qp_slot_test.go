package reactor

import (
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: slots are made when they are first used, eight at a time, with the first generation of the queue. Goroutines that use
// different slots of a chunk at the same time use the same chunk. A slot that was not made, or does not exist, has no posted
// request.
func TestSlotsAreMadeWhenUsed(t *testing.T) {
	const gen = 77
	tab, err := newTable(256, 16, 4, 128, 0, gen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must.Do(t, tab.arena.Unmap()) })
	made := func() (n int) {
		for i := range tab.slots {
			if tab.slots[i].Load() != nil {
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
	var slots [chunkSlots]*slot
	var wg sync.WaitGroup
	for i := range slots {
		wg.Go(func() { slots[i] = tab.make(8 + uint32(i)) })
	}
	wg.Wait()
	for i, sl := range slots {
		if sl != tab.slot(8+uint32(i)) || sl.gen != gen {
			t.Errorf("slot %d was made twice, or has generation %d, want %d", 8+i, sl.gen, gen)
		}
	}
	if n := made(); n != 1 {
		t.Errorf("%d chunks were made for one chunk of slots", n)
	}
	if slots[2].posted = true; tab.posted(10) != slots[2] || tab.posted(11) != nil {
		t.Error("posted does not return exactly the slots with posted requests")
	}
}

// Rule: the device accesses only the results and inline bytes of the table, so only these are registered.
func TestOnlyDeviceMemoryIsRegistered(t *testing.T) {
	tab, err := newTable(10, 5, 4, 128, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must.Do(t, tab.arena.Unmap()) })
	addr, n := tab.deviceMemory()
	_, last := tab.slotInline(9)
	if addr != tab.resultAddr || addr+n != last+128 {
		t.Errorf("the device accesses %d bytes at %#x, want the results at %#x to the end of the inline bytes, %#x", n, addr, tab.resultAddr, last+128)
	}
	if sges, at := tab.slotSGEs(0); len(sges) != 5 || at+80 > addr {
		t.Errorf("the elements at %#x are in the device's memory, which begins at %#x", at, addr)
	}
	recvs, err := newTable(0, 5, 4, 128, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must.Do(t, recvs.arena.Unmap()) })
	if _, n := recvs.deviceMemory(); n != 0 {
		t.Errorf("a table of receives has %d bytes that the device accesses, want 0", n)
	}
}
