package fabric

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// acquireLooks is how often a caller tries to take the token before it sleeps: some microseconds,
// several runs.
const acquireLooks = 16

// Port is an endpoint's attachment to the fabric. "Runner only" means: within the endpoint's
// Progress, or within a function run by Exclusive.
type Port struct {
	f    *Fabric
	gid  verbs.GID
	name string
	// owner is the port that this one is the uplink of; nil for an ordinary port. Immutable.
	owner *Port
	// uplink is the port's uplink, or nil. Under the fabric's mutex.
	uplink *Port
	far    bool // of an uplink: it has the paths with UDP ports. Immutable.

	token token
	// sleeper is held by the one waiter, which sleeps until freed receives a release (acquire).
	sleeper sync.Mutex
	freed   chan struct{}
	// in is the packets for the endpoint: pushed by senders, taken by the runner.
	in mailbox
	// returned is the packets of this port's pool that came back: pushed by the releasing
	// goroutines, taken by the runner.
	returned returnStack

	// deadline is the time by which the endpoint wants to run, in ns; 0 for none. Written by the
	// runner after a run, zeroed by the pacemaker when it acts on it; read by the pacemaker.
	deadline atomic.Int64
	// wanted (virtual time) asks Step for a run: set by any goroutine, cleared by Step.
	wanted atomic.Bool
	// deferred reports that the port is in the pacemaker's inbox: set by the goroutine that pushes
	// it there, cleared by the pacemaker before it runs the port.
	deferred  atomic.Bool
	deferHook ring.Hook[Port]
	// progressed has askBit while a sender asks for a run; the rest counts the runs that were asked
	// for. AskProgress sets the bit; the runner counts. It publishes nothing.
	progressed atomic.Uint32
	// share is the share of each link to this port (see flow). Written under the fabric's mutex,
	// read by senders.
	share atomic.Int64

	// The rest belongs to the runner.
	ep       Endpoint
	closed   bool
	down     bool // see SetDown
	lastNow  int64
	rx       *Packet // taken from in, not yet taken by the endpoint; linked by next
	free     *Packet // pool; linked by next
	spare    *Packet // from another port's pool: taken here and sent next; see Return
	back     chain   // returned in this run, all to the pool of backTo
	backTo   *Port
	touched  []touch              // destinations of this run
	routes   map[wire.Path]*Route // by destination; see noteLocked
	kept     map[*Route]int       // how often Route returned it and Unroute did not release it
	sweepAt  int                  // the number of routes at which noteLocked sweeps
	outShare int64                // the share of each link from this port
	stats    Stats
}

// touch is a port that got packets in this run, by route, or room to send, with a nil route.
type touch struct {
	route *Route // nil: no packets
	to    *Port
}

// InboxHook returns the link for the pacemaker's inbox; for package ring.
func (p *Port) InboxHook() *ring.Hook[Port] { return &p.deferHook }

// Fabric returns the fabric that the port is attached to.
func (p *Port) Fabric() *Fabric { return p.f }

// GID returns the port's address.
func (p *Port) GID() verbs.GID { return p.gid }

// Name returns the port's name, as given to Attach.
func (p *Port) Name() string { return p.name }

// Get returns an empty packet: the spare one, or one of the port's pool, which grows to the largest
// number of packets ever in flight at once. Runner only.
func (p *Port) Get() *Packet {
	k := p.spare
	if k != nil {
		p.spare = nil
	} else {
		if k = p.free; k == nil {
			k = p.refill()
		}
		p.free = k.next
		k.next = nil
	}
	k.state = filling
	return k
}

// refill takes back the packets that were returned, or allocates one.
func (p *Port) refill() *Packet {
	if p.free = p.returned.takeAll(); p.free == nil {
		k := &Packet{home: p}
		k.Payload, k.own = k.inline[:0], k.small[:0]
		p.free = k
	}
	return p.free
}

// Take returns the next packet in order of arrival, or nil. The caller gives it back with Return or
// Release. Runner only.
func (p *Port) Take() *Packet {
	if p.down || p.rx == nil && !p.lookIn() {
		return nil
	}
	k := p.next()
	p.stats.RxPackets++
	p.stats.RxBytes += uint64(k.HdrLen + k.PayloadLen)
	return k
}

// lookIn takes the packets in the inbox, and reports whether there were any.
func (p *Port) lookIn() bool {
	p.rx = p.in.takeAll()
	return p.rx != nil
}

// next removes and returns the first packet of rx, which is not empty.
func (p *Port) next() *Packet {
	k := p.rx
	p.rx = k.next
	k.next = nil
	k.state = received
	return k
}

