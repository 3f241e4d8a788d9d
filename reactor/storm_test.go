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

// stormEvents is the default number of completion events in a run of all modes, and stormEventsRace
// is the default under the race detector. VERBENA_EVENTS sets another number (`make stress`: ten
// million). VERBENA_STORM_TIME limits the time of each mode. On a device the default of this limit
// is stormTimeDevice, because on an emulated machine an event takes a millisecond, or ten if the
// machine's processors are busy.
const (
	stormEvents     = 60_000
	stormEventsRace = 20_000
	stormTimeDevice = 500 * time.Millisecond
)

// The storm has stormLanes pairs of reactors, on a device stormLanesDevice, because making their queues
// takes an emulated machine 7 s for 16 pairs. Each reactor has stormQueues queue pairs. In the mode
// crowd a lane has stormCrowd volleys.
const (
	stormLanes       = 16
	stormLanesDevice = 4
	stormQueues      = 4
	stormCrowd       = 16
)

// The number of events on slowBed is divided by stormSlowPart, because a single goroutine carries the
// packets of its wire.
const stormSlowPart = 10

// stormPauses returns n such that each result of stormPause is below 2^n ns. For the software RNIC
// 2^n ns is 33 µs, in which a reactor handles a completion and goes to sleep again. For a device, which
// may belong to an emulated machine, 2^n ns is a millisecond.
func stormPauses() int {
	if onDevice() {
		return 20
	}
	return 15
}

// stormMode is a way to cause races between completions, arming and sleeping. A token is a message
// without content. A volley is a group of tokens, which are sent one after the other at random
// intervals. A side of a lane that has received a whole volley sends a new volley.
type stormMode struct {
	name    string
	cfg     reactor.Config
	volleys int  // volleys in transit in one lane
	most    int  // the maximum number of tokens in a volley
	await   bool // the poster awaits each send, and drives meanwhile
	alone   bool // half of the tokens are sent only after the earlier ones have arrived (volley.alone)
	share   int  // the mode takes share/stormShares of the events
}

const stormShares = 10

// In the modes with one volley, many tokens are sent alone (volley.alone). A reactor that waits for
// the completion of such a token sleeps until the event of this completion, because these modes
// have no recheck. So one lost wake-up stops the lane. The mode crowd has many tokens in transit.
// The event of any token makes the reactor poll both completion queues, so the lane may go on after
// a lost event. Therefore this mode has a recheck, which counts the lost events
// (Stats.MissedEvents).
var stormModes = []stormMode{
	{name: "volleys", cfg: reactor.Config{NoCallerDriving: true, Spin: -1, Recheck: -1}, volleys: 1, most: 3, alone: true, share: 4},
	{name: "callers drive", cfg: reactor.Config{Recheck: -1}, volleys: 1, most: 3, await: true, alone: true, share: 3},
	{name: "throughput", cfg: reactor.Config{Policy: reactor.PolicyThroughput, Recheck: -1}, volleys: 1, most: 3, await: true, alone: true, share: 1},
	{name: "latency", cfg: reactor.Config{Policy: reactor.PolicyLatency, Recheck: -1}, volleys: 1, most: 3, await: true, alone: true, share: 1},
	{name: "crowd", cfg: reactor.Config{NoCallerDriving: true, Spin: -1}, volleys: stormCrowd, most: 1, share: 1},
}

// Rule: no wake-up is lost. A completion that comes while its reactor arms, polls or goes to sleep
// is delivered.
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
					t.Logf("to repeat the pauses set VERBENA_STORM_SEED=%d", seed)
				}
			})
		}
	}
	onBeds(t, test)
	if part = stormSlowPart; !onDevice() {
		t.Run("slow", func(t *testing.T) { test(t, slowBed(t)) })
	}
}

// number returns the integer in the environment variable with the given name, or a default.
func number(t testing.TB, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	return must.Get(strconv.Atoi(v))(t)
}

// storm has the lanes of one mode.
type storm struct {
	mode  stormMode
	lanes []*lane
}

func newStorm(t *testing.T, b bed, m stormMode, seed uint64) *storm {
	s := &storm{mode: m}
	lanes := stormLanes
	if onDevice() {
		lanes = stormLanesDevice
	}
	for i := range lanes {
		s.lanes = append(s.lanes, newLane(t, b, m, rand.NewPCG(seed, uint64(i))))
	}
	return s
}

// run sends volleys to and fro until the wanted number of completion events has come, or the time
// limit has passed (0 means no limit). Then it removes the volleys and checks the counters.
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
				t.Fatalf("lane %d: after %d tokens no token arrived for %v, with %d volleys in transit: a wake-up was lost\n%s", i, l.hops.Load(), patience, l.out.Load(), l.report())
			}
		}
	}
	for _, l := range s.lanes { // stop all lanes before waiting for one
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
	t.Logf("%d events, %d queue pairs, %d events lost, %v: %d completions, %d wake-ups by completion channels, %d sleeps, %d passes that armed and then found a completion, %d rechecks",
		s.events(), 2*len(s.lanes)*stormQueues, sum.MissedEvents, took.Round(time.Millisecond), sum.Polled, sum.ChannelWakeups, sum.Sleeps, met, sum.Rechecks)
	if sum.MissedEvents != 0 {
		t.Errorf("%d events were lost, want 0", sum.MissedEvents)
	}
	if s.events()/stormRare > met {
		t.Errorf("of %d events, %d completions came between the last poll and the arming, want at least %d: the run met too few races", s.events(), met, s.events()/stormRare)
	}
}

