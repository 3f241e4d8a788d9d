package actor

import (
	"fmt"
	"math"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/internal/exec"
)

// Defaults of Config, Options and Restart.
const (
	DefaultWorkers    = 16
	DefaultMailbox    = 256
	DefaultThroughput = 64
	DefaultOperations = 1024
	DefaultReceives   = 8
	DefaultRestarts   = 10
	DefaultWithin     = time.Minute
	DefaultFirst      = 10 * time.Millisecond
	DefaultLast       = 10 * time.Second

	maxMailbox = 1 << 24 // messages; a larger mailbox would only hide a leak
	// maxMailboxBytes is the largest memory of a mailbox, which Spawn allocates. A slice of half the
	// addresses is the largest that Go makes on 32 bits.
	maxMailboxBytes = min(1<<34, math.MaxInt/2)
	maxReceives     = 1 << 14 // of one connection; a peer has no more credits
	// maxRestarts is the largest Restart.Most: the time of each failure is kept for Restart.Within.
	maxRestarts = 1 << 16
)

// Overflow selects what Tell does when the mailbox is full.
type Overflow uint8

// Values of Overflow.
const (
	// Fail makes Tell return ErrMailboxFull.
	Fail Overflow = iota
	// Wait makes Tell wait for room until the context ends. Waiting Tells get room in the order of their calls. A
	// new Tell that finds room does not wait for them, unless the first has been woken in vain several times. In
	// a handler Tell does not wait, but returns ErrWouldDeadlock.
	Wait
	// Drop makes Tell drop the message and return nil. The message is counted, and reported to
	// Config.DeadLetters.
	Drop
)

// Place selects where an actor runs.
type Place uint8

// Values of Place.
const (
	// OnPool runs the actor on the goroutines of the system's pool. At most Config.Workers handlers
	// run at the same time. Handlers may block.
	OnPool Place = iota
	// OnReactor runs the actor on the callback goroutine of a reactor. This is not the goroutine that
	// runs the reactor. Completions reach the actor with the least delay. Handlers must not block,
	// because they would delay all other callbacks of the reactor.
	OnReactor
)

// Config describes a System. The zero value works.
type Config struct {
	// Runtime provides connections, device events, the reactors of OnReactor and the default clock.
	// If Runtime is nil, actors cannot connect, get no device events, and cannot be on a reactor. The
	// caller closes the runtime after the system.
	Runtime *verbena.Runtime
	// Workers is the maximum number of handlers that run on the pool at the same time, at most 32768;
	// default DefaultWorkers.
	Workers int
	// DeadLetters is called with every DeadLetter. Calls may be concurrent and on any goroutine, and
	// must not block. DeadLetters may call Tell, for example of an actor that keeps the letters.
	//
	// Two kinds of dead letters are only counted, in Stats.Unreported, because with them DeadLetters
	// could cause dead letters without end: a dead letter that a call of DeadLetters, of any system,
	// causes on its own goroutine; and, on any goroutine, a message that is a DeadLetter. If
	// DeadLetters passes letters on by other goroutines, or by actors, it should tell them as
	// DeadLetters. Otherwise each may cause a further one for as long as an actor is full.
	DeadLetters func(DeadLetter)
	// Notice is called with the ChildEvents of actors that have no parent. Calls may be concurrent
	// and on any goroutine, and must not block.
	Notice func(ChildEvent)
	// Clock is the clock of timers and restarts. The default is Runtime, or the system clock if
	// Runtime is nil.
	Clock Clock
	// Seed seeds the random part of the waits before restarts (see Restart).
	Seed uint64
}

