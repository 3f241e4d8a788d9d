package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// closeGrace is how long Runtime.Close goes on releasing objects after its context has ended. In
// this time Close waits for reactors, for the kernel and for goroutines of the program, but never
// for a peer. closeGrace is also how long Close waits for memory that the program holds. The
// goroutines of the program need this time: they first return from calls that now fail, and then
// release their messages.
const closeGrace = 5 * time.Second

// errRuntimeClosed is the cause with which Runtime.Close ends connections.
var errRuntimeClosed = fmt.Errorf("%w with its runtime", ErrConnClosed)

// Close closes the listeners and connections, and releases everything: goroutines, descriptors,
// mappings, the device. It waits for outstanding operations until ctx ends, and then aborts them.
// When Close has begun, calls that create something (Dial, Listen, Accept, …) return ErrClosed, even
// calls that began earlier. Other goroutines may still use the runtime: Close waits until their calls
// have returned. Close also waits, for at most five seconds, until the program has released its
// memory (each Buffer, Message and Packet).
//
// If ctx ends before everything is released, Close goes on releasing for some seconds. If objects are
// left after that, Close returns an error, which shows the reason:
//
//	ErrBusy            the program still holds memory, or is in a call that uses the device; or a disk is still
//	                   writing what a peer has flushed to a file region, for which a goroutine then waits
//	ErrReactorBusy     a reactor, or the kernel, did not finish in time
//	ctx.Err()          a callback, or another Close, is still running
//
// After such an error the remaining objects stay usable for their owners, but no object can be
// created. The next call of Close releases the remaining objects. After Close has returned nil,
// every later call returns nil. Several goroutines may call Close at the same time; each call waits
// until everything is released. A callback (Then) must not call Close, because Close waits for
// running callbacks.
func (rt *Runtime) Close(ctx context.Context) error {
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return err
	}
	after, end := extend(asked, rt.cfg.grace)
	defer end()
	made := true
	select {
	case <-rt.shut(): // no call is creating an object now or later, so closeAll finds all objects
	case <-after:
		made = false
	}
	err = rt.closeAll(asked, after)
	if made {
		for _, sh := range rt.shards { // no call joins a pool now
			err = errors.Join(err, sh.discardPools())
		}
		err = errors.Join(err, rt.destroy(after))
	} else {
		err = errors.Join(err, fmt.Errorf("%w: calls that create or use objects of the device have not returned", verbs.ErrBusy))
	}
	return asked.Cause(ctx, err)
}

// Runtime.shut makes rt.enter() fail from now on, and ends the listeners. It returns a channel that
// is closed when no call is between rt.enter() and rt.leave() any more. A second call of shut returns
// the same channel.
func (rt *Runtime) shut() (made <-chan struct{}) {
	rt.mu.Lock()
	if rt.made == nil {
		rt.made = make(chan struct{})
		if rt.making == 0 {
			close(rt.made)
		}
	}
	made = rt.made
	listeners := slices.Collect(maps.Keys(rt.listeners))
	rt.mu.Unlock()
	for _, l := range listeners {
		l.end() // also ends the contexts of running calls of Options.Admit, because Close waits for these calls
	}
	return made
}

// closeAll closes the objects of the program: first the listeners, then the connections, then the
// datagram connections, and at last the shared receives, which connections use. To close a
// connection, it waits for outstanding operations until ctx ends. To close shared receives, it
// waits until the second context ends, which is some time after the end of ctx (see extend).
func (rt *Runtime) closeAll(ctx, after reactor.DoneContext) error {
	rt.mu.Lock()
	listeners := slices.Collect(maps.Keys(rt.listeners))
	conns := slices.Collect(maps.Keys(rt.live))
	packets := slices.Collect(maps.Keys(rt.packets))
	rt.mu.Unlock()
	var errs []error
	errs = append(errs, each(listeners, func(l *Listener) error { return l.Close(ctx) })...)
	errs = append(errs, each(conns, func(c *Conn) error { return c.close(ctx, errRuntimeClosed) })...)
	errs = append(errs, each(packets, func(p *PacketConn) error { return p.close(ctx, errRuntimeClosed) })...)
	rt.mu.Lock()
	shared := slices.Collect(maps.Keys(rt.shared))
	rt.mu.Unlock()
	for _, s := range shared {
		errs = append(errs, s.close(after))
	}
	return errors.Join(errs...)
}

// each calls the given function for every object, and returns when all calls have returned. The
// calls run concurrently, because a single call may take some seconds even after the context of
// Close has ended.
func each[T any](all []T, end func(T) error) []error {
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, one := range all {
		wg.Go(func() { errs[i] = end(one) })
	}
	wg.Wait()
	return errs
}

// extend returns a DoneContext (a context reduced to its Done channel) that ends when the time d
// has passed after the end of asked. When the caller does not need this DoneContext any more, it
// must call the returned function. The function ends the DoneContext at once, and waits for the
// goroutine that extend started.
func extend(asked reactor.DoneContext, d time.Duration) (longer reactor.DoneContext, end func()) {
	over, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-stop:
			return
		case <-asked:
		}
		select {
		case <-stop:
		case <-time.After(d):
		}
	}()
	return over, func() { close(stop); <-over }
}

// Runtime.destroy releases the objects that Open made, each object before the objects on which it
// depends. It stops at the first object that cannot be released. A later call repeats all steps.
func (rt *Runtime) destroy(ctx context.Context) error {
	select {
	case rt.destroying <- struct{}{}:
		defer func() { <-rt.destroying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// Wait until no shard is closing an identifier; only then close the shards. A shard may be
	// closing an identifier that is still on the event channel of another shard.
	for _, s := range rt.shards {
		if err := s.settleIDs(ctx); err != nil {
			return err
		}
	}
	for _, s := range rt.shards {
		if err := s.close(ctx); err != nil {
			return err
		}
	}
	if rt.handlers != nil {
		rt.handlers.Close()
	}
	if err := rt.closeMemory(); err != nil {
		return fmt.Errorf("closing the memory: %w", err)
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

// closeMemory closes rt.mem when the program has released its memory. It waits at most Config.grace
// for that. While it waits it tries to close rt.mem every closeRetry, because a notification would
// slow down every Release.
func (rt *Runtime) closeMemory() error {
	if rt.mem == nil {
		return nil
	}
	patience := time.NewTimer(rt.cfg.grace)
	defer patience.Stop()
	if rt.cfg.stepped { // it has no other goroutine to wait for
		return rt.mem.Close()
	}
	for {
		closed := make(chan error, 1)
		go func() { closed <- rt.mem.Close() }() // may wait for the disk
		var err error
		select {
		case err = <-closed:
		case <-patience.C:
			return fmt.Errorf("%w: a region is being closed, perhaps until its disk has written what peers have flushed", verbs.ErrBusy)
		}
		if !errors.Is(err, verbs.ErrBusy) {
			return err
		}
		select {
		case <-time.After(closeRetry):
		case <-patience.C:
			return err
		}
	}
}