// stormRare limits how rare races may be. In a run of n events, at least n/stormRare polls after an
// arming must find a completion. Otherwise the run met too few races, and the test fails.
const stormRare = 1000

// stormLook is the interval of progress checks.
const stormLook = 50 * time.Millisecond

func (s *storm) events() uint64 { return s.sum(func(l *lane) uint64 { return l.events.Load() }) }

// sum returns the sum of a counter over all lanes.
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
	// In TestTheStormSeesWhatIsLost a lane without progress for stormStill counts as stopped by a
	// loss. On a slow machine this may happen without a loss, and the test then passes without
	// having shown anything.
	stormStill = 300 * time.Millisecond
	// stormWarm is how many tokens arrive before the first loss.
	stormWarm = 50
	// stormRecheck replaces Config.Recheck of the mode crowd, to keep the test short.
	stormRecheck = 40 * time.Millisecond
)

// Rule: the storm detects losses. If one in stormLoseOne events of sends or of receives is dropped, a
// lane stops, or its reactors count missed events. If the poll after the arming is omitted in a mode
// with one volley, a lane stops.
func TestTheStormSeesWhatIsLost(t *testing.T) {
	onlySoft(t, "the test checks the storm itself, for which the software RNIC is enough")
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
					t.Errorf("%d tokens arrived, and within %v the lane neither stopped nor counted a missed event", l.hops.Load(), patience)
				}
				l.loss.Store(0)
				l.revive(t)
				l.end(t)
				l.close(t)
			})
		}
	}
}

// shows reports whether the lane shows a loss: it stops, or counts missed events, within the time
// limit patience.
func (l *lane) shows(t *testing.T) bool {
	look := time.NewTicker(stormRecheck)
	defer look.Stop()
	for began := time.Now(); time.Since(began) < patience; {
		<-look.C
		if l.stalled(); time.Since(l.seenAt) > stormStill {
			return true
		}
		if l.mode.cfg.Recheck < 0 {
			continue // do not call Stats: it takes the turn and polls, which could revive the lane
		}
		for _, s := range l.sides {
			if s.ends[0].r.Stats().MissedEvents > 0 {
				return true
			}
		}
	}
	return false
}

// revive removes the volleys of a lane that has lost events. Its reactors would sleep forever, so
// revive makes them poll until no volley is left and all sends have completed.
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

// pause returns a random pause to make before a token is sent. One pause in 1024 is a millisecond,
// after which the peer sleeps. One in four is 0 (in the mode crowd seven in eight). The others come
// from stormPause, and their lengths differ widely. So some of them end while the peer handles the
// previous token, polls, arms or goes to sleep.
func (s *stormSide) pause() time.Duration {
	atOnce := 1 << 8
	if s.lane.mode.volleys > 1 { // the mode crowd
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

// stormPause returns a random pause below 2^k ns, where k is random from 1 to stormPauses().
func stormPause(rng *rand.Rand) time.Duration {
	return time.Duration(rng.IntN(1 << (1 + rng.IntN(stormPauses())))) // ns
}

// post is the function of the poster, the goroutine that sends tokens after their pauses.
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
			runtime.Gosched() // the loop can post the token before the next pause
		}
	}
}

// send sends the next token of a volley, and waits if no slot is free. Only the poster calls it. All
// slots can be taken, because the peer may answer a volley before this side has polled the
// completions of the volley's sends.
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

// trySend is like send, but for a sink, which must not wait. If no slot is free, the token is left
// to the poster.
func (s *stormSide) trySend(v *volley) {
	q, token := s.next(v)
	s.lane.sent.Add(1)
	switch _, err := q.Submit(context.Background(), &token, &reactor.Payload{}, reactor.NonBlock); {
	case err == nil:
		v.sent++
		return
	case !errors.Is(err, reactor.ErrQueueFull):
		s.lane.t.Errorf("Submit in a sink returned %v, want nil or ErrQueueFull", err)
	}
	s.lane.sent.Add(^uint64(0))
}

// allDone waits until all tokens that the lane has sent have arrived, and their sends have
// completed. Only modes with one volley call it, so no other token is sent meanwhile.
func (l *lane) allDone() {
	for l.done.Load() < l.sent.Load() || l.hops.Load() < l.sent.Load() {
		<-l.isDone
	}
}

// look makes a goroutine that waits in allDone compare the counters again.
func (l *lane) look() {
	select {
	case l.isDone <- struct{}{}:
	default: // a wake-up is already stored
	}
}

// next returns the next token of a volley and its queue.
func (s *stormSide) next(v *volley) (*reactor.Queue, reactor.Send) {
	return s.ends[v.queue[v.sent]].q, reactor.Send{Opcode: verbs.WRSendWithImm, Imm: uint32(v.n), Sink: sending{s.lane}}
}

// sending is the sink of a token's send. It ignores a failure of the send: the token does not
// arrive, so the test sees that the lane stops.
type sending struct{ l *lane }

func (s sending) Complete(reactor.SinkContext, reactor.Completion, error) {
	s.l.done.Add(1)
	s.l.look()
}
