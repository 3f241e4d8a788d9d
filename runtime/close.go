package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// destroyBound is how long after its context has ended Close goes on giving
// things back: nothing of that waits for a peer, so it is for a busy machine.
const destroyBound = 5 * time.Second

// Close closes listeners and connections, waiting for what is outstanding
// until ctx ends and cutting it off then, and gives everything back: goroutines,
// descriptors, mappings, the device. Giving back goes on after ctx has ended,
// for some seconds at most. Memory still in use by the caller is an error
// (verbs.ErrBusy), and Close may be called again. It is idempotent, and several
// may call it. Not from a callback (Then): it waits for the running
// callback.
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
	rt.mu.Lock()
	shared := slices.Collect(maps.Keys(rt.shared))
	packets := slices.Collect(maps.Keys(rt.packets))
	rt.mu.Unlock()
	for _, p := range packets {
		errs = append(errs, p.Close(ctx))
	}
	for _, s := range shared {
		errs = append(errs, s.Close())
	}
	after, cancel := extend(ctx, destroyBound)
	defer cancel()
	errs = append(errs, rt.destroy(after))
	return errors.Join(errs...)
}

// extend is a context that ends d after ctx.
func extend(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-longer.Done():
		case <-time.After(d):
			cancel()
		}
	})
	return longer, func() { stop(); cancel() }
}

// destroy gives back what Open made, children first, up to the first that
// cannot go yet. Every step may be repeated.
func (rt *Runtime) destroy(ctx context.Context) error {
	rt.destroying.Lock()
	defer rt.destroying.Unlock()
	for _, s := range rt.shards {
		if err := s.close(ctx); err != nil {
			return err
		}
	}
	if rt.handlers != nil {
		rt.handlers.close()
	}
	rt.tidying.Wait() // all connections are gone: nobody adds
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
