package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// connections is what connections of two runtimes show.
type connections struct {
	ends   Item[[]EndAttr]
	pinned Item[ConnsPinned]
	dials  []Times
	talk   []Times
	burst  Item[Burst]
	stats  []Stats
	dialer verbs.QPAttr // of the first connection; zero if there is none
	d      *dialing     // open, unless it is nil
}

const (
	loneDials = 20
	// backlog is that of the listener: an eighth of it may be handshakes of one address.
	backlog = 1 << 12
	// testTOS is the type of service of one connection: the DSCP 26, which most networks give a lossless
	// class or ignore.
	testTOS = 26 << 2
)

// dialing is two runtimes, a listener, and the connections that it has accepted.
type dialing struct {
	b       *bench
	ctx     context.Context
	rts     [2]*runtime.Runtime
	ln      *runtime.Listener
	accepts chan *runtime.Conn // accepted, in their order

	mu    sync.Mutex // guards conns
	conns []*runtime.Conn
}

// connections opens a runtime for each end and connects them: with different options, and one after the other. The
// next parts dial all at once and close everything.
func (b *bench) connections(ctx context.Context) (c connections) {
	d := &dialing{b: b, ctx: ctx, accepts: make(chan *runtime.Conn, backlog)}
	if err := d.open(); err != nil {
		explainAll(&c.ends, err.Error())
		explainAll(&c.pinned, err.Error())
		explainAll(&c.burst, err.Error())
		c.dials, c.talk = []Times{{Call: "Dial", Unknown: err.Error()}}, []Times{{Call: "message", Unknown: err.Error()}}
		c.stats = []Stats{{End: "both", Stats: unknown[reactor.Stats]("%v", err), Objects: unknown[string]("%v", err)}}
		return c
	}
	c.ends, c.dialer = d.attributes()
	c.talk = []Times{d.talk()}
	lone := newTimer("Dial, one after the other")
	for range loneDials {
		if lone.failed() || ctx.Err() != nil {
			break
		}
		lone.time(func() error { _, err := d.dial(runtime.Options{}); return err })
	}
	c.dials, c.d = []Times{lone.times()}, d
	return c
}

// dialsAtOnce dials all connections at once, and reads what they have pinned and the counters.
func (c connections) dialsAtOnce(ctx context.Context) connections {
	c.d.ctx = ctx
	c.burst, c.pinned = c.d.atOnce()
	for i, end := range [...]string{"dialing", "accepting"} {
		c.stats = append(c.stats, Stats{End: end, Stats: known(c.d.rts[i].Stats())})
	}
	return c
}

// closing closes everything, and times it.
func (c connections) closing(ctx context.Context) Times {
	t := newTimer("closing both runtimes, with all connections")
	t.time(func() error { return c.d.close(ctx) })
	return t.times()
}

// entries is a bound of the entries of a completion queue that a default connection takes.
const entries = 300

// reactors is how many reactors each runtime needs: the queues of one have at most the device's limit of
// entries.
func (d *dialing) reactors() (int, error) {
	dev, shut, err := d.b.open(d.b.ends[0])
	if err != nil {
		return 0, err
	}
	attr, err := dev.QueryDevice()
	need := (d.b.conns + 2*loneDials) * entries
	return min(1+need/max(attr.MaxCQE, 1), 64), errors.Join(err, shut())
}

// open opens the runtimes and listens.
func (d *dialing) open() (err error) {
	n, err := d.reactors()
	if err != nil {
		return err
	}
	for i := range d.rts {
		if d.rts[i], err = runtime.Open(runtime.Config{Provider: d.b.ends[i].provider, Device: d.b.ends[i].device, Reactors: n, ConnectTimeout: d.b.limit}); err != nil {
			return errors.Join(err, d.close(d.ctx))
		}
		d.rts[i].WatchDevice(func(ev runtime.DeviceEvent) { d.b.count(ev.Type) })
	}
	if d.ln, err = d.rts[1].ListenOptions(":0", runtime.Options{Backlog: backlog}); err != nil {
		return errors.Join(err, d.close(d.ctx))
	}
	go func() {
		for {
			c, err := d.ln.Accept(context.Background())
			if err != nil {
				close(d.accepts)
				return
			}
			d.keep(c)
			d.accepts <- c
		}
	}()
	return nil
}

func (d *dialing) keep(c *runtime.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, c)
}

func (d *dialing) dial(o runtime.Options) (*runtime.Conn, error) {
	c, err := d.rts[0].DialOptions(d.ctx, d.ln.Addr().String(), o)
	if err == nil {
		d.keep(c)
	}
	return c, err
}

