package soft

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the address table has the device's own address, and each address of the machine once while there is room. An
// address keeps its entry while the machine has it.
func TestAnAddressKeepsItsEntry(t *testing.T) {
	gid := func(i int) verbs.GID {
		return verbs.GIDFromAddr(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	rapid.Check(t, func(t *rapid.T) {
		var table gidTable
		own := gid(0)
		table.init(own)
		before := map[verbs.GID]uint8{}
		for range rapid.IntRange(1, 10).Draw(t, "changes") {
			var have []verbs.GID
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 400), 0, 300, rapid.ID[int]).Draw(t, "addresses") {
				have = append(have, gid(i))
			}
			table.set(have)
			if table.at(0) != own {
				t.Fatalf("entry 0 is %v", table.at(0))
			}
			now := map[verbs.GID]uint8{}
			for i := 1; i < table.len(); i++ {
				g := table.at(i)
				if g == (verbs.GID{}) {
					continue
				}
				if !slices.Contains(have, g) || g == own || table.index(g) != uint8(i) {
					t.Fatalf("entry %d is %v, whose entry is %d; the machine has %v", i, g, table.index(g), have)
				}
				if was, ok := before[g]; ok && was != uint8(i) {
					t.Fatalf("%v had entry %d and has %d", g, was, i)
				}
				now[g] = uint8(i)
			}
			for _, g := range have {
				if _, ok := now[g]; !ok && g != own && len(now) < maxGIDs-1 {
					t.Fatalf("%v has no entry, and the table has %d", g, len(now))
				}
			}
			before = now
		}
		if table.len() > maxGIDs || table.at(-1) != (verbs.GID{}) || table.at(maxGIDs) != (verbs.GID{}) || table.index(verbs.GID{}) != 0 {
			t.Fatalf("%d entries; beyond them %v and %v", table.len(), table.at(-1), table.at(maxGIDs))
		}
	})
}

// Rule: the entry of an address is one of the table or 0, also while the machine loses the address.
func TestTheEntryOfALostAddressIsZero(t *testing.T) {
	var table gidTable
	table.init(verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.1")))
	g := verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.2"))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for have := []verbs.GID{g}; ; have = []verbs.GID{g}[:1-len(have)] {
			table.mu.Lock()
			table.set(have)
			table.mu.Unlock()
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 200_000 {
		if i := table.index(g); i > 1 {
			t.Errorf("the address has entry %d of 2", i)
			break
		}
	}
	close(stop)
	<-done
}

type named string

func (named) Network() string  { return "" }
func (a named) String() string { return string(a) }

// Rule: the table takes the addresses of interfaces, but no link-local ones, whose interface a GID cannot name.
func TestAddressesOfTheMachineAreGIDs(t *testing.T) {
	got := fmt.Sprint(gidsOf([]net.Addr{named("127.0.0.1/8"), named("::1/128"), named("10.1.2.3/16"), named("fe80::1/64"), named("fd00::1/64"), named("garbage")}))
	if want := "[127.0.0.1 ::1 10.1.2.3 fd00::1]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
