package runtime

import (
	"context"
	"errors"
	"testing"
	"time"
)

// lineWait is a wait whose owner can give it up.
type lineWait struct {
	nth   int
	gone  bool // it was given up
	ended int
}

func (w *lineWait) wanted() bool { return !w.gone }
func (w *lineWait) giveUp()      { w.ended++ }

// Rule: a line keeps those who wait in order, whatever is given up around them;
// who was given up is ended once, if at all, and there are never more of them than
// of the others, or pruneFrom.
func TestALineKeepsWhoWaitsAndNoMore(t *testing.T) {
	seed := fromEnv(t, "VERBENA_WAITS_SEED", uint64(time.Now().UnixNano()))
	t.Logf("VERBENA_WAITS_SEED=%d", seed)
	r := newSimRand(seed)
	var line, all []*lineWait
	kept, looks := 0, 0
	for phase := range 40 {
		add, give, serve := r.between(0, 20), r.between(0, 20), r.between(0, 20)
		for range 200 {
			for range r.between(0, add) {
				w := &lineWait{nth: len(all)}
				line, all = append(line, w), append(all, w)
			}
			for range min(r.between(0, give), len(line)) {
				line[r.IntN(len(line))].gone = true
			}
			n := min(r.between(0, serve), len(line))
			before := line[n:]
			var wanted []*lineWait
			for _, w := range before {
				if w.wanted() {
					wanted = append(wanted, w)
				}
			}
			long := len(before)
			line = served(line, n, &kept)
			if len(line) < long {
				looks++
			}
			i := 0
			for k, w := range line {
				if k > 0 && line[k-1].nth >= w.nth || w.ended != 0 {
					t.Fatalf("phase %d: place %d has wait %d, ended %d times", phase, k, w.nth, w.ended)
				}
				if w.wanted() {
					if i == len(wanted) || wanted[i] != w {
						t.Fatalf("phase %d: wait %d is not the next that was wanted", phase, w.nth)
					}
					i++
				}
			}
			if i != len(wanted) {
				t.Fatalf("phase %d: %d waits are left of %d that are wanted", phase, i, len(wanted))
			}
			if most := max(pruneFrom, 2*kept); len(line) >= most {
				t.Fatalf("phase %d: the line has %d places after a look that left %d", phase, len(line), kept)
			}
		}
	}
	for _, w := range all {
		if w.ended > 1 || w.ended == 1 && w.wanted() {
			t.Fatalf("wait %d, wanted %t, was ended %d times", w.nth, w.wanted(), w.ended)
		}
	}
	if looks == 0 {
		t.Error("nothing was given up: the run does not show what it should")
	}
}

// Rule: a line that was long once does not keep as many that were given up.
func TestALineForgetsHowLongItWas(t *testing.T) {
	var line []*lineWait
	kept := 0
	for range 100 * pruneFrom {
		line = served(append(line, &lineWait{}), 0, &kept)
	}
	line = served(line, len(line)-1, &kept) // one stays
	for range 100 * pruneFrom {
		line = served(append(line, &lineWait{gone: true}), 0, &kept)
	}
	if len(line) > pruneFrom || !line[0].wanted() {
		t.Errorf("%d places for one wait, of %t", len(line), line[0].wanted())
	}
}

// Rule: waits for datagrams that were given up are not kept; who still waits gets
// the first.
func TestGivenUpPacketWaitsAreNotKept(t *testing.T) {
	server := mustOpen(t, Config{})
	p, q := mustListenPacket(t, server, Options{}), mustListenPacket(t, server, Options{})
	first := p.Recv() // stays, so that those behind it are not met by giving out
	for range 5000 {
		if _, err := p.RecvWait(endedContext()); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	kept := 0
	if err := p.sh.r.Do(testContext(t), func() { p.match(); kept = len(p.waits) }); err != nil {
		t.Fatal(err)
	}
	if kept > pruneFrom {
		t.Errorf("%d waits are kept, of 1", kept)
	}
	to, err := q.Resolve(testContext(t), p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	q.sendBytes(t, to, []byte("first"))
	k, err := first.Await(testContext(t))
	if err != nil || string(k.Data) != "first" {
		t.Fatalf("who waited got %q, %v", k.Data, err)
	}
	if err := k.Release(); err != nil {
		t.Error(err)
	}
}
