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
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// ErrGIDInUse reports that a port with this GID is already attached.
var ErrGIDInUse = errors.New("fabric: GID in use")

// AttachError describes a port that could not be attached.
type AttachError struct {
	GID  verbs.GID
	Name string // of the refused port
	Has  string // name of the port that has the GID
}

// Error names the GID and both ports.
func (e *AttachError) Error() string {
	return fmt.Sprintf("fabric: cannot attach %q at %v: %q is there", e.Name, e.GID, e.Has)
}

// Is matches ErrGIDInUse.
func (e *AttachError) Is(target error) bool { return target == ErrGIDInUse }

// Config describes a fabric. The zero value is a perfect link in real time with ordinary packets.
type Config struct {
	// Virtual stops the clock: all work happens in Step, at the time set by AdvanceTo.
	Virtual bool
	// Seed seeds the randomness of every link, and of Rand when Virtual.
	Seed uint64
	// JumboMTU declares that a message of any length fits in one packet.
	JumboMTU bool
	// Rand is the endpoints' source of unpredictable numbers (keys, QP numbers, PSNs). Default:
	// crypto/rand in real time, and a generator seeded from Seed in virtual time, where a run must
	// be repeatable.
	Rand io.Reader
}

// Endpoint is the owner of a port: an engine.
type Endpoint interface {
	// Progress takes packets from the port, acts, and sends. now never goes back. next is the time
	// of the next call at the latest, 0 for none. more reports that work is left right now, for
	// example packets that the endpoint leaves in the inbox. Calls for one port never overlap.
	// Progress holds no lock that a caller of Kick may hold, does not block, and returns in bounded
	// time.
	Progress(now time.Duration) (next time.Duration, more bool)
}

// Fabric is an in-process link to which ports are attached; see the package documentation. All
// methods may be called from any goroutine unless they say otherwise.
type Fabric struct {
	cfg   Config
	rand  io.Reader
	start time.Time

	// mu guards attaching, detaching, and creating and scripting routes. Kick never takes it, nor
	// does Send on an existing route.
	mu       sync.Mutex
	routes   map[routeKey]*Route
	groups   map[verbs.GID]*Group
	attached map[verbs.GID]*Port
	services map[serviceKey][]*Service // announced listeners
	links    map[verbs.GID]int         // number of routes to each GID
	sides    map[verbs.GID]int         // each GID's side of the partition; nil: no partition
	all      Link                      // set by SetAll; applies to new routes
	stop     chan struct{}             // closed to stop the pacemaker
	done     chan struct{}             // closed when the pacemaker has ended

	// ports is the attached ports in order of attachment. Written under mu (a new slice each time),
	// read by the pacemaker and by Step.
	ports atomic.Pointer[[]*Port]
	// tracer is written by SetTrace and read by senders.
	tracer atomic.Pointer[tracer]

	pace  pacemaker
	delay delayLine

	// now is the virtual time in ns. Written by AdvanceTo, read by any goroutine.
	now atomic.Int64
}

// New returns a fabric without ports. It starts no goroutine; in real time the pacemaker lives from
// the first Attach to the last Detach.
func New(cfg Config) *Fabric {
	f := &Fabric{
		cfg:      cfg,
		rand:     cfg.Rand,
		start:    time.Now(),
		routes:   map[routeKey]*Route{},
		groups:   map[verbs.GID]*Group{},
		attached: map[verbs.GID]*Port{},
		services: map[serviceKey][]*Service{},
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

// JumboMTU reports whether a message of any length fits in one packet.
func (f *Fabric) JumboMTU() bool { return f.cfg.JumboMTU }

// Virtual reports whether the fabric runs on virtual time.
func (f *Fabric) Virtual() bool { return f.cfg.Virtual }

// Rand returns the source of unpredictable numbers for endpoints; see Config. It may be read from
// any goroutine.
func (f *Fabric) Rand() io.Reader { return f.rand }

// Now returns the time passed to Progress: since New in real time, set by AdvanceTo in virtual
// time.
func (f *Fabric) Now() time.Duration {
	if f.cfg.Virtual {
		return time.Duration(f.now.Load())
	}
	return time.Since(f.start)
}

// Attach adds a port. name is for messages. The endpoint may run from now on, even before Attach
// returns. It fails with an [*AttachError] when the GID is taken. Not from within a run.
func (f *Fabric) Attach(gid verbs.GID, name string, e Endpoint) (*Port, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if has := f.attached[gid]; has != nil {
		return nil, &AttachError{GID: gid, Name: name, Has: has.name}
	}
	p := f.newPort(gid, name, e)
	f.attached[gid] = p
	f.shareLocked(gid)
	for _, r := range f.routes {
		if r.path == wire.To(gid) {
			r.to.Store(p)
		}
	}
	f.addLocked(p)
	return p, nil
}

// Has reports whether a port has the GID. An uplink's GID is none. Any goroutine; it takes no lock,
// and its time grows with the number of ports.
func (f *Fabric) Has(gid verbs.GID) bool {
	for _, p := range *f.ports.Load() {
		if p.gid == gid {
			return p.owner == nil
		}
	}
	return false
}

func (f *Fabric) newPort(gid verbs.GID, name string, e Endpoint) *Port {
	p := &Port{f: f, gid: gid, name: name, ep: e, freed: make(chan struct{}, 1),
		routes: map[wire.Path]*Route{}, kept: map[*Route]int{}, sweepAt: minSweep}
	p.in.taker = p
	return p
}

// addLocked makes a port run. f.mu is held.
func (f *Fabric) addLocked(p *Port) {
	ports := append(slices.Clone(*f.ports.Load()), p)
	f.ports.Store(&ports)
	if len(ports) == 1 && !f.cfg.Virtual {
		f.stop, f.done = make(chan struct{}), make(chan struct{})
		go f.runPacemaker(f.stop, f.done)
	}
}

// Detach removes the port from the fabric: its endpoint is not running when Detach returns and will
// not run again; packets in its inbox are dropped and their holders told. Detach waits for the
// current run of the endpoint; the last Detach also waits for the fabric's goroutine to end. The
// endpoint must have no packets by reference in flight, or keep their memory until their
// PacketDone. Idempotent. Not from within a run.
func (p *Port) Detach() {
	f := p.f
	p.acquire()
	p.closed, p.ep = true, nil
	p.finishRun()

	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(*f.ports.Load(), p) {
		return // detached before
	}
	if p.owner != nil {
		p.owner.uplink = nil
	} else {
		delete(f.attached, p.gid)
	}
	for key, r := range f.routes {
		// A sender that loaded this pointer before pushes into a closed port and then runs it,
		// which drops the packet.
		r.to.CompareAndSwap(p, f.endLocked(r.src, &r.path))
		if r.src == p.gid && r.script.Load() == nil {
			delete(f.routes, key) // it has no sender any more
			f.linkedLocked(r, -1)
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

// lockedReader makes a reader safe for concurrent use.
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

// portInbox holds the ports left to the pacemaker.
type portInbox = ring.Inbox[Port, *Port]
