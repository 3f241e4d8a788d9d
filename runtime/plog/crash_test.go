package plog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// odometer makes all choices, one combination after the other.
type odometer struct {
	digits, sizes []int
	at            int
}

func (o *odometer) pick(n int) int {
	if o.at == len(o.digits) {
		o.digits, o.sizes = append(o.digits, 0), append(o.sizes, n)
	}
	o.at++
	return o.digits[o.at-1]
}

// turn moves to the next combination, and reports whether there is one.
func (o *odometer) turn() bool {
	o.at = 0
	for i := len(o.digits) - 1; i >= 0; i-- {
		if o.digits[i]++; o.digits[i] < o.sizes[i] {
			return true
		}
		o.digits, o.sizes = o.digits[:i], o.sizes[:i]
	}
	return false
}

// tried reports whether an earlier run has made the same choices so far.
func (o *odometer) tried() bool {
	for _, d := range o.digits[o.at:] {
		if d != 0 {
			return true
		}
	}
	return false
}

// dice makes random choices.
type dice struct{ *rand.Rand }

func (d dice) pick(n int) int { return d.IntN(n) }

// drawn draws choices, which rapid shrinks and replays.
type drawn struct{ t *rapid.T }

func (d drawn) pick(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "choice") }

// attempt runs f and returns the rule that it broke, or "".
func attempt(f func()) (why string) {
	defer func() {
		if v := recover(); v != nil {
			b, ok := v.(violation)
			if !ok {
				panic(v)
			}
			why = b.text
		}
	}()
	f()
	return ""
}

// small is a log in which each record matters: a record of 2 lines is half of the ring.
var small = Config{Lanes: 1, LaneSize: 4 * LineSize}

// play makes a number of steps in a log. The payloads of 8 and 40 bytes make records of one line and
// of two.
func play(w *world, steps int) {
	for i := range w.ledgers {
		w.claim(i)
	}
	for range steps {
		lane := 0
		if len(w.ledgers) > 1 {
			lane = w.c.pick(len(w.ledgers))
		}
		if w.writers[lane] == nil { // after a loss of power
			w.claim(lane)
		}
		switch w.c.pick(7) {
		case 0:
			w.start(lane, 8)
		case 1:
			w.wait(lane)
		case 2:
			w.claim(lane)
		case 3:
			w.start(lane, 40)
		case 4:
			w.writers[lane].step()
		case 5:
			w.trim(lane)
		case 6:
			w.reboot()
		}
	}
}

// steps returns the length of exhaustive runs: VERBENA_PLOG_STEPS, by default few enough for a second.
func steps(t *testing.T, few int) int {
	if s := os.Getenv("VERBENA_PLOG_STEPS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("VERBENA_PLOG_STEPS=%s: %v", s, err)
		}
		return n
	}
	return few
}

// Rule: whatever a writer, its successor, the reader and losses of power do, in all sequences of some
// steps, and whatever of the unflushed words is lost at each of them: the log can be opened, every
// acknowledged record is there, and every record that is found was appended.
func TestEveryLossOfPower(t *testing.T) {
	runs, tried := 0, 0
	o := &odometer{}
	for more := true; more; more = o.turn() {
		why := attempt(func() {
			w := newWorld(o, small, 3000, 1, nil)
			w.quiet = o.tried
			defer func() { tried += w.tried }()
			w.create(small, 7)
			play(w, steps(t, 4))
		})
		if why != "" {
			t.Fatalf("choices %v: %s", o.digits, why)
		}
		runs++
	}
	t.Logf("%d runs, %d losses of power", runs, tried)
}

// Rule: the same for a new log over the remains of another one, whose records and states are whole.
func TestLossOfPowerWhileCreating(t *testing.T) {
	if why := attempt(func() { overAnOldLog(nil, nil) }); why != "" {
		t.Error(why)
	}
}

// overAnOldLog makes a log where one was, and appends to the new one.
func overAnOldLog(taken func(string) loss, places map[string]bool) {
	w := newWorld(&odometer{}, small, 3000, 1, nil)
	if w.p.taken = taken; places != nil {
		w.p.places = places
	}
	w.create(small, 7)
	for range 3 {
		w.claim(0)
		w.start(0, 40)
		w.wait(0)
		w.trim(0)
	}
	w.create(small, 8)
	w.claim(0)
	w.start(0, 8)
	w.wait(0)
	w.claim(0)
}

// Rule: the same in long random runs with several writers, by rapid: it prints how to replay a failure.
func TestRandomLossesOfPower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		lines := rapid.IntRange(4, 24).Draw(t, "lines")
		n := rapid.IntRange(1, 60).Draw(t, "steps")
		if why := attempt(func() { random(drawn{t}, seed, lines, n, nil, nil) }); why != "" {
			t.Fatal(why)
		}
	})
}

// random is a run with two writers.
func random(c chooser, seed uint64, lines, steps int, taken func(string) loss, places map[string]bool) {
	g := Config{Lanes: 2, LaneSize: lines * LineSize}
	w := newWorld(c, g, 24, seed, nil)
	if w.p.taken = taken; places != nil {
		w.p.places = places
	}
	w.create(g, seed|1)
	play(w, steps)
}

// Rule: if any flush of the log is taken out, or the fence behind it, some loss of power breaks a rule. So each of
// them is needed, and the checker would notice if the code forgot one.
func TestEveryFlushIsNeeded(t *testing.T) {
	places := map[string]bool{}
	search := func(taken func(string) loss) string {
		if why := attempt(func() { overAnOldLog(taken, places) }); why != "" {
			return "over an old log: " + why
		}
		for seed := range uint64(300) {
			c := dice{rand.New(rand.NewPCG(seed, 2))}
			if why := attempt(func() { random(c, seed, 4+int(seed%5), 40, taken, places) }); why != "" {
				return fmt.Sprintf("seed %d: %s", seed, why)
			}
		}
		return ""
	}
	if why := search(nil); why != "" {
		t.Fatalf("with all of them: %s", why)
	}
	all := map[string]bool{}
	for p := range places {
		all[p] = true
	}
	const known = 8 // three of create, two of claim, one each of Next and Trim, and two FLUSHes, whose second is the pad's
	if len(all) < known {
		t.Errorf("%d places were reached, want at least %d: %v", len(all), known, all)
	}
	for p := range all {
		for _, l := range []loss{theFlush, theFence} {
			why := search(func(place string) loss {
				if place == p {
					return l
				}
				return nothing
			})
			what := map[loss]string{theFlush: "flush", theFence: "fence"}[l]
			if why == "" {
				t.Errorf("without the %s of %s no rule is broken", what, p)
			} else {
				t.Logf("without the %s of %s: %s", what, p, why)
			}
		}
	}
}
