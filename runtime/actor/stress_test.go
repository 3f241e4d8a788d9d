package actor

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stressMessages is how many messages `make test` sends. VERBENA_STRESS_OPS overrides it: `make
// stress` sends ten million.
const stressMessages = 200_000

const (
	stressActors   = 1000
	stressDrivers  = 4
	stressFriends  = 16  // actors that each actor sends to
	stressPanics   = 500 // one message in this many panics
	stressStops    = 300 // one send of a driver in this many stops an actor
	stressHops     = 6
	stressAttempts = 4 // upper bound of attempts per accepted message
)

// Fates of a message, in stress.fate.
const (
	fateHandled  = 1
	fateReported = 2
	fateRefused  = 4
)

// note is a message: from is the sender, an actor's number or a driver's negative number, and seq
// its sequence number from that sender to this actor.
type note struct {
	id   uint64
	from int64
	seq  uint32
	hops int
}

// stress is a thousand actors that tell each other things, while drivers tell them things, and stop
// and replace them.
type stress struct {
	t      testing.TB
	sys    *System
	seed   uint64
	target uint64
	// ids counts the messages that were made, accepted those that Tell accepted.
	ids, accepted, handled, panics, full, drops, stops atomic.Uint64
	// fate has four bits for each message; any goroutine sets them, once.
	fate  []atomic.Uint32
	slots [stressActors]atomic.Pointer[Ref[note]]

	mu     sync.Mutex
	broken []string
}

func (s *stress) fail(what string, v ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.broken) < 10 {
		s.broken = append(s.broken, what)
		s.t.Errorf("%s: %v", what, v)
	}
	s.ids.Store(s.target * stressAttempts) // the others may stop
}

// perWord is the number of fates in a word.
const perWord = 8

// settle records the fate of a message; each message has one.
func (s *stress) settle(id uint64, fate uint32) {
	shift := id % perWord * 4
	if old := s.fate[id/perWord].Or(fate << shift); old>>shift&15 != 0 {
		s.fail("a message has two fates", id, old>>shift&15, fate)
	}
}

func (s *stress) over() bool {
	return s.accepted.Load() >= s.target || s.ids.Load() >= s.target*stressAttempts
}

// sender numbers its messages to each actor.
type sender struct {
	s    *stress
	from int64
	to   [stressActors]struct {
		actor uint64
		seq   uint32
	}
}

// tell sends to the actor in a slot, and reports whether it is alive.
func (f *sender) tell(ctx context.Context, slot, hops int) (there bool) {
	id := f.s.ids.Add(1) - 1
	if id >= f.s.target*stressAttempts {
		return true
	}
	r, to := f.s.slots[slot].Load(), &f.to[slot]
	if to.actor != r.ID() {
		to.actor, to.seq = r.ID(), 0
	}
	err := r.Tell(ctx, note{id, f.from, to.seq + 1, hops})
	if err == nil {
		to.seq++
		f.s.accepted.Add(1)
		return true
	}
	f.s.settle(id, fateRefused)
	if errors.Is(err, ErrMailboxFull) || errors.Is(err, ErrWouldDeadlock) || errors.Is(err, context.DeadlineExceeded) {
		f.s.full.Add(1)
		runtime.Gosched()
		return true
	}
	if !errors.Is(err, ErrStopped) && !errors.Is(err, context.Canceled) {
		f.s.fail("Tell", err)
	}
	return false
}

// gossip is the handler. Its state about senders survives restarts.
type gossip struct {
	s      *stress
	slot   int
	rand   *rand.Rand
	send   *sender
	last   map[int64]uint32 // by sender
	inside int
}

func (g *gossip) Receive(ctx *Context[note], m note) {
	g.inside++
	if g.inside != 1 {
		g.s.fail("two handlers at once", g.inside)
	}
	if last := g.last[m.from]; m.seq <= last { // gaps are reported messages
		g.s.fail("out of order", m, last)
	}
	g.last[m.from] = m.seq
	if g.rand.IntN(stressPanics) == 0 {
		g.s.panics.Add(1)
		g.inside--
		panic(errBoom)
	}
	g.s.settle(m.id, fateHandled)
	g.s.handled.Add(1)
	if m.hops > 0 && !g.s.over() {
		g.send.from = int64(ctx.Self().ID())
		g.send.tell(ctx, (g.slot+1+g.rand.IntN(stressFriends))%stressActors, m.hops-1)
	}
	g.inside--
}

