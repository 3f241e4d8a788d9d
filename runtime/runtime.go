package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Result is the outcome of an operation.
type Result = reactor.Completion

// Future is the future of an operation.
type Future = futures.Future[Result]

// Runtime is an open device with its reactors, memory and connections. All methods may be called from
// any goroutine.
type Runtime struct {
	cfg      Config
	provider verbs.Provider
	dev      verbs.Context
	attr     verbs.DeviceAttr
	addr     netip.Addr // the device's first address as it was opened; invalid if the device has none. See runtime_addr.go
	pd       verbs.PD
	mem      *memory
	nodes    []int // NUMA nodes with reactors: the result of nodesFor
	shards   []*shard
	handlers *handlers // nil in a stepped runtime (Config.stepped)
	srqs     int       // the most receives of a shared receive queue; 0: managed connections share none
	iWARP    bool      // the device's transport is iWARP
	reads    uint8     // the device's limit of outstanding READs and atomics per connection and direction
	conns    *futures.Pool[*Conn]
	messages *futures.Pool[Message]
	// creditWaits makes the futures of waits for a credit. The result is the connection that has the
	// credit.
	creditWaits *futures.Pool[*Conn]
	arrivals    *futures.Pool[Arrival]
	datagrams   *futures.Pool[Packet]
	peers       *futures.Pool[*Peer]

	// When a removal of the device is reported, deviceGone sets the flag gone, and then makes every
	// reactor end its connections and listeners. deviceGone does not end a connection or listener
	// that is created later, so the code that creates a connection or listener must check the flag.
	gone uatomic.Bool

	// addrMu is held while the device's addresses are read and given to listeners and datagrams, so that
	// these get the newest last.
	addrMu sync.Mutex
	// rereads is set while a timer is to read the addresses again. reread and the timer change it.
	rereads uatomic.Bool

	mu     sync.Mutex    // guards the fields up to watchers; no goroutine waits while it holds mu
	making int           // number of calls that have called enter() and not yet leave()
	made   chan struct{} // nil until Close begins; then a channel, which is closed when no call is between enter() and leave()
	live   map[*Conn]struct{}
	// staleAnswers is CallStats.StaleAnswers. Goroutines that drop an answer add 1. It publishes nothing.
	staleAnswers uatomic.Uint64
	listeners    map[*Listener]struct{}
	shared       map[*SharedRecv]struct{}
	packets      map[*PacketConn]struct{}
	next         int        // number of calls of Runtime.shard so far
	watchers     []*watcher // elements are never overwritten, so a goroutine may read a copy of the slice without mu

	destroying chan struct{} // a semaphore: only one goroutine at a time runs Runtime.destroy
}

// Open opens a device and starts its reactors. The caller closes the Runtime.
//
// Errors: ErrConfig; a *DeviceError for an unknown device; ErrNotSupported if the provider's
// libraries are missing, or the device has no reliable connections (EFA); errors of the device.
func Open(cfg Config) (_ *Runtime, err error) {
	byDefault := cfg.Conn.MessageSize == 0
	if cfg, err = cfg.validate(); err != nil {
		return nil, err
	}
	rt := &Runtime{cfg: cfg, live: map[*Conn]struct{}{}, listeners: map[*Listener]struct{}{}, shared: map[*SharedRecv]struct{}{},
		packets: map[*PacketConn]struct{}{}, destroying: make(chan struct{}, 1)}
	defer func() {
		if err == nil {
			return
		}
		// If a step of destroy fails, a second call may succeed and get further. The caller has no Runtime to call Close of.
		left := rt.destroy(context.Background())
		if left != nil {
			left = errors.Join(left, rt.destroy(context.Background()))
		}
		err = errors.Join(err, left)
	}()
	if rt.provider, rt.dev, err = cfg.openDevice(); err != nil {
		return nil, err
	}
	info := rt.dev.Device()
	if len(info.Addr) > 0 {
		rt.addr = info.Addr[0]
	}
	rt.iWARP = info.Transport == verbs.TransportIWARP
	if rt.attr, err = rt.dev.QueryDevice(); err != nil {
		return nil, err
	}
	if !slices.Contains(rt.attr.QPTypes, verbs.QPTRC) {
		return nil, fmt.Errorf("%w: device %s has no reliable connections (queue pairs of type RC), but %v; Amazon's EFA, for example, has SRD instead, which only its own interface makes",
			verbs.ErrNotSupported, info.Name, rt.attr.QPTypes)
	}
	// FlushOp takes both placements. A device that executes FLUSH with one of them only is used as one
	// without FLUSH, as librpma does (pmem/rpma 1.3.0 src/utils.c, rpma_utils_ibv_context_is_flush_capable).
	if both := verbs.CapFlushGlobal | verbs.CapFlushPersistent; rt.attr.Caps&both != both {
		rt.attr.Opcodes &^= verbs.Opcodes(verbs.WRFlush)
	}
	attr := rt.attr
	rt.reads = uint8(max(0, min(maxReadDepth, attr.MaxQPRdAtom, attr.MaxQPInitRdAtom)))
	if attr.MaxSRQ > 0 {
		rt.srqs = attr.MaxSRQWR
		if rt.cfg.CQEntries > 0 { // beside one pool, other receives need entries of the completion queue, too
			rt.srqs = min(rt.srqs, rt.cfg.CQEntries/2)
		}
	}
	if rt.pd, err = rt.dev.AllocPD(); err != nil {
		return nil, err
	}
	if err = rt.settle(); err != nil {
		return nil, err
	}
	if rt.mem, err = newMemory(rt.pd, rt.cfg.Memory, rt.nodes...); err != nil {
		return nil, err
	}
	rt.mem.windows, rt.mem.windowMost = windowed(&attr), attr.MaxMWSize
	rt.mem.flushes = attr.Opcodes.Has(verbs.WRFlush)
	rt.mem.stepped = cfg.stepped
	if !cfg.stepped {
		if rt.handlers, err = newHandlers(cfg.Handlers, cfg.OnPanic); err != nil {
			return nil, err
		}
	}
	if err = rt.startShards(attr.CompVectors); err != nil {
		return nil, err
	}
	// Lower the default message size to what the port can carry. If the program has set a size that
	// is too large, Runtime.fits refuses it later.
	if byDefault {
		most := rt.shards[0].r.MaxMessage() - frameSize
		rt.cfg.Conn.MessageSize = min(rt.cfg.Conn.MessageSize, max(most, minMessageSize))
	}
	rt.conns = futures.NewPool(futures.Options[*Conn]{Dispose: disposeConn, Execute: rt.shards[0].r.Callback})
	rt.messages = futures.NewPool(futures.Options[Message]{Dispose: disposeMessage, Execute: rt.shards[0].r.Callback})
	rt.creditWaits = futures.NewPool(futures.Options[*Conn]{Dispose: disposeCredit})
	rt.datagrams = futures.NewPool(futures.Options[Packet]{Dispose: disposePacket, Execute: rt.shards[0].r.Callback})
	rt.peers = futures.NewPool(futures.Options[*Peer]{Dispose: disposePeer, Execute: rt.shards[0].r.Callback})
	rt.arrivals = futures.NewPool(futures.Options[Arrival]{Execute: rt.shards[0].r.Callback})
	return rt, nil
}