// Options describes an actor. The zero value works.
type Options struct {
	// Name appears in reports; default "actor-" and the actor's number (Ref.ID).
	Name string
	// Mailbox is the mailbox's capacity in messages, at most 2^24; default DefaultMailbox. Spawn
	// allocates its memory: the size of a message and some 24 bytes for each, at most 16 GiB, or 1 GiB
	// where an int has 32 bits.
	Mailbox int
	// Overflow selects what Tell does when the mailbox is full; default Fail.
	Overflow Overflow
	// On selects where the actor runs; default OnPool.
	On Place
	// Loop selects the reactor if On is OnReactor. Conn.Loop returns the Loop of a connection. By
	// default the system assigns its actors to the reactors round-robin.
	Loop verbena.Loop
	// Throughput is how many messages and events the actor may handle before other actors run;
	// default DefaultThroughput.
	Throughput int
	// Operations is the largest number of outstanding operations, including those that wait for
	// room; default DefaultOperations.
	Operations int
	// Receives is how many messages of each owned connection may be queued for the handler, at most
	// 16384; default DefaultReceives.
	Receives int
	// Restart is the rule for a failure of the actor.
	Restart Restart
}

// Restart is the rule for a failed actor. An actor is restarted at most Most times in any period of
// length Within. A further failure ends the actor.
//
// Before the first restart in a period, the actor waits for the time First. Before each further
// restart it waits twice as long as before, up to Last. Every wait is extended by a random time of
// up to half the wait, so that actors that failed together do not restart together. A wait is at most
// 2^63-1 ns, which is 292 years.
type Restart struct {
	Most     int           // default DefaultRestarts, at most 65536; negative: the actor is never restarted
	Within   time.Duration // default DefaultWithin
	First    time.Duration // default DefaultFirst
	Last     time.Duration // default DefaultLast, or First if that is longer
	Escalate bool          // if a failure ends the actor, its parent fails, too (ErrEscalated)
}

func (c Config) validate() (Config, error) {
	c.Workers = orDefault(c.Workers, DefaultWorkers)
	if c.Workers < 1 || c.Workers > exec.MaxWorkers {
		return c, fmt.Errorf("%w: Config.Workers is %d, want 1 to %d", ErrConfig, c.Workers, exec.MaxWorkers)
	}
	if c.Clock == nil {
		c.Clock = wall{}
		if c.Runtime != nil {
			c.Clock = c.Runtime
		}
	}
	return c, nil
}

func (o Options) validate(s *System) (Options, error) {
	o.Mailbox = orDefault(o.Mailbox, DefaultMailbox)
	o.Throughput = orDefault(o.Throughput, DefaultThroughput)
	o.Operations = orDefault(o.Operations, DefaultOperations)
	o.Receives = orDefault(o.Receives, DefaultReceives)
	r := &o.Restart
	r.Most = orDefault(r.Most, DefaultRestarts)
	r.Within = orDefault(r.Within, DefaultWithin)
	r.First = orDefault(r.First, DefaultFirst)
	r.Last = orDefault(r.Last, max(DefaultLast, r.First))
	bad := func(what string, got any, want string) (Options, error) {
		return o, fmt.Errorf("%w: Options.%s is %v, want %s", ErrConfig, what, got, want)
	}
	switch {
	case o.Mailbox < 1 || o.Mailbox > maxMailbox:
		return bad("Mailbox", o.Mailbox, fmt.Sprintf("1 to %d", maxMailbox))
	case o.Overflow > Drop:
		return bad("Overflow", o.Overflow, "Fail, Wait or Drop")
	case o.On > OnReactor:
		return bad("On", o.On, "OnPool or OnReactor")
	case o.On == OnReactor && s.cfg.Runtime == nil:
		return bad("On", "OnReactor", "OnPool without a Config.Runtime")
	case o.Throughput < 1:
		return bad("Throughput", o.Throughput, "at least 1")
	case o.Operations < 1:
		return bad("Operations", o.Operations, "at least 1")
	case o.Receives < 1 || o.Receives > maxReceives:
		return bad("Receives", o.Receives, fmt.Sprintf("1 to %d", maxReceives))
	case r.Most > maxRestarts:
		return bad("Restart.Most", r.Most, fmt.Sprintf("at most %d", maxRestarts))
	case r.Within < 0 || r.First < 0 || r.Last < r.First:
		return bad("Restart", *r, "durations of at least 0, Last not below First")
	}
	return o, nil
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}
