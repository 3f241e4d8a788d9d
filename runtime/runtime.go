package runtime

import (
	"context"
	"errors"
	"net/netip"
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

// Runtime is an open device with its reactors, memory and connections. All
// methods may be called from any goroutine.
type Runtime struct {
	cfg       Config
	provider  verbs.Provider
	dev       verbs.Context
	addr      netip.Addr // of the device; invalid when it has none
	pd        verbs.PD
	mem       *memory
	nodes     []int // that have reactors; see nodesFor
	shards    []*shard
	handlers  *handlers // nil when stepped
	reads     uint8     // READs and atomics under way per connection and direction
	conns     *futures.Pool[*Conn]
	messages  *futures.Pool[Message]
	arrivals  *futures.Pool[Arrival]
	datagrams *futures.Pool[Packet]
	peers     *futures.Pool[*Peer]

	// gone says that the device is. Set by deviceGone, which then has all reactors
	// end what they have; read by whoever begins something on one later.
	gone    uatomic.Bool
	tidying sync.WaitGroup // goroutines of tidy

	mu        sync.Mutex    // guards what follows; never held while waiting
	making    int           // calls between enter and leave
	made      chan struct{} // nil before Close; closed when Close has begun and making is 0
	live      map[*Conn]struct{}
	listeners map[*Listener]struct{}
	shared    map[*SharedRecv]struct{}
	packets   map[*PacketConn]struct{}
	next      int        // where the next connection goes
	watchers  []*watcher // replaced, never changed in place but by appending

	destroying chan struct{} // has a place for the one destroy that runs
}

// Open opens a device and starts its reactors. The caller closes the Runtime.
//
// Errors: ErrConfig, a *DeviceError for an unknown device, ErrNotSupported
// where the provider's libraries are missing, the device's.
func Open(cfg Config) (_ *Runtime, err error) {
	byDefault := cfg.Conn.MessageSize == 0
	if cfg, err = cfg.validate(); err != nil {
		return nil, err
	}
	rt := &Runtime{cfg: cfg, live: map[*Conn]struct{}{}, listeners: map[*Listener]struct{}{}, shared: map[*SharedRecv]struct{}{},
		packets: map[*PacketConn]struct{}{}, destroying: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, rt.destroy(context.Background()))
		}
	}()
	if rt.provider, rt.dev, err = cfg.openDevice(); err != nil {
		return nil, err
	}
	if addrs := rt.dev.Device().Addr; len(addrs) > 0 {
		rt.addr = addrs[0]
	}
	attr, err := rt.dev.QueryDevice()
	if err != nil {
		return nil, err
	}
	rt.reads = uint8(max(0, min(readDepth, attr.MaxQPRdAtom, attr.MaxQPInitRdAtom)))
	if rt.pd, err = rt.dev.AllocPD(); err != nil {
		return nil, err
	}
	if err = rt.settle(); err != nil {
		return nil, err
	}
	if rt.mem, err = newMemory(rt.pd, rt.cfg.Memory, rt.nodes...); err != nil {
		return nil, err
	}
	if !cfg.stepped {
		if rt.handlers, err = newHandlers(cfg.Handlers, cfg.OnPanic); err != nil {
			return nil, err
		}
	}
	if err = rt.startShards(attr.CompVectors); err != nil {
		return nil, err
	}
	if byDefault { // a default fits every port; what was asked for is refused if it does not
		most := rt.shards[0].r.MaxMessage() - frameSize
		rt.cfg.Conn.MessageSize = min(rt.cfg.Conn.MessageSize, max(most, minMessageSize))
	}
	rt.conns = futures.NewPool(futures.Options[*Conn]{Dispose: disposeConn, Execute: rt.shards[0].r.Callback})
	rt.messages = futures.NewPool(futures.Options[Message]{Dispose: disposeMessage, Execute: rt.shards[0].r.Callback})
	rt.datagrams = futures.NewPool(futures.Options[Packet]{Dispose: disposePacket, Execute: rt.shards[0].r.Callback})
	rt.peers = futures.NewPool(futures.Options[*Peer]{Dispose: disposePeer, Execute: rt.shards[0].r.Callback})
	rt.arrivals = futures.NewPool(futures.Options[Arrival]{Execute: rt.shards[0].r.Callback})
	return rt, nil
}

// Device names the device.
func (rt *Runtime) Device() verbs.DeviceInfo { return rt.dev.Device() }

// Stats are the counters of the reactors, added up; the largest where it is a
// maximum.
func (rt *Runtime) Stats() reactor.Stats {
	var sum reactor.Stats
	for _, s := range rt.shards {
		sum = sum.Add(s.r.Stats())
	}
	return sum
}

// Handle has fn called with the operation's result on a goroutine of the
// handler pool, where it may block: wait for operations, close connections. It
// does not wait itself: when Config.Handlers run, fn does when one of them
// returns, in the order of completion. A panic of fn goes to Config.OnPanic.
// The future is consumed. After Close fn runs on a goroutine of its own.
func (rt *Runtime) Handle(f Future, fn func(Result, error)) {
	f.Then(func(r Result, err error) {
		if rt.handlers == nil { // stepped
			fn(r, err)
			return
		}
		rt.handlers.Queue(&handler{fn: fn, r: r, err: err})
	})
}

// shard picks the reactor of the next connection.
func (rt *Runtime) shard() *shard {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	s := rt.shards[rt.next%len(rt.shards)]
	rt.next++
	return s
}

// shardOf is the reactor of a connection with these shared receives (may be
// nil).
func (rt *Runtime) shardOf(s *SharedRecv) *shard {
	if s != nil {
		return s.sh
	}
	return rt.shard()
}

// enter keeps Close from going on while a connection or listener is being
// made; leave follows. ErrClosed once Close has begun, ErrDeviceRemoved when
// the device is gone.
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
	if rt.making--; rt.making == 0 && rt.made != nil { // once: enter lets nobody in any more
		close(rt.made)
	}
}

func (rt *Runtime) adopt(c *Conn) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.live[c] = struct{}{}
}

// forget is called once the receive buffers of c are free.
func (rt *Runtime) forget(c *Conn) {
	if len(c.recvs) > 0 && c.recvs[0].buf.Len() > MaxPooled {
		rt.tidy()
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.live, c)
}
