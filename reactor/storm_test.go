package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// How many completion events a run takes by default, over all modes: events taken
// from a completion channel. VERBENA_EVENTS says otherwise: ten million in `make
// stress`. On a device each mode ends after stormTimeDevice, too, or after
// VERBENA_STORM_TIME: an emulated machine takes a millisecond for an event, or ten
// when others want the processors.
const (
	stormEvents     = 60_000
	stormEventsRace = 20_000
	stormTimeDevice = 5 * time.Second
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
// there the reactor counts what it is owed (Stats.MissedEvents).
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
			limit = must.Get(time.ParseDuration(v))(t)
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
	return must.Get(strconv.Atoi(v))(t)
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
		s.events(), 2*stormLanes*stormQueues, sum.MissedEvents, took.Round(time.Millisecond), sum.Polled, sum.ChannelWakeups, sum.Sleeps, met, sum.Rechecks)
	if sum.MissedEvents != 0 {
		t.Errorf("%d events were lost", sum.MissedEvents)
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

const (
	// stormStill is how long a lane must stand still to count as stopped by a loss.
	// Nothing is wrong with a slow machine that looks like it: this shows what the
	// storm sees, and not that there is nothing to see.
	stormStill = 300 * time.Millisecond
	// stormWarm is how many tokens arrive before anything is lost.
	stormWarm = 50
	// stormRecheck is when a crowd is looked at, so that it need not be waited for long.
	stormRecheck = 40 * time.Millisecond
)

// Rule: the storm sees what it is there for. In every mode an event that is lost now and
// then, of the sends or of the receives, stops a lane or is counted as missed; and so
// does a completion from before arming that nobody polls for, where nothing else polls.
func TestTheStormSeesWhatIsLost(t *testing.T) {
	onlySoft(t, "it is about the test, and there all is quick")
	for _, m := range stormModes {
		losses := map[string]uint32{"events of sends": loseSendEvents, "events of receives": loseRecvEvents}
		if m.volleys == 1 {
			losses["polls after arming"] = loseRepolls
		} else {
			m.cfg.Recheck = stormRecheck
		}
		for name, loss := range losses {
			t.Run(m.name+"/"+name, func(t *testing.T) {
				l := newLane(t, slowBed(t), m, rand.NewPCG(uint64(time.Now().UnixNano()), uint64(loss)))
				l.start(t)
				for l.hops.Load() < stormWarm && !l.stalled() {
					runtime.Gosched()
				}
				l.loss.Store(loss)
				if !l.shows(t) {
					t.Errorf("%d tokens went on their way for %v, and nobody noticed", l.hops.Load(), patience)
				}
				l.loss.Store(0)
				l.revive(t)
				l.end(t)
				l.close(t)
			})
		}
	}
}

// shows tells whether the lane stands still, or counts missed events, within patience.
func (l *lane) shows(t *testing.T) bool {
	look := time.NewTicker(stormRecheck)
	defer look.Stop()
	for began := time.Now(); time.Since(began) < patience; {
		<-look.C
		if l.stalled(); time.Since(l.seenAt) > stormStill {
			return true
		}
		if l.mode.cfg.Recheck < 0 {
			continue // reading Stats takes the turn, and that polls
		}
		for _, s := range l.sides {
			if s.ends[0].r.Stats().MissedEvents > 0 {
				return true
			}
		}
	}
	return false
}

// revive takes the volleys out of a lane whose reactors believe that queues are armed
// which are not: they are made to poll until none is left, and until who sent the last
// one has its completion: the event of that may be the one that was lost.
func (l *lane) revive(t *testing.T) {
	l.stop.Store(true)
	for began := time.Now(); time.Since(began) < patience; {
		select {
		case <-l.gone:
			if l.done.Load() >= l.sent.Load() {
				return
			}
		default:
		}
		for _, s := range l.sides {
			e := s.ends[0]
			e.do(t, e.r.Flush)
		}
	}
}

// pause is how long to wait with a token: seldom until the peer sleeps soundly,
// often not at all, as a rule about as long as it takes the peer to hear of the
// one before, to poll, to arm and to lie down.
func (s *stormSide) pause() time.Duration {
	atOnce := 1 << 8
	if s.lane.mode.volleys > 1 { // who is in a crowd has others before and behind
		atOnce = 1<<10 - 1<<7
	}
	switch n := s.rng.IntN(1 << 10); {
	case n == 0:
		return time.Millisecond
	case n < atOnce:
		return 0
	}
	return stormPause(s.rng)
}

// stormPause is a pause, of each order of size as many.
func stormPause(rng *rand.Rand) time.Duration {
	return time.Duration(rng.IntN(1 << (1 + rng.IntN(stormPauses())))) // ns
}

// post is the goroutine that sends after pauses.
func (s *stormSide) post() {
	for v := range s.posts {
		for v.sent < v.n {
			if v.alone[v.sent] {
				s.lane.allDone()
			}
			if d := v.pause[v.sent]; d >= time.Millisecond {
				<-time.After(d)
			} else {
				for began := time.Now(); time.Since(began) < d; {
				}
			}
			s.send(&v)
			runtime.Gosched() // so that the loop posts it before the pause, not after
		}
	}
}

// send sends the next token of a volley, from the poster. It waits for room: a
// token may be back before the completion of its sending was taken.
func (s *stormSide) send(v *volley) {
	q, token := s.next(v)
	v.sent++
	s.lane.sent.Add(1)
	if !s.lane.mode.await {
		_, err := q.Submit(context.Background(), &token, &reactor.Payload{}, reactor.Block)
		try(s.lane.t, err)
		return
	}
	token.Sink = nil
	f, err := q.Submit(context.Background(), &token, &reactor.Payload{}, reactor.NoWakeup)
	if err == nil {
		_, err = f.Await(context.Background())
	}
	try(s.lane.t, err)
	sending{s.lane}.Complete(reactor.SinkContext{}, reactor.Completion{}, err)
}

// trySend is send from the turn, which leaves the token to the poster if there is
// no room.
func (s *stormSide) trySend(v *volley) {
	q, token := s.next(v)
	s.lane.sent.Add(1)
	switch _, err := q.Submit(context.Background(), &token, &reactor.Payload{}, reactor.NonBlock); {
	case err == nil:
		v.sent++
		return
	case !errors.Is(err, reactor.ErrQueueFull):
		s.lane.t.Error(err)
	}
	s.lane.sent.Add(^uint64(0))
}

// allDone waits until all tokens of the lane have arrived and their sends have
// completed. In a lane with one volley no more can be submitted meanwhile: the volley
// is here.
func (l *lane) allDone() {
	for l.done.Load() < l.sent.Load() || l.hops.Load() < l.sent.Load() {
		<-l.isDone
	}
}

// look has who waits look again.
func (l *lane) look() {
	select {
	case l.isDone <- struct{}{}:
	default: // it will anyway
	}
}

// next is the next token of a volley, and where it goes.
func (s *stormSide) next(v *volley) (*reactor.Queue, reactor.Send) {
	return s.ends[v.queue[v.sent]].q, reactor.Send{Opcode: verbs.WRSendWithImm, Imm: uint32(v.n), Sink: sending{s.lane}}
}

// sending takes the completion of a token's sending. Whether it failed shows by itself:
// then no token arrives.
type sending struct{ l *lane }

func (s sending) Complete(reactor.SinkContext, reactor.Completion, error) {
	s.l.done.Add(1)
	s.l.look()
}