// place spawns a new actor in a slot.
func (s *stress) place(slot int, r *rand.Rand) {
	g := &gossip{s: s, slot: slot, rand: rand.New(rand.NewPCG(s.seed, r.Uint64())), send: &sender{s: s}, last: map[int64]uint32{}}
	o := Options{
		Mailbox: 1 + r.IntN(64), Overflow: Overflow(r.IntN(3)), Throughput: 1 + r.IntN(100),
		Restart: Restart{Most: 1 + r.IntN(50), First: time.Microsecond, Last: time.Millisecond},
	}
	ref, err := Spawn(s.sys, o, func() Handler[note] { return g })
	if err != nil {
		s.fail("Spawn", err)
		return
	}
	s.slots[slot].Store(&ref)
}

// drive tells and stops actors at random.
func (s *stress) drive(ctx context.Context, who int) {
	r := rand.New(rand.NewPCG(s.seed, uint64(who)))
	f := &sender{s: s, from: -int64(who) - 1}
	for !s.over() {
		slot := r.IntN(stressActors/stressDrivers)*stressDrivers + who // each replaces its own slots
		if r.IntN(stressStops) == 0 {
			s.stops.Add(1)
			if r.IntN(2) == 0 {
				s.slots[slot].Load().Stop()
			} else {
				s.slots[slot].Load().StopNow()
			}
		}
		short, cancel := ctx, context.CancelFunc(func() {})
		if r.IntN(100) == 0 {
			short, cancel = context.WithTimeout(ctx, time.Microsecond)
		}
		if !f.tell(short, slot, r.IntN(stressHops)) {
			s.place(slot, r)
		}
		cancel()
	}
}

// Rule: among a thousand actors that tell each other things, are stopped and replaced, and panic at
// random, each accepted message is handled once or reported once; messages of each pair come in
// order; one handler of an actor runs at a time.
func TestStress(t *testing.T) {
	number := func(name string, otherwise uint64) uint64 {
		if v, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			return v
		}
		return otherwise
	}
	s := &stress{t: t, seed: number("VERBENA_STRESS_SEED", uint64(time.Now().UnixNano())), target: number("VERBENA_STRESS_OPS", stressMessages)}
	t.Logf("VERBENA_STRESS_SEED=%d VERBENA_STRESS_OPS=%d", s.seed, s.target)
	s.fate = make([]atomic.Uint32, s.target*stressAttempts/perWord+1)
	var err error
	if s.sys, err = New(Config{Workers: 4, Seed: s.seed, DeadLetters: func(l DeadLetter) {
		if errors.Is(l.Err, ErrMailboxFull) {
			s.drops.Add(1)
		}
		s.settle(l.What.(note).id, fateReported)
	}}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	r := rand.New(rand.NewPCG(s.seed, 99))
	for slot := range s.slots {
		s.place(slot, r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var drivers sync.WaitGroup
	for who := range stressDrivers {
		drivers.Go(func() { s.drive(ctx, who) })
	}
	drivers.Wait()
	closing, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if err := s.sys.Close(closing); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	var fates [8]uint64
	made := min(s.ids.Load(), s.target*stressAttempts)
	for id := range made {
		fates[s.fate[id/perWord].Load()>>(id%perWord*4)&7]++
	}
	st := s.sys.Stats()
	t.Logf("%d accepted, %d refused in %v: %d handled, %d reported (%d dropped by full mailboxes); %d panics, %d restarts, %d stops, %d actors",
		s.accepted.Load(), fates[fateRefused], took.Round(time.Millisecond), fates[fateHandled], fates[fateReported],
		s.drops.Load(), s.panics.Load(), st.Restarts, s.stops.Load(), st.Spawned)
	if fates[0] > 0 {
		t.Errorf("%d messages are lost", fates[0])
	}
	if got := fates[fateHandled] + fates[fateReported]; got != s.accepted.Load() {
		t.Errorf("%d were handled or reported, %d accepted", got, s.accepted.Load())
	}
	if s.accepted.Load() < s.target {
		t.Errorf("%d messages were accepted, want %d: the test refuses too much", s.accepted.Load(), s.target)
	}
	if s.panics.Load() == 0 || s.stops.Load() == 0 || s.drops.Load() == 0 || fates[fateRefused] == 0 {
		t.Error("nothing of something: the test does not show what it is for")
	}
}