// attributes connects with the default options and with a type of service, and reads both ends.
func (d *dialing) attributes() (_ Item[[]EndAttr], first verbs.QPAttr) {
	var rows []EndAttr
	for _, x := range []struct {
		what string
		o    runtime.Options
	}{{"default", runtime.Options{}}, {fmt.Sprintf("TOS %d", testTOS), runtime.Options{TOS: testTOS}}} {
		c, err := d.dial(x.o)
		if err != nil {
			return unknown[[]EndAttr]("Dial, %s: %v", x.what, err), first
		}
		ends := []*runtime.Conn{c, nil}
		select {
		case ends[1] = <-d.accepts:
		case <-d.ctx.Done():
			return unknown[[]EndAttr]("the listener did not accept: %v", errCut), first
		}
		for i, name := range [...]string{"dialer", "acceptor"} {
			a, err := ends[i].Attributes(d.ctx)
			if err != nil {
				return unknown[[]EndAttr]("the attributes of the %s, %s: %v", name, x.what, err), first
			}
			if first.Timeout == 0 {
				first = a
			}
			rows = append(rows, endAttr(x.what, name, a))
		}
	}
	return known(rows), first
}

func endAttr(connection, end string, a verbs.QPAttr) EndAttr {
	return EndAttr{Connection: connection, End: end, Timeout: codeOf(a.Timeout, verbs.AckTimeout(a.Timeout)), Retry: int(a.RetryCnt),
		RNRRetry: int(a.RNRRetry), RNRTimer: codeOf(a.MinRNRTimer, verbs.RNRTimeout(a.MinRNRTimer)), Reads: int(a.MaxRdAtomic),
		Served: int(a.MaxDestRdAtomic), MTU: a.PathMTU.Bytes(), SL: int(a.AH.SL), TC: int(a.AH.TrafficClass), Hops: int(a.AH.HopLimit),
		GIDIndex: int(a.AH.SGIDIndex), Caps: capacities(a.Cap)}
}

// codeOf is a code with its time.
func codeOf(code uint8, d time.Duration) string { return fmt.Sprintf("%d (%s)", code, short(d)) }

// messages is how many messages are sent there and back.
const messages = 500

// talk sends messages there and back on a connection of the runtime.
func (d *dialing) talk() Times {
	t := newTimer("message of 64 bytes, there and back, by the runtime")
	a, err := d.dial(runtime.Options{})
	if err != nil {
		t.err = err
		return t.times()
	}
	var b *runtime.Conn
	select {
	case b = <-d.accepts:
	case <-d.ctx.Done():
		return t.times()
	}
	text := make([]byte, writeSize)
	send := func(from, to *runtime.Conn) error {
		f, err := from.SendBytes(d.ctx, text)
		if err != nil {
			return err
		}
		m, err := to.RecvWait(d.ctx)
		if err != nil {
			return err
		}
		_, err = f.Await(d.ctx)
		return errors.Join(err, m.Release())
	}
	for range messages {
		if d.ctx.Err() != nil || t.failed() {
			break
		}
		t.time(func() error { return errors.Join(send(a, b), send(b, a)) })
	}
	return t.times()
}

// atOnce dials all connections at once, and reads what they have pinned.
func (d *dialing) atOnce() (Item[Burst], Item[ConnsPinned]) {
	before, err := d.b.sys.memoryUse()
	burst := Burst{Asked: d.b.conns}
	times := make([]time.Duration, 0, d.b.conns)
	var mu sync.Mutex // guards times and burst
	var wg sync.WaitGroup
	began := time.Now()
	for range d.b.conns {
		wg.Go(func() {
			_, err := d.dial(runtime.Options{})
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				times = append(times, took)
			} else if burst.FirstError == "" {
				burst.FirstError = err.Error()
			}
		})
	}
	wg.Wait()
	burst.All, burst.Connected = time.Since(began), len(times)
	t := timesOf("", times)
	burst.Median, burst.P99 = t.Median, t.P99
	after, err2 := d.b.sys.memoryUse()
	if err := errors.Join(err, err2); err != nil {
		return known(burst), unknown[ConnsPinned]("%v", err)
	}
	use := after.since(before)
	return known(burst), known(ConnsPinned{Connections: len(times), Reactors: len(d.rts[0].Loops()), Pinned: use.pinned, Locked: use.locked, Mapped: use.mapped})
}

// close closes the connections, the listener and the runtimes, as far as they exist.
func (d *dialing) close(ctx context.Context) (err error) {
	if d.ln != nil {
		err = d.ln.Close(ctx)
		for range d.accepts { // until the accepting goroutine has ended
		}
	}
	d.mu.Lock()
	conns := slices.Clone(d.conns)
	d.mu.Unlock()
	for _, c := range conns {
		c.Abort()
	}
	for _, rt := range d.rts {
		if rt != nil {
			err = errors.Join(err, rt.Close(ctx))
		}
	}
	return err
}
