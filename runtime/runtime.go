package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/panjf2000/ants/v2"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/sys"
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
	cfg      Config
	provider verbs.Provider
	dev      verbs.Context
	addr     netip.Addr // of the device; invalid when it has none
	pd       verbs.PD
	mem      *Memory
	shards   []*shard
	pool     *ants.Pool
	conns    *futures.Pool[*Conn]
	messages *futures.Pool[Message]

	making sync.WaitGroup // see enter

	mu        sync.Mutex // guards what follows; never held while waiting
	closing   bool
	live      map[*Conn]struct{}
	listeners map[*Listener]struct{}
	next      int // where the next connection goes
}

// Open opens a device and starts its reactors. The caller closes the Runtime.
//
// Errors: ErrConfig, a *verbs.DeviceError for an unknown device, the device's.
func Open(cfg Config) (_ *Runtime, err error) {
	if cfg, err = cfg.validate(); err != nil {
		return nil, err
	}
	rt := &Runtime{cfg: cfg, provider: cfg.Provider, live: map[*Conn]struct{}{}, listeners: map[*Listener]struct{}{}}
	if rt.provider == nil {
		rt.provider = defaultProvider()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, rt.destroy(context.Background()))
		}
	}()
	name := cfg.Device
	if name == "" {
		devs, err := rt.provider.Devices()
		if err != nil {
			return nil, err
		}
		if len(devs) == 0 {
			return nil, &verbs.DeviceError{}
		}
		name = devs[0].Name
	}
	if rt.dev, err = rt.provider.Open(name); err != nil {
		return nil, err
	}
	if addrs := rt.dev.Device().Addr; len(addrs) > 0 {
		rt.addr = addrs[0]
	}
	if rt.pd, err = rt.dev.AllocPD(); err != nil {
		return nil, err
	}
	if rt.mem, err = newMemory(rt.pd, cfg.Memory); err != nil {
		return nil, err
	}
	if !cfg.stepped { // the pool has a goroutine of its own
		if rt.pool, err = ants.NewPool(cfg.Handlers, ants.WithDisablePurge(true)); err != nil {
			return nil, err
		}
	}
	if err = rt.startShards(); err != nil {
		return nil, err
	}
	rt.conns = futures.NewPool(futures.Options[*Conn]{Dispose: disposeConn})
	rt.messages = futures.NewPool(futures.Options[Message]{Dispose: disposeMessage, Execute: rt.shards[0].r.Callback})
	return rt, nil
}

// startShards makes the reactors of every NUMA node.
func (rt *Runtime) startShards() error {
	nodes, err := sys.Nodes()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		for range rt.cfg.Reactors {
			node := 0 // one node: there is nothing to bind to
			if len(nodes) > 1 {
				node = n.ID + 1
			}
			s, err := newShard(rt, node)
			if err != nil {
				return err
			}
			rt.shards = append(rt.shards, s)
		}
	}
	return nil
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
// handler pool, where it may block. When all handlers are busy the reactor's
// goroutine waits, and with it callbacks and events, but no operation. The
// future is consumed.
func (rt *Runtime) Handle(f Future, fn func(Result, error)) {
	f.Then(func(r Result, err error) {
		if rt.pool == nil || rt.pool.Submit(func() { fn(r, err) }) != nil {
			fn(r, err) // stepped, or the pool is closed: the runtime is going
		}
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

// enter keeps Close from going on while a connection or listener is being
// made; leave follows. ErrClosed once Close has begun.
func (rt *Runtime) enter() error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closing {
		return ErrClosed
	}
	rt.making.Add(1)
	return nil
}

func (rt *Runtime) leave() { rt.making.Done() }

func (rt *Runtime) adopt(c *Conn) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.live[c] = struct{}{}
}

func (rt *Runtime) forget(c *Conn) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.live, c)
}

// Close closes listeners and connections, waiting for what is outstanding
// until ctx ends and cutting it off then, and gives everything back: goroutines,
// descriptors, mappings, the device. Memory still in use by the caller is an error
// (verbs.ErrBusy), and Close may be called again. It is idempotent.
func (rt *Runtime) Close(ctx context.Context) error {
	rt.mu.Lock()
	rt.closing = true
	rt.mu.Unlock()
	rt.making.Wait() // what is made now is seen below
	rt.mu.Lock()
	var listeners []*Listener
	for l := range rt.listeners {
		listeners = append(listeners, l)
	}
	var conns []*Conn
	for c := range rt.live {
		conns = append(conns, c)
	}
	rt.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close(ctx))
	}
	var wg sync.WaitGroup
	closed := make([]error, len(conns))
	for i, c := range conns {
		wg.Go(func() { closed[i] = c.Close(ctx) })
	}
	wg.Wait()
	errs = append(errs, closed...)
	errs = append(errs, rt.destroy(ctx))
	return errors.Join(errs...)
}

// destroy gives back what Open made, children first, up to the first that
// cannot go yet. Every step may be repeated.
func (rt *Runtime) destroy(ctx context.Context) error {
	for _, s := range rt.shards {
		if err := s.close(ctx); err != nil {
			return err
		}
	}
	if rt.pool != nil {
		rt.pool.Release()
	}
	if rt.mem != nil {
		if err := rt.mem.Close(); err != nil {
			return fmt.Errorf("closing the memory: %w", err)
		}
	}
	if rt.pd != nil {
		if err := rt.pd.Close(); err != nil {
			return err
		}
	}
	if rt.dev != nil {
		return rt.dev.Close()
	}
	return nil
}
