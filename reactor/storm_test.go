package reactor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
)

// How many completion events a run takes by default, over all modes: events taken
// from a completion channel. VERBENA_EVENTS says otherwise: ten million in `make
// stress`. On a device each mode ends after stormTimeDevice, too, or after
// VERBENA_STORM_TIME: an emulated machine takes a millisecond for an event, or ten
// when others want the processors.
const (
	stormEvents     = 60_000
	stormEventsRace = 20_000
	stormTimeDevice = 12 * time.Second
)

// The storm's size: stormLanes pairs of reactors, each reactor with a completion
// channel, two completion queues and stormQueues queue pairs.
const (
	stormLanes  = 16
	stormQueues = 4
	stormCrowd  = 16
)

// stormSlowPart is the part of the events that are taken over a wire that takes time,
// where one goroutine carries everything.
const stormSlowPart = 10

// stormPauses is the number of orders of size of pauses, from 2 ns: to 32 µs, in
// which a reactor here hears of a completion and lies down again, or on a machine
// that may be emulated to a millisecond.
func stormPauses() int {
	if onDevice() {
		return 20
	}
	return 15
}

// stormMode is a way to meet the races between arming and sleeping. A token is a
// message without content. Tokens go in volleys, one after the other, at random
// distances: who has the whole volley answers it with one of its own.
type stormMode struct {
	name    string
	cfg     reactor.Config
	volleys int  // on the way in one lane
	most    int  // tokens of a volley
	await   bool // who posts waits for the completion, and drives
	alone   bool // half the tokens wait until those before are done
	share   int  // of stormShares of the events
}

const stormShares = 10

// In the modes with one volley nothing else wakes a reactor that waits for the last
// token, or for the completion of a send, nobody looks, and one lost wake-up is the end
// of the lane. In a crowd a
// queue whose event is lost is polled all the same when another's event comes;
// there the reactor counts what it is owed (Stats.Missed).
var stormModes = []stormMode{
	{name: "volleys", cfg: reactor.Config{NoCallerDriving: true, Spin: -1, Recheck: -1}, volleys: 1, most: 3, alone: true, share: 4},
	{name: "callers drive", cfg: reactor.Config{Recheck: -1}, volleys: 1, most: 3, await: true, alone: true, share: 3},
	{name: "throughput", cfg: reactor.Config{Policy: reactor.PolicyThroughput, Recheck: -1}, volleys: 1, most: 3, await: true, alone: true, share: 1},
	{name: "latency", cfg: reactor.Config{Policy: reactor.PolicyLatency, Recheck: -1}, volleys: 1, most: 3, await: true, alone: true, share: 1},
	{name: "crowd", cfg: reactor.Config{NoCallerDriving: true, Spin: -1}, volleys: stormCrowd, most: 1, share: 1},
}

// Rule: an armed completion queue wakes its reactor for every completion, however
// that meets arming, polling and going to sleep: no wake-up is lost.
func TestNoWakeUpIsLost(t *testing.T) {
	seed := uint64(number(t, "VERBENA_STORM_SEED", int(time.Now().UnixNano()&(1<<40-1))))
	part := 1
	test := func(t *testing.T, b bed) {
		events, limit := stormEvents, time.Duration(0)
		if raceEnabled {
			events = stormEventsRace
		}
		if onDevice() {
			limit = stormTimeDevice
		}
		events = number(t, "VERBENA_EVENTS", events) / part
		if v := os.Getenv("VERBENA_STORM_TIME"); v != "" {
			limit = must(time.ParseDuration(v))(t)
		}
		for _, m := range stormModes {
			t.Run(m.name, func(t *testing.T) {
				s := newStorm(t, b, m, seed)
				s.run(t, uint64(events*m.share/stormShares), limit)
				s.close(t)
				if t.Failed() {
					t.Logf("replay the pauses with VERBENA_STORM_SEED=%d", seed)
				}
			})
		}
	}
	onBeds(t, test)
	if part = stormSlowPart; !onDevice() {
		t.Run("slow", func(t *testing.T) { test(t, slowBed(t)) })
	}
}

// number is a number from the environment.
func number(t testing.TB, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	return must(strconv.Atoi(v))(t)
}

// storm is all lanes of one mode.
type storm struct {
	mode  stormMode
	lanes []*lane
}

func newStorm(t *testing.T, b bed, m stormMode, seed uint64) *storm {
	s := &storm{mode: m}
	for i := range stormLanes {
		s.lanes = append(s.lanes, newLane(t, b, m, rand.NewPCG(seed, uint64(i))))
	}
	return s
}

// run sends the volleys round until there were that many events or the time is
// over (0: it never is), and takes them out again.
func (s *storm) run(t *testing.T, events uint64, limit time.Duration) {
	began := time.Now()
	for _, l := range s.lanes {
		l.start(t)
	}
	look := time.NewTicker(stormLook)
	defer look.Stop()
	for s.events() < events && (limit == 0 || time.Since(began) < limit) && !t.Failed() {
		<-look.C
		for i, l := range s.lanes {
			if l.stalled() {
				t.Fatalf("lane %d: nothing moves since %d hops, %d volleys are out: a wake-up was lost\n%s", i, l.hops.Load(), l.out.Load(), l.report())
			}
		}
	}
	for _, l := range s.lanes { // all, before any is waited for
		l.stop.Store(true)
	}
	for _, l := range s.lanes {
		l.end(t)
	}
	took := time.Since(began)
	var sum reactor.Stats
	for _, l := range s.lanes {
		for _, side := range l.sides {
			sum = sum.Add(side.ends[0].r.Stats())
		}
	}
	met := s.sum(func(l *lane) uint64 { return l.met.Load() })
	t.Logf("%d events, %d queue pairs, %d lost, %v: %d completions, %d wake-ups by the channels, %d sleeps, %d found after arming, %d looks",
		s.events(), 2*stormLanes*stormQueues, sum.Missed, took.Round(time.Millisecond), sum.Polled, sum.Wakes, sum.Sleeps, met, sum.Rechecks)
	if sum.Missed != 0 {
		t.Errorf("%d events were lost", sum.Missed)
	}
	if s.events()/stormRare > met {
		t.Errorf("%d events, and %d times a completion came between the last poll and arming: the run met no race", s.events(), met)
	}
}

// stormRare is that in a run that counts the poll after arming finds something once in
// so many events.
const stormRare = 1000

// stormLook is how often progress is looked at.
const stormLook = 50 * time.Millisecond

func (s *storm) events() uint64 { return s.sum(func(l *lane) uint64 { return l.events.Load() }) }

// sum is of all lanes.
func (s *storm) sum(of func(*lane) uint64) (n uint64) {
	for _, l := range s.lanes {
		n += of(l)
	}
	return n
}

func (s *storm) close(t *testing.T) {
	for _, l := range s.lanes {
		l.close(t)
	}
}

func (l *lane) report() (text string) {
	for i, side := range l.sides {
		text += fmt.Sprintf("side %d: %+v\n", i, side.ends[0].r.Stats())
	}
	return text
}