// Device returns the name and addresses of the device.
func (rt *Runtime) Device() verbs.DeviceInfo { return rt.dev.Device() }

// DeviceAttr returns the limits and features of the device, as they were when the runtime was opened.
func (rt *Runtime) DeviceAttr() verbs.DeviceAttr { return rt.attr }

// Stats returns the counters of all reactors together. A counter that is a maximum has the largest
// value of all reactors; any other counter has the sum.
func (rt *Runtime) Stats() reactor.Stats {
	var sum reactor.Stats
	for _, s := range rt.shards {
		sum = sum.Add(s.r.Stats())
	}
	return sum
}

// Handle calls fn with the result of f when the operation has completed. The call runs on a
// goroutine of a pool, so fn may block, for example to wait for operations or to close connections.
// The pool runs at most Config.Handlers calls at the same time; further calls are queued, in the
// order of completion. If the runtime is closed, fn is still called, on a new goroutine. Handle
// itself does not block. The caller must not use f after Handle. A panic of fn goes to
// Config.OnPanic. Handle panics if fn is nil.
func (rt *Runtime) Handle(f Future, fn func(Result, error)) {
	if fn == nil {
		panic("runtime: Handle of a nil function")
	}
	f.Then(func(r Result, err error) {
		if rt.handlers == nil { // a stepped runtime has no pool
			fn(r, err)
			return
		}
		rt.handlers.Queue(&handler{fn: fn, r: r, err: err})
	})
}

// Runtime.shard returns the shard (a reactor with its event channel) for the next connection, in
// round-robin order.
func (rt *Runtime) shard() *shard {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	s := rt.shards[rt.next%len(rt.shards)]
	rt.next++
	return s
}

// shardOf returns the shard for a new connection that uses the shared receives s: the shard of s. If
// s is nil, it returns the next shard in round-robin order.
func (rt *Runtime) shardOf(s *SharedRecv) *shard {
	if s != nil {
		return s.sh
	}
	return rt.shard()
}

// Runtime.enter begins a call that creates or uses an object of the device. Runtime.Close waits until
// the call has ended with Runtime.leave. If Close has begun, enter returns ErrClosed. If the device is
// gone, enter returns ErrDeviceRemoved. After an error the caller must not call leave.
func (rt *Runtime) enter() error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.made != nil {
		return ErrClosed
	}
	if rt.gone.Load() {
		return verbs.ErrDeviceRemoved
	}
	rt.making++
	return nil
}

func (rt *Runtime) leave() {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.making--; rt.making == 0 && rt.made != nil { // true only one time, because enter() fails after Close has begun
		close(rt.made)
	}
}

func (rt *Runtime) adopt(c *Conn) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.live[c] = struct{}{}
}

// Runtime.forget removes c from the live connections. The receive buffers of c must have been
// released.
func (rt *Runtime) forget(c *Conn) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.live, c)
}
