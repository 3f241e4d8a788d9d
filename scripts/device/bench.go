package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/open"
)

// target is a device to report on.
type target struct {
	provider verbs.Provider
	device   string
}

// targets returns the dialing and the accepting device of "DEV" or "DEV,DEV". A name without a prefix is one
// of libibverbs.
func targets(names string) (ts [2]target, err error) {
	first, second, two := strings.Cut(names, ",")
	if !two {
		second = first
	}
	for i, name := range [...]string{first, second} {
		if !strings.Contains(name, ":") {
			name = "ibv:" + name
		}
		c, err := open.Choose(nil, name)
		if err != nil {
			return ts, err
		}
		if c.Device == "" {
			return ts, fmt.Errorf("%q names no device", names)
		}
		ts[i] = target{c.Provider, c.Device}
	}
	return ts, nil
}

// bench is a run of the program.
type bench struct {
	sys      tree
	ends     [2]target
	conns    int           // that are dialed at once
	limit    time.Duration // of each part
	grace    time.Duration // how long after its limit a part may still return
	cases    string        // folder of the conformance suite's reports; "": none
	revision string        // of the repository; "" if unknown
	mask     *masker       // of the whole report

	mu     sync.Mutex // guards events
	events map[verbs.AsyncEventType]int
	parts  []Part
}

// leftBehind is the grace of a part, during which it closes what it has made.
const leftBehind = 30 * time.Second

// part runs f, which must return soon after its context ends, and notes its time. A part that does not return,
// because a call into the driver does not, is left behind: ok is then false.
func part[T any](b *bench, name string, f func(ctx context.Context) T) (result T, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), b.limit)
	defer cancel()
	done := make(chan T, 1)
	began := time.Now()
	go func() { done <- f(ctx) }()
	p := Part{Name: name, Limit: b.limit}
	select {
	case result = <-done:
		ok = true
		if ctx.Err() != nil {
			p.Cut = "its limit was reached: what is missing says so"
		}
	case <-time.After(b.limit + b.grace):
		p.Cut = "a call did not return: nothing of this part is known"
	}
	p.Took = time.Since(began)
	b.parts = append(b.parts, p)
	return result, ok
}

// open opens a device. shut closes it and counts its asynchronous events.
func (b *bench) open(t target) (ctx verbs.Context, shut func() error, err error) {
	if ctx, err = t.provider.Open(t.device); err != nil {
		return nil, nil, err
	}
	return ctx, func() error { b.drain(ctx); return ctx.Close() }, nil
}

// drain takes and counts a device's asynchronous events.
func (b *bench) drain(ctx verbs.Context) {
	for {
		ev, ok, err := ctx.Async().Get()
		if err != nil || !ok {
			return
		}
		ctx.Async().Ack(ev)
		b.count(ev.Type)
	}
}

func (b *bench) count(t verbs.AsyncEventType) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.events == nil {
		b.events = map[verbs.AsyncEventType]int{}
	}
	b.events[t]++
}

// closers close objects, the last one first.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) close() (err error) {
	for i := len(*c) - 1; i >= 0; i-- {
		err = errors.Join(err, (*c)[i]())
	}
	*c = nil
	return err
}

// errCut is the reason of an item that its part had no time for.
var errCut = errors.New("the part's limit was reached")

// allConnections are the three parts with connections of the runtime: what one part has found stays known when the
// next is left behind.
func (b *bench) allConnections() (c connections, ok bool) {
	if c, ok = part(b, "connections", b.connections); !ok || c.d == nil {
		return c, ok
	}
	if more, ok := part(b, "dials at once", c.dialsAtOnce); ok {
		c = more
	}
	closed, ok := part(b, "closing", c.closing)
	if !ok {
		closed = Times{Call: "closing both runtimes", Unknown: "it did not end"}
	}
	c.dials = append(c.dials, closed)
	for i := range c.stats {
		c.stats[i].Objects = known("none")
		if closed.Unknown != "" {
			c.stats[i].Objects = known("closing: " + closed.Unknown)
		}
	}
	return c, true
}

// report makes the report.
func (b *bench) report() *Report {
	r := &Report{Version: Version, Date: time.Now().UTC().Format(time.DateOnly), Devices: []string{b.ends[0].device, b.ends[1].device}}
	before := b.sys.counters(b.ends)
	if place, ok := part(b, "place", b.place); ok {
		r.Place = place
	}
	if granted, ok := part(b, "granted", b.granted); ok {
		r.Granted = granted
	}
	if pinned, ok := part(b, "pinned memory", b.pinned); ok {
		r.Granted.Pinned = pinned
	}
	ends := defaultEnd
	if c, ok := b.allConnections(); ok {
		r.Agreed.Ends, r.Granted.Connections = c.ends, c.pinned
		r.Timed.Dials, r.Timed.AtOnce, r.Timed.Messages, r.Counted.Stats = c.dials, c.burst, c.talk, c.stats
		if c.dialer.Timeout != 0 {
			ends = c.dialer
		}
	}
	if lost, ok := part(b, "lost peer", func(ctx context.Context) Item[RetryExc] { return b.lostPeer(ctx, ends) }); ok {
		r.Agreed.RetryExc = lost
	}
	if calls, ok := part(b, "control calls", b.controlCalls); ok {
		r.Timed.Calls = calls
	}
	if times, ok := part(b, "registrations", b.registrations); ok {
		r.Timed.Registrations = times
	}
	if times, ok := part(b, "data path", b.dataPath); ok {
		r.Timed.DataPath = times
	}
	r.Place.Programs.Libraries = b.sys.libraries() // all are loaded now
	r.Counted.Counters = b.sys.counted(b.ends, before)
	r.Counted.Events = b.asyncEvents()
	r.Deviations = deviations(b.cases)
	r.Parts = b.parts
	explainAll(r, "its part was left behind, or could not begin")
	return r
}
