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

// closeGrace is how long Close goes on giving things back after its context has ended, and
// how long it waits for memory that the program has. Neither waits for a peer. A goroutine
// on its way out of a refused call needs some instructions, one that handles a message as
// long as that takes; a busy machine makes either longer.
const closeGrace = 5 * time.Second

// errRuntimeClosed is why connections end that Runtime.Close closes.
var errRuntimeClosed = fmt.Errorf("%w with its runtime", ErrConnClosed)

// Close closes listeners and connections, waits for what is outstanding until ctx ends,
// cuts it off then, and gives everything back: goroutines, descriptors, mappings, the
// device. From its beginning on calls that make something (Dial, Listen, Accept, …) answer
// ErrClosed, and so do those under way. Whatever other goroutines do meanwhile, one call is
// enough: goroutines that are in a call are waited for, and so is memory that the program
// still has (a Buffer, a Message, a Packet), for five seconds.
//
// When ctx ends first, giving back goes on for some seconds. What cannot be given back by
// then, the error says:
//
//	ErrBusy            the program still has memory, or is in a call that uses the device
//	ErrReactorBusy     a reactor, or the kernel, did not come to it
//	the context's      a callback is still running
//
// Then what is left stays usable for who has it, nothing new begins, and Close may be
// called again: it goes on from there. After nil it returns nil. Several goroutines may
// call it; all wait for the end. Not from a callback (Then): it waits for the running
// callback.
func (rt *Runtime) Close(ctx context.Context) error {
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return err
	}
	after, end := extend(asked, rt.cfg.grace)
	defer end()
	made := true
	select {
	case <-rt.shut(): // what is made now is seen below
	case <-after:
		made = false
	}
	err = rt.closeAll(asked, after)
	if made {
		err = errors.Join(err, rt.destroy(after))
	} else {
		err = errors.Join(err, fmt.Errorf("%w: calls that make something on the device have not returned", verbs.ErrBusy))
	}
	return asked.Why(ctx, err)
}

// shut has calls that make something refused from now on; made is closed when none is
// under way. It may be repeated.
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

// closeAll closes what programs have: listeners before connections, and shared receives
// after those that use them. What is outstanding has until ctx ends.
func (rt *Runtime) closeAll(ctx, after reactor.Asked) error {
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

// each closes all at once: each may wait some seconds after the context has ended.
func each[T any](all []T, end func(T) error) []error {
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, one := range all {
		wg.Go(func() { errs[i] = end(one) })
	}
	wg.Wait()
	return errs
}

// extend is closed d after asked was, or when end is called, which leaves no goroutine
// behind.
func extend(asked reactor.Asked, d time.Duration) (longer reactor.Asked, end func()) {
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

// destroy gives back what Open made, children first, up to the first that
// cannot go yet. Every step may be repeated.
func (rt *Runtime) destroy(ctx context.Context) error {
	select {
	case rt.destroying <- struct{}{}:
		defer func() { <-rt.destroying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// All shards before any: an identifier may be closed by one that has not moved it to its
	// own channel yet.
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

// closeMemory closes the memory when goroutines have given back what they have of it. It
// waits for Config.grace at most. It polls: to be told, it would need every Release to look
// for a waiter.
func (rt *Runtime) closeMemory() error {
	if rt.mem == nil {
		return nil
	}
	patience := time.NewTimer(rt.cfg.grace)
	defer patience.Stop()
	tidied := make(chan struct{})
	go func() { defer close(tidied); rt.tidying.Wait() }() // all connections are gone: nobody adds
	select {
	case <-tidied:
	case <-patience.C:
		return fmt.Errorf("%w: large buffers are being unmapped", verbs.ErrBusy)
	}
	for {
		err := rt.mem.Close()
		if !errors.Is(err, verbs.ErrBusy) || rt.cfg.stepped { // stepped: nobody else gives anything back
			return err
		}
		select {
		case <-time.After(closeRetry):
		case <-patience.C:
			return err
		}
	}
}

// tidy gives big receive buffers back to the system: not on the turn, for that
// takes long. While Close waits for the connection, or in enter.
func (rt *Runtime) tidy() {
	if rt.cfg.stepped {
		return // one goroutine only: the next big Alloc or Close does it
	}
	rt.tidying.Add(1)
	go func() {
		defer rt.tidying.Done()
		_ = rt.mem.reap() // what cannot be ended is kept and reported by Close
	}()
}