// Return is a cheaper Release for a packet that this port took: one packet stays here for the
// answer, which brings it home, so that an exchange of single packets needs no atomic operation for
// them (an eighth of its time). Runner only.
func (p *Port) Return(k *Packet) {
	k.mustHave()
	k.done()
	k.reset()
	switch {
	case k.home == p:
		k.next, p.free = p.free, k
	case p.spare == nil:
		p.spare = k
	default:
		if p.backTo != k.home {
			p.giveBack()
		}
		p.backTo = k.home
		p.back.addFirst(k)
	}
}

// Kick makes the endpoint run after the caller left work for it: on this goroutine when it does not
// run, followed by every endpoint that got packets, until all are quiet or a budget is used up (the
// fabric's goroutine does the rest). When another goroutine runs it, Kick leaves a mark and
// returns, and the endpoint runs once more. It never waits. In virtual time it only marks. Any
// goroutine; a runner may kick its own port, and uses Wake for another.
func (p *Port) Kick() {
	if p.f.cfg.Virtual {
		p.wanted.Store(true)
		return
	}
	if p.token.take() {
		p.f.drive(p, kickBudget)
	}
}

// Enter takes the token, as Exclusive does, if the endpoint is not running; Run releases it. When
// it returns false it has done nothing: the caller leaves its work where a run finds it, and calls
// Kick. It never waits. Always false in virtual time. Any goroutine.
func (p *Port) Enter() bool { return !p.f.cfg.Virtual && p.token.tryTake() }

// Run runs the endpoint, as Kick does. Only after Enter.
func (p *Port) Run() { p.f.drive(p, kickBudget) }

// Wake makes the endpoint run soon, but not on this goroutine: for callers within the run of
// another endpoint. Any goroutine; it never waits.
func (p *Port) Wake() {
	if p.f.cfg.Virtual {
		p.wanted.Store(true)
		return
	}
	p.f.deferPort(p)
}

// Exclusive runs fn while the endpoint is not running, and then runs the endpoint. fn has the
// rights of the runner. Exclusive waits for a current run, so it is for creating, modifying and
// destroying objects. Any goroutine, but not within a run of this port or another fn, which would
// deadlock.
func (p *Port) Exclusive(fn func()) {
	p.acquire()
	defer p.finishRun() // even when fn panics or ends its goroutine: others wait for the token
	p.setNow(int64(p.f.Now()))
	fn()
}

// Now returns the time of this run. Runner only.
func (p *Port) Now() time.Duration { return time.Duration(p.lastNow) }

// setNow starts a run. Two runners may read the clock before they take the token, so it keeps the
// time monotonic.
func (p *Port) setNow(now int64) { p.lastNow = max(p.lastNow, now) }

// acquire waits for the token. It tries a few times, which is enough for a run, and then sleeps: it
// must not occupy the processor that the runner may need. A waiter that was woken and lost the race
// is handed the token by the next release.
func (p *Port) acquire() {
	for range acquireLooks {
		if p.token.tryTake() {
			return
		}
		runtime.Gosched()
	}
	p.sleeper.Lock()
	defer p.sleeper.Unlock()
	for lost := false; !p.token.tryTake(); lost = true {
		if p.token.await(lost) {
			<-p.freed
			if lost {
				return // handed over
			}
		}
	}
}

// release gives the token up, wakes the waiter, and reports whether a mark was left.
func (p *Port) release() (wasMarked bool) {
	wasMarked, wake := p.token.release()
	if wake {
		p.freed <- struct{}{} // has room: there is one waiter at a time
	}
	return wasMarked
}

// finishRun runs the endpoint once and releases the token.
func (p *Port) finishRun() {
	if p.f.cfg.Virtual {
		if p.closed {
			p.dropInbox()
		} else {
			p.wanted.Store(true)
		}
		p.settleVirtual()
		p.release()
		return
	}
	p.f.drive(p, kickBudget)
}

// progress runs the endpoint once. The caller has the token. It reports whether there is more to do
// at once.
func (p *Port) progress(now int64) (more bool) {
	if p.progressed.Load()&askBit != 0 {
		p.progressed.Add(askBit) // clears the bit and counts
	}
	if p.closed {
		p.dropInbox()
		return false
	}
	if p.down {
		p.dropInbox()
	}
	p.setNow(now)
	next, more := p.ep.Progress(time.Duration(p.lastNow))
	if p.deadline.Load() != int64(next) { // the load costs a quarter of the store
		p.deadline.Store(int64(next))
	}
	return more || p.rx != nil
}

// dropInbox drops packets that arrived at a closed port, or one whose link is down.
func (p *Port) dropInbox() {
	for p.rx != nil || p.lookIn() {
		p.stats.Late++
		p.Return(p.next())
	}
}
