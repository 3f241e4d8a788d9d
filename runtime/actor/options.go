package actor

import (
	"fmt"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
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

	maxMailbox = 1 << 24 // messages; a larger mailbox hides a leak
	maxWorkers = 1 << 15
)

// Overflow selects what Tell does when the mailbox is full.
type Overflow uint8

// Values of Overflow.
const (
	// Fail returns ErrMailboxFull.
	Fail Overflow = iota
	// Wait waits for room until the context ends. A handler does not wait: it gets
	// ErrWouldDeadlock.
	Wait
	// Drop drops a message that does not fit, counts it and reports it to Config.DeadLetters. Tell
	// returns nil.
	Drop
)

// Place selects where an actor runs.
type Place uint8

// Values of Place.
const (
	// OnPool runs the actor on a goroutine of the system's pool: handlers may block, at most
	// Config.Workers at a time.
	OnPool Place = iota
	// OnReactor runs the actor on a reactor's callback goroutine, which runs beside the reactor's
	// loop. Completions reach the actor with the least delay. Handlers must not block: they would
	// delay all other callbacks of the reactor.
	OnReactor
)

// Config describes a System. The zero value works.
type Config struct {
	// Runtime provides connections, device events, the reactors of OnReactor and the default clock.
	// Nil: actors have no connections, device events or reactors. The caller closes the runtime
	// after the system.
	Runtime *verbena.Runtime
	// Workers is the number of handlers that run at once on the pool; default DefaultWorkers.
	Workers int
	// DeadLetters is called with every DeadLetter. It is called concurrently, on any goroutine, and
	// must not block.
	DeadLetters func(DeadLetter)
	// Notice is called with the ChildEvents of actors that have no parent. It is called
	// concurrently, on any goroutine, and must not block.
	Notice func(ChildEvent)
	// Clock is the clock of timers and restarts; default the runtime's, or else the machine's.
	Clock Clock
	// Seed seeds the jitter of restarts; equal seeds give equal jitter.
	Seed uint64
}

// Options describe an actor. The zero value works.
type Options struct {
	// Name appears in reports; default "actor-" and its number.
	Name string
	// Mailbox is the mailbox's capacity in messages; default DefaultMailbox.
	Mailbox int
	// Overflow selects what Tell does when the mailbox is full; default Fail.
	Overflow Overflow
	// On selects where the actor runs; default OnPool.
	On Place
	// Loop is the reactor of an OnReactor actor (Conn.Loop returns that of a connection); default:
	// round robin.
	Loop verbena.Loop
	// Throughput is how many messages and events an actor handles before other actors run; default
	// DefaultThroughput.
	Throughput int
	// Operations is the largest number of outstanding operations, those that wait for room
	// included; default DefaultOperations.
	Operations int
	// Receives is how many messages of each owned connection may be queued for the handler; default
	// DefaultReceives.
	Receives int
	// Restart is the rule for failures.
	Restart Restart
}

// Restart is the rule for a failed actor. The zero value restarts it, up to DefaultRestarts times
// within DefaultWithin, and then stops it.
//
// The first restart within the time Within waits First; each further one waits twice as long, up to
// Last. Every wait is extended by a random time of up to half of it, so that actors that failed
// together do not restart together.
type Restart struct {
	Most     int           // restarts within the time Within; default DefaultRestarts; negative: none
	Within   time.Duration // default DefaultWithin
	First    time.Duration // default DefaultFirst
	Last     time.Duration // default DefaultLast
	Escalate bool          // an end by a failure is a failure of the parent (ErrEscalated)
}

func (c Config) validate() (Config, error) {
	c.Workers = orDefault(c.Workers, DefaultWorkers)
	if c.Workers < 1 || c.Workers > maxWorkers {
		return c, fmt.Errorf("%w: Config.Workers is %d, want 1 to %d", ErrConfig, c.Workers, maxWorkers)
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
	case o.Receives < 1:
		return bad("Receives", o.Receives, "at least 1")
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
