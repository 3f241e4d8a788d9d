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

// closeGrace is how long Close continues to release things after its context has
// ended, and how long it waits for memory that the program holds. In both cases it waits
// for the program's own goroutines, which leave a refused call or finish with a message.
// It does not wait for a peer. A busy machine needs more time.
const closeGrace = 5 * time.Second

// errRuntimeClosed is the cause of connections that Runtime.Close closes.
var errRuntimeClosed = fmt.Errorf("%w with its runtime", ErrConnClosed)

// Close closes listeners and connections, waits for outstanding operations until ctx
// ends, then aborts them, and releases everything: goroutines, descriptors, mappings,
// the device. From its beginning on, calls that make something (Dial, Listen, Accept,
// …) return ErrClosed, and so do those in progress. Other goroutines may use the runtime
// meanwhile: Close waits for goroutines inside a call, and up to five seconds for memory
// that the program still holds (a Buffer, a Message, a Packet).
//
// When ctx ends first, releasing continues for some seconds. The error
// then names what could not be released:
//
//	ErrBusy            the program still holds memory, or is in a call that uses the device
//	ErrReactorBusy     a reactor, or the kernel, did not finish in time
//	ctx.Err()          a callback is still running, or another Close
//
// In that case the remaining objects stay usable for their owners, nothing new begins, and Close
// may be called again to continue. After nil it returns nil. Several goroutines may call it; all
// wait for the end. A callback (Then) must not call it, because it waits for running callbacks.
func (rt *Runtime) Close(ctx context.Context) error {
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return err
	}
	after, end := extend(asked, rt.cfg.grace)
	defer end()
	made := true
	select {
	case <-rt.shut(): // closeAll sees all objects made before this
	case <-after:
		made = false
	}
	err = rt.closeAll(asked, after)
	if made {
		err = errors.Join(err, rt.destroy(after))
	} else {
		err = errors.Join(err, fmt.Errorf("%w: calls that make something on the device have not returned", verbs.ErrBusy))
	}
	return asked.Cause(ctx, err)
}

// shut makes enter refuse from now on; made is closed when no call is
// between enter and leave. It may be repeated.
func (rt *Runtime) shut() (made <-chan struct{}) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.made == nil {
		rt.made = make(chan struct{})
		if rt.making == 0 {
			close(rt.made)
		}
	}
	return rt.made
}

// closeAll closes the objects of the program: listeners before connections, and shared
// receives after their users. Outstanding operations may complete until ctx ends.
func (rt *Runtime) closeAll(ctx, after reactor.DoneContext) error {
	rt.mu.Lock()
	listeners := slices.Collect(maps.Keys(rt.listeners))
	conns := slices.Collect(maps.Keys(rt.live))
	packets := slices.Collect(maps.Keys(rt.packets))
	shared := slices.Collect(maps.Keys(rt.shared))
	rt.mu.Unlock()
	var errs []error
	errs = append(errs, each(listeners, func(l *Listener) error { return l.Close(ctx) })...)
	errs = append(errs, each(conns, func(c *Conn) error { return c.close(ctx, errRuntimeClosed) })...)
	errs = append(errs, each(packets, func(p *PacketConn) error { return p.close(ctx, errRuntimeClosed) })...)
	for _, s := range shared {
		errs = append(errs, s.close(after))
	}
	return errors.Join(errs...)
}

// each calls end for all objects concurrently: a call may take some seconds after the context ends.
func each[T any](all []T, end func(T) error) []error {
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, one := range all {
		wg.Go(func() { errs[i] = end(one) })
	}
	wg.Wait()
	return errs
}

// extend returns a DoneContext that is closed d after asked, or by the function end, which
// leaves no goroutine behind.
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

// destroy releases the objects of Open, children first. It stops at the first
// one that cannot be released. Every step may be repeated.
func (rt *Runtime) destroy(ctx context.Context) error {
	select {
	case rt.destroying <- struct{}{}:
		defer func() { <-rt.destroying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// Settle all shards before closing any: a shard may be closing an
	// identifier that is still on another shard's channel.
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

// closeMemory closes the memory when goroutines have released their parts of it. It waits
// at most Config.grace. It polls, because a notification would burden every Release.
func (rt *Runtime) closeMemory() error {
	if rt.mem == nil {
		return nil
	}
	patience := time.NewTimer(rt.cfg.grace)
	defer patience.Stop()
	tidied := make(chan struct{})
	go func() { defer close(tidied); rt.tidying.Wait() }() // all connections are gone: none adds to tidying
	select {
	case <-tidied:
	case <-patience.C:
		return fmt.Errorf("%w: large buffers are being unmapped", verbs.ErrBusy)
	}
	for {
		err := rt.mem.Close()
		if !errors.Is(err, verbs.ErrBusy) || rt.cfg.stepped { // stepped: no other goroutine can release anything
			return err
		}
		select {
		case <-time.After(closeRetry):
		case <-patience.C:
			return err
		}
	}
}

// tidy unmaps big receive buffers on a goroutine, because that takes too long for the
// turn. Runtime.Close waits for these goroutines. So call it only while Runtime.Close waits for
// the connection, or between enter and leave.
func (rt *Runtime) tidy() {
	if rt.cfg.stepped {
		return // stepped: the next big Alloc or Close does it
	}
	rt.tidying.Add(1)
	go func() {
		defer rt.tidying.Done()
		_ = rt.mem.reap() // mappings that cannot be ended are kept, and Close reports them
	}()
}
