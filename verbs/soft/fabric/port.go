package fabric

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// acquireLooks is how often a caller looks for the token before it sleeps: some
// microseconds, several turns.
const acquireLooks = 16

// Port is an endpoint's place on the fabric. "In its turn" means: within the
// endpoint's Turn, or within a function run by Exclusive.
type Port struct {
	f    *Fabric
	gid  verbs.GID
	name string

	token token
	// sleeper is held by the one waiter, which sleeps until freed has a release (acquire).
	sleeper sync.Mutex
	freed   chan struct{}
	// in is packets for the endpoint: pushed by senders, taken in its turn.
	in mailbox
	// returned is packets of this port's pool that came back: pushed by
	// whoever released them, taken in its turn.
	returned pile

	// deadline is when the endpoint wants to be turned, in ns; 0 none. Written
	// by the runner after a turn, zeroed by the pacemaker when it acts on it;
	// read by the pacemaker.
	deadline atomic.Int64
	// wanted (virtual time) asks Step for a turn: set by anyone, cleared by Step.
	wanted atomic.Bool
	// deferred says that the port is in the pacemaker's inbox: set by whoever
	// pushes it there, cleared by the pacemaker before it runs the port.
	deferred  atomic.Bool
	deferHook ring.Hook[Port]
	// progressed has askBit while a sender asks for a turn; the rest counts the turns that were
	// asked for. The bit is set by Ask; the runner counts. It publishes nothing.
	progressed atomic.Uint32
	// share is the share of each link that leads here (see flow). Written under
	// the fabric's mutex, read by senders.
	share atomic.Int64

	// The rest belongs to the holder of the token.
	ep       Endpoint
	closed   bool
	down     bool // see SetDown
	lastNow  int64
	rx       *Packet // taken from in, not yet by the endpoint; linked by next
	free     *Packet // pool; linked by next
	spare    *Packet // of another port's pool: taken here, and sent next; see Return
	back     chain   // returned in this turn, all to the pool of backTo
	backTo   *Port
	touched  []touch              // whom this turn sent to
	routes   map[verbs.GID]*Route // by destination; see noteLocked
	kept     map[*Route]int       // how often Route gave it
	sweepAt  int                  // how many routes ask for a sweep
	outShare int64                // the share of each link that leads away
	stats    Stats
}

// touch is a port that got packets in this turn, by this route, or room to send, by
// none.
type touch struct {
	route *Route // nil: none
	to    *Port
}

// InboxHook is the link in the pacemaker's inbox; for package ring.
func (p *Port) InboxHook() *ring.Hook[Port] { return &p.deferHook }

// Fabric is the fabric the port is attached to.
func (p *Port) Fabric() *Fabric { return p.f }

// GID is the port's address.
func (p *Port) GID() verbs.GID { return p.gid }

// Name is the port's name, as given to Attach.
func (p *Port) Name() string { return p.name }

// Get takes an empty packet: the spare one, or one of the port's pool, which grows to
// the most packets that were ever in flight at once. In its turn only.
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

// refill takes back the packets that were returned, or makes one.
func (p *Port) refill() *Packet {
	if p.free = p.returned.takeAll(); p.free == nil {
		k := &Packet{home: p}
		k.Payload, k.own = k.inline[:0], k.small[:0]
		p.free = k
	}
	return p.free
}

// Take is the next packet that arrived, in order of arrival, or nil. It must be
// given back by Return or Release. In its turn only.
func (p *Port) Take() *Packet {
	if p.down || p.rx == nil && !p.lookIn() {
		return nil
	}
	k := p.next()
	p.stats.RxPackets++
	p.stats.RxBytes += uint64(k.HdrLen + k.PayloadLen)
	return k
}

// lookIn takes what is in the inbox, and tells whether there was something.
func (p *Port) lookIn() bool {
	p.rx = p.in.takeAll()
	return p.rx != nil
}

// next is the first of rx, which is not empty.
func (p *Port) next() *Packet {
	k := p.rx
	p.rx = k.next
	k.next = nil
	k.state = received
	return k
}

// Return is Release for a packet that this port took, cheaper: one packet stays here for
// the answer, which brings it home, so that an exchange of single packets takes no atomic
// step for them (an eighth of its time). In its turn only.
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

// Kick sees to it that the endpoint is turned, after the caller left work for it: on
// this goroutine when nobody runs it, followed by every endpoint that got
// packets, until all is quiet or a budget is used up (the fabric's goroutine
// does the rest). When somebody else runs it, Kick leaves a mark and returns,
// and the endpoint is turned once more. It never waits. In virtual time it only marks. Any
// goroutine; a turn may kick its own port, and uses Wake for another.
func (p *Port) Kick() {
	if p.f.cfg.Virtual {
		p.wanted.Store(true)
		return
	}
	if p.token.take() {
		p.f.drive(p, kickBudget)
	}
}

// Enter begins what Run ends, as within Exclusive, if the endpoint is not running;
// otherwise it is false, and nothing has happened: leave the work where a turn finds
// it, and Kick. It never waits. Always false in virtual time. Any goroutine.
func (p *Port) Enter() bool { return !p.f.cfg.Virtual && p.token.tryTake() }

// Run turns the endpoint, as Kick does. Only after Enter.
func (p *Port) Run() { p.f.drive(p, kickBudget) }

// Wake sees to it that the endpoint is turned soon, but not on this goroutine:
// for callers in the middle of another endpoint's turn. Any goroutine; it never
// waits.
func (p *Port) Wake() {
	if p.f.cfg.Virtual {
		p.wanted.Store(true)
		return
	}
	p.f.deferPort(p)
}

// Exclusive runs fn while the endpoint is not running, and then turns it. fn may do
// what a turn may do. It waits for a run that is going on; so it is for
// creating, modifying and destroying objects. Any goroutine, but not within a
// turn of this port or another fn: it would wait for itself.
func (p *Port) Exclusive(fn func()) {
	p.acquire()
	defer p.finishRun() // also when fn panics or ends its goroutine: others wait for the token
	p.setNow(int64(p.f.Now()))
	fn()
}

// Now is the time of this turn. In its turn only.
func (p *Port) Now() time.Duration { return time.Duration(p.lastNow) }

// setNow starts a turn: two runners read the clock before they take the token,
// so it is kept in order here.
func (p *Port) setNow(now int64) { p.lastNow = max(p.lastNow, now) }

// acquire waits for the token. It looks again a few times, which is enough for a turn, and
// then sleeps: it must not keep the processor that the runner's thread may wait for. A waiter
// that was woken and lost the race is handed the token by the next release.
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
		p.freed <- struct{}{} // has room: one waits at a time
	}
	return wasMarked
}

// finishRun turns the endpoint once and releases the token.
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

// progress runs the endpoint once. The caller has the token. It tells whether
// there is more to do at once.
func (p *Port) progress(now int64) (more bool) {
	if p.progressed.Load()&askBit != 0 {
		p.progressed.Add(askBit) // which takes the bit away and counts
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
	if p.deadline.Load() != int64(next) { // the load is a quarter of the store
		p.deadline.Store(int64(next))
	}
	return more || p.rx != nil
}

// dropInbox drops what arrived at a closed port, or one whose link is down.
func (p *Port) dropInbox() {
	for p.rx != nil || p.lookIn() {
		p.stats.Late++
		p.Return(p.next())
	}
}
