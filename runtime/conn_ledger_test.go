package runtime

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Rule: each credit is in one place. For any sequence of calls the ledger has the counts of a model with
// two plain numbers, also when the number of granted credits wraps, and after its end.
func TestLedgerCountsEachCreditOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l ledger
		unreturned := 0
		granted := rapid.SampledFrom([]uint32{0, 1, 64, 1<<32 - 3}).Draw(t, "granted before")
		l.start(int(granted))
		over := false
		var framed []uint32 // credits of frames that may still fail
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n := rapid.Uint32Range(0, 300).Draw(t, "n")
				unreturned += int(n)
				if got, o := l.add(n); got != unreturned || o != over {
					t.Fatalf("add(%d) returned %d, %t; want %d, %t", n, got, o, unreturned, over)
				}
			},
			"take": func(t *rapid.T) {
				want := uint32(unreturned)
				if over {
					want = 0
				}
				if got := l.take(); got != want {
					t.Fatalf("take returned %d, want %d", got, want)
				}
				unreturned -= int(want)
				granted += want
				framed = append(framed, want)
			},
			"untake": func(t *rapid.T) {
				if len(framed) == 0 {
					t.Skip("no frame is on its way")
				}
				n := framed[0]
				framed = framed[1:]
				l.untake(n)
				unreturned += int(n)
				granted -= n
			},
			"withdraw": func(t *rapid.T) {
				most := rapid.IntRange(-1, 300).Draw(t, "most")
				want := max(min(unreturned, most), 0)
				if over {
					want = 0
				}
				if got := l.withdraw(most); got != want {
					t.Fatalf("withdraw(%d) returned %d, want %d", most, got, want)
				}
				unreturned -= want
			},
			"end": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "dice") > 0 {
					t.Skip("not yet")
				}
				if u, g := l.end(); u != unreturned || g != granted {
					t.Fatalf("end returned %d, %d; want %d, %d", u, g, unreturned, granted)
				}
				over = true
			},
			"": func(t *rapid.T) {
				if l.unreturned() != unreturned || l.granted() != granted {
					t.Fatalf("the ledger has %d unreturned credits and %d granted ones, want %d and %d", l.unreturned(), l.granted(), unreturned, granted)
				}
			},
		})
	})
}

// Rule: many goroutines may add, grant and take back credits at the same time: end counts each one time.
func TestLedgerByManyGoroutines(t *testing.T) {
	const rounds = 20000
	var l ledger
	var wg sync.WaitGroup
	var out [4]int // what each goroutine has added for good
	for k := range out {
		wg.Go(func() {
			for i := range rounds {
				switch n := uint32(i % 3); (i + k) % 4 {
				case 0:
					l.add(n)
					out[k] += int(n)
				case 1:
					l.take()
				case 2:
					if got := l.take(); i%2 == 0 {
						l.untake(got)
					}
				case 3:
					out[k] -= l.withdraw(2)
				}
			}
		})
	}
	wg.Wait()
	want := out[0] + out[1] + out[2] + out[3]
	if u, g := l.end(); u+int(g) != want {
		t.Errorf("%d credits are unreturned and %d granted, %d in all; want %d", u, g, u+int(g), want)
	}
}

// Rule: an allowance never has more credits than the peer grants at most, take never takes one that is not
// there, and after close it takes none. Taking the last credit is told to the peer, one time. A grant of more than
// there can be is refused, after close too.
func TestAllowance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 300).Draw(t, "most")
		free := rapid.IntRange(0, most).Draw(t, "at first")
		a := newAllowance(free, most)
		closed, short := false, false
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.IntRange(0, 300).Draw(t, "n")
				want := min(n, free)
				if closed {
					want = 0
				}
				if got := a.take(n); got != want {
					t.Fatalf("take(%d) of %d returned %d, want %d", n, free, got, want)
				}
				if free -= want; want > 0 && free == 0 {
					short = true
				}
			},
			"restore": func(t *rapid.T) {
				n := rapid.Uint32().Draw(t, "n") >> rapid.IntRange(0, 32).Draw(t, "size")
				room := most - free
				if closed {
					room = most
				}
				fits := int(n) <= room
				if got := a.restore(n); got != fits {
					t.Fatalf("restore(%d) with %d of %d returned %t, want %t", n, free, most, got, fits)
				}
				if fits && !closed {
					free += int(n)
				}
			},
			"wanted": func(t *rapid.T) {
				if got := a.wanted(); got != short {
					t.Fatalf("wanted returned %t, want %t", got, short)
				}
				short = false
			},
			"close": func(t *rapid.T) {
				if closed || rapid.IntRange(0, 5).Draw(t, "dice") > 0 {
					t.Skip("not now")
				}
				a.close()
				closed = true
			},
			"": func(t *rapid.T) {
				if want := free; closed {
					if a.available() != 0 {
						t.Fatalf("%d credits are available after close, want 0", a.available())
					}
				} else if a.available() != want {
					t.Fatalf("%d credits are available, want %d", a.available(), want)
				}
			},
		})
	})
}
