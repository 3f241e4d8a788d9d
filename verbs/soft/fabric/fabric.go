package fabric

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// ErrGIDInUse says that a port with this GID is attached already.
var ErrGIDInUse = errors.New("fabric: GID in use")

// AttachError is a port that could not be attached.
type AttachError struct {
	GID  verbs.GID
	Name string // of the port that was refused
	Has  string // name of the port that has the GID
}

// Error names the GID and both ports.
func (e *AttachError) Error() string {
	return fmt.Sprintf("fabric: cannot attach %q at %v: %q is there", e.Name, e.GID, e.Has)
}

// Is matches ErrGIDInUse.
func (e *AttachError) Is(target error) bool { return target == ErrGIDInUse }

// Config says what kind of link a fabric is. The zero value is a perfect link
// in real time with ordinary packets.
type Config struct {
	// Virtual stops the clock: nothing happens but in Step and AdvanceTo.
	Virtual bool
	// Seed feeds the randomness of every link, and of Rand when Virtual.
	Seed uint64
	// JumboMTU declares that a message of any length fits in one packet.
	JumboMTU bool
	// Rand is where endpoints take unpredictable numbers (keys, QP numbers,
	// PSNs). Default: crypto/rand in real time, and a generator seeded from Seed in
	// virtual time, where a run must be repeatable.
	Rand io.Reader
}

// Endpoint is what a port belongs to: an engine.
type Endpoint interface {
	// Progress takes packets from the port, acts, and sends. now never goes back.
	// next is the time at which it wants to be turned at the latest, 0 for
	// none; more that it has work left right now: so says an endpoint that leaves
	// packets in the inbox and wants to be turned for them. It is never called twice at once for one port, holds no
	// lock that a caller of Kick may hold, does not block, and returns in bounded time.
	Progress(now time.Duration) (next time.Duration, more bool)
}

// Fabric is an in-process link to which ports are attached; see the package
// documentation. All methods may be called from any goroutine unless they say
// otherwise.
type Fabric struct {
	cfg   Config
	rand  io.Reader
	start time.Time

	// mu guards attaching, detaching, and creating and scripting routes: never
	// taken by Kick, nor by Send on a route that exists.
	mu       sync.Mutex
	routes   map[routeKey]*Route
	groups   map[verbs.GID]*Group
	attached map[verbs.GID]*Port
	links    map[verbs.GID]int // how many routes lead there
	sides    map[verbs.GID]int // which side of the partition; nil: none
	all      Link              // what SetAll set; for routes to come
	stop     chan struct{}     // closed to stop the pacemaker
	done     chan struct{}     // closed when it is gone

	// ports is the attached ports in order of attachment. Written under mu
	// (a new slice each time), read by the pacemaker and by Step.
	ports atomic.Pointer[[]*Port]
	// tracer is written by SetTrace, read by senders.
	tracer atomic.Pointer[tracer]

	pace  pacemaker
	delay delayLine

	// now is the virtual time in ns. Written by AdvanceTo, read by anyone.
	now atomic.Int64
}

// New makes a fabric without ports. It starts nothing; the goroutine of a
// fabric in real time lives from the first Attach to the last Detach.
func New(cfg Config) *Fabric {
	f := &Fabric{
		cfg:      cfg,
		rand:     cfg.Rand,
		start:    time.Now(),
		routes:   map[routeKey]*Route{},
		groups:   map[verbs.GID]*Group{},
		attached: map[verbs.GID]*Port{},
		links:    map[verbs.GID]int{},
	}
	if f.rand == nil {
		f.rand = rand.Reader
		if cfg.Virtual {
			f.rand = seeded(cfg.Seed)
		}
	}
	f.rand = &lockedReader{r: f.rand}
	f.ports.Store(new([]*Port))
	f.pace.init()
	return f
}

// JumboMTU tells whether a message of any length fits in one packet.
func (f *Fabric) JumboMTU() bool { return f.cfg.JumboMTU }

// Virtual tells whether the fabric runs on virtual time.
func (f *Fabric) Virtual() bool { return f.cfg.Virtual }

// Rand is the source of unpredictable numbers for endpoints; see Config. It may
// be read from any goroutine.
func (f *Fabric) Rand() io.Reader { return f.rand }

// Now is the time that turns are given: since New in real time, what AdvanceTo
// said in virtual time.
func (f *Fabric) Now() time.Duration {
	if f.cfg.Virtual {
		return time.Duration(f.now.Load())
	}
	return time.Since(f.start)
}

// Attach adds a port. name is for people. The endpoint may be turned from now
// on, also before Attach returns. It fails with an [*AttachError] when the GID is taken.
// Not from within a turn.
func (f *Fabric) Attach(gid verbs.GID, name string, e Endpoint) (*Port, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if has := f.attached[gid]; has != nil {
		return nil, &AttachError{GID: gid, Name: name, Has: has.name}
	}
	p := &Port{f: f, gid: gid, name: name, ep: e, freed: make(chan struct{}, 1),
		routes: map[verbs.GID]*Route{}, kept: map[*Route]int{}, sweepAt: minSweep}
	p.in.taker = p
	f.attached[gid] = p
	f.linkedLocked(gid, 0)
	for _, r := range f.routes {
		if r.dst == gid {
			r.to.Store(p)
		}
	}
	ports := append(slices.Clone(*f.ports.Load()), p)
	f.ports.Store(&ports)
	if len(ports) == 1 && !f.cfg.Virtual {
		f.stop, f.done = make(chan struct{}), make(chan struct{})
		go f.runPacemaker(f.stop, f.done)
	}
	return p, nil
}

// Detach takes the port off the fabric: its endpoint is not running when
// Detach returns and will not be turned again; packets in its inbox are
// dropped and their holders told. It waits for a running turn of the endpoint, and the
// last one for the fabric's goroutine to end. The
// endpoint must have no packets by reference in flight, or keep their memory until their
// PacketDone. Idempotent. Not from within a turn.
func (p *Port) Detach() {
	f := p.f
	p.acquire()
	p.closed, p.ep = true, nil
	p.finishRun()

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attached[p.gid] != p {
		return // detached before
	}
	delete(f.attached, p.gid)
	for key, r := range f.routes {
		// A sender that loaded this pointer before pushes into a closed port and
		// then runs it, which drops the packet.
		r.to.CompareAndSwap(p, nil)
		if r.src == p.gid && r.script.Load() == nil {
			delete(f.routes, key) // nobody sends by it any more
			f.linkedLocked(key.dst, -1)
		}
	}
	for _, g := range f.groups {
		f.removeLocked(g, p)
	}
	ports := slices.DeleteFunc(slices.Clone(*f.ports.Load()), func(q *Port) bool { return q == p })
	f.ports.Store(&ports)
	if len(ports) > 0 {
		return
	}
	if !f.cfg.Virtual {
		close(f.stop)
		<-f.done
	}
	f.delay.dropAll()
}

// lockedReader makes a reader fit for several goroutines.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(b)
}

func seeded(seed uint64) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return mrand.NewChaCha8(key)
}

// portInbox is the ports handed to the pacemaker.
type portInbox = ring.Inbox[Port, *Port]
