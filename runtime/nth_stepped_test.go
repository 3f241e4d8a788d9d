package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// nthPatience limits each wait of a scenario in virtual time. A longer wait counts as endless.
const nthPatience = 30 * time.Second

// errNever is the error of a wait that would not end.
var errNever = errors.New("it never comes")

// nthPaced is a run of a scenario on one goroutine. If fab is set, the run is in virtual time. All
// runs in virtual time make the same calls, up to the call that fails.
type nthPaced struct {
	nthRun
	fab  *fabric.Fabric  // nil: real time, and each reactor has its own goroutine
	ctx  context.Context // for operations; it has ended in virtual time, because there a wait for a slot would never end
	lost *int            // the number of lost datagrams
}

// pump(cond) runs both runtimes and the fabric in virtual time until cond() is true. If that takes
// longer than nthPatience, it returns errNever.
func (r *nthPaced) pump(cond func() bool) error {
	limit, last := r.fab.Now()+nthPatience, uint64(0)
	for !cond() {
		busy, next, polled := false, limit+1, uint64(0)
		for _, rt := range []*Runtime{r.server, r.client} {
			if rt == nil {
				continue
			}
			for _, s := range rt.shards {
				s.r.Step() // the result is ignored: it may be true although there was no progress
				polled += s.r.Stats().Polled
				if at := s.r.NextTimer(); !at.IsZero() {
					next = min(next, time.Duration(at.UnixNano()))
					busy = busy || next <= r.fab.Now()
				}
			}
		}
		if r.fab.Step() || busy || polled != last || cond() {
			last = polled
			continue
		}
		if at, ok := r.fab.NextEvent(); ok {
			next = min(next, at)
		}
		if next > limit {
			return errNever
		}
		r.fab.AdvanceTo(next)
	}
	return nil
}

// reached(r, f, within) waits for the future f and returns its result. If f is not settled in time, it
// returns errNever. The limit is the argument within in real time, and nthPatience in virtual time.
func reached[T any](r *nthPaced, f futures.Future[T], within time.Duration) (v T, err error) {
	if r.fab == nil {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if v, err = f.Await(ctx); f.Valid() {
			f.Discard()
			return v, errNever
		}
		return v, err
	}
	if err := r.pump(f.Settled); err != nil {
		f.Discard()
		return v, err
	}
	v, err, _ = f.Poll()
	return v, err
}

// get(r, what, f, err) handles a call that returned the future f and the error err. If err is nil, it
// waits for f. It records the error of the call or of the future. If there is no error, ok is true.
func get[T any](r *nthPaced, what string, f futures.Future[T], err error) (v T, ok bool) {
	if err == nil {
		v, err = reached(r, f, nthTimeout)
	}
	return v, r.note(what, err)
}

// gone(what, ch) waits until ch is closed, and records an error if that takes too long.
func (r *nthPaced) gone(what string, ch chan struct{}) bool {
	if r.fab != nil {
		return r.note(what, r.pump(func() bool { return isClosed(ch) }))
	}
	if !waitBound(ch, 2*closeBound) {
		return r.note(what, errNever)
	}
	return true
}

// all(devices, scenario) opens both runtimes, runs the scenario, and closes the runtimes.
func (r *nthPaced) all(devices [2]string, scenario func(*nthPaced)) error {
	cfg := Config{Provider: r.p, ConnectTimeout: nthTimeout, Reactors: 1, Spin: -1, CQEntries: 256,
		Conn: Options{SendDepth: 8, RecvCredits: 4, MessageSize: 512}}
	if r.fab != nil {
		cfg.stepped, cfg.now = true, func() time.Time { return time.Unix(0, int64(r.fab.Now())) }
	}
	var err error
	cfg.Device = devices[1]
	if r.server, err = Open(cfg); r.note("opening the server", err) {
		cfg.Device = devices[0]
		if r.client, err = Open(cfg); r.note("opening the client", err) {
			scenario(r)
		}
	}
	r.shut()
	return errors.Join(r.errs...)
}

// talk is a scenario that connects, transfers, cancels, reconnects and closes.
func (r *nthPaced) talk() {
	ln, err := r.server.Listen(":0")
	if !r.note("listening", err) {
		return
	}
	for round := range byte(2) { // the second round is the reconnection
		a, b := r.meet(ln, Options{})
		if a != nil && b != nil {
			r.exchange(a, b, round)
		}
		r.hangUp(a, b)
	}
}

// meet(ln, o) connects the two runtimes. An end that has failed is nil.
func (r *nthPaced) meet(ln *Listener, o Options) (a, b *Conn) {
	seat, err := ln.AcceptAsync()
	if !r.note("preparing to accept", err) {
		return nil, nil
	}
	dialing, err := r.client.DialAsync(r.ctx, ln.Addr().String(), o)
	a, ok := get(r, "dialing", dialing, err)
	late := nthTimeout
	if !ok && !seat.Settled() {
		if late = nthLate; r.fab != nil {
			_ = r.pump(func() bool { return seat.Settled() || len(r.client.live) == 0 })
		}
	}
	switch b, err = reached(r, seat, late); {
	case !errors.Is(err, errNever):
		r.note("accepting", err)
	case ok && a.Err() != nil: // the connection failed so early that the listener skipped it
		r.note("the connection that was dialed had failed", a.Err())
	case ok: // if dialing has failed, record nothing: perhaps no request came
		r.note("accepting", err)
	}
	return a, b
}

// hangUp closes the connections that are not nil.
func (r *nthPaced) hangUp(conns ...*Conn) {
	for _, c := range conns {
		if c == nil || isClosed(c.closed) {
			continue
		}
		if err := c.Err(); err != nil && !errors.Is(err, ErrPeerClosed) {
			r.note("a connection had failed", err)
		}
		c.end(false)
		if r.gone("closing a connection", c.closed) {
			r.note("closing a connection", c.closeErr)
		}
	}
}

// exchange(a, b, salt) sends a message from a to b, and executes a WRITE, a READ and two atomics. Then
// it gives up a receive, and sends another message.
func (r *nthPaced) exchange(a, b *Conn, salt byte) {
	said := []byte{salt, 1, 2, 3}
	hear := func(what string) {
		if m, ok := get(r, what, b.Recv(), nil); ok {
			if !bytes.Equal(m.Data, said) {
				r.errs = append(r.errs, fmt.Errorf("%s: got % x", what, m.Data))
			}
			m.Release()
		}
	}
	say := func(what string) bool {
		f, err := a.SendBytes(r.ctx, said)
		_, ok := get(r, what, f, err)
		return ok
	}
	if say("sending") {
		hear("receiving")
	}
	target, err := r.server.NewRegion(4096, allAccess)
	if !r.note("a region of the server", err) {
		return
	}
	defer func() { r.note("closing the server's region", target.Close()) }()
	source, err := r.client.NewRegion(4096, allAccess)
	if !r.note("a region of the client", err) {
		return
	}
	defer func() { r.note("closing the client's region", source.Close()) }()
	fillFrom(source.Bytes(), uint64(salt))
	remote, err := target.Remote(0, 4096)
	r.note("naming the region", err)
	local, err := source.Slice(0, 4096)
	r.note("slicing the region", err)
	f, err := a.Write(r.ctx, local, remote)
	if _, ok := get(r, "writing", f, err); ok && !bytes.Equal(target.Bytes()[:4096], source.Bytes()[:4096]) {
		r.errs = append(r.errs, errors.New("a write that succeeded did not arrive"))
	}
	f, err = a.Read(r.ctx, local, remote)
	get(r, "reading", f, err)
	word, err := target.Remote(8, 8)
	r.note("naming the word", err)
	f, err = a.Start(r.ctx, new(FetchAndAddOp(word, 1)))
	get(r, "adding", f, err)
	f, err = a.Start(r.ctx, new(CompareAndSwapOp(word, 0, 1)))
	get(r, "swapping", f, err)
	given := b.Recv()
	given.Discard()
	if say("sending after the cancellation") {
		hear("receiving after the cancellation")
	}
}

// shut() closes both runtimes. If Runtime.Close fails, shut() calls it again, up to nthCloses times.
func (r *nthPaced) shut() {
	if r.fab == nil {
		r.closeAll()
		return
	}
	for _, rt := range []*Runtime{r.client, r.server} {
		if rt == nil {
			continue
		}
		for l := range rt.listeners {
			l.end()
		}
		for c := range rt.live {
			c.end(false)
		}
		for p := range rt.packets {
			p.setCause(ErrConnClosed)
			p.sh.r.Defer(p.end)
		}
		r.note("closing what a runtime has", r.pump(func() bool { return len(rt.listeners)+len(rt.live)+len(rt.packets) == 0 }))
		for i := range nthCloses {
			if r.note(fmt.Sprintf("closing a runtime, try %d", i+1), rt.Close(context.Background())) {
				break
			}
		}
	}
}

// onVirtualTime runs a scenario many times in virtual time. In each run another call fails. Each of
// the three ways in which a call can fail has its own subtest.
func onVirtualTime(t *testing.T, scenario func(*nthPaced)) {
	notOnDevice(t, "virtual time")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, way := range map[string]nth.Scenario{
		"a call fails": {}, "a close is to be made again": {Busy: true}, "the device is gone": {Removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			var fab *fabric.Fabric
			way.Provider = func() (verbs.Provider, error) {
				fab = fabric.New(fabric.Config{Virtual: true, Seed: 1})
				return soft.New(soft.Config{Fabric: fab, Devices: []soft.DeviceConfig{
					{Name: "left", Addr: netip.MustParseAddr("10.0.0.1")}, {Name: "right", Addr: netip.MustParseAddr("10.0.0.2")}}})
			}
			way.Gauges = []leak.Gauge{{Name: "objects of the software RNIC", Read: soft.Live}}
			lost := 0
			way.Run = func(p verbs.Provider) error {
				lost = 0
				r := &nthPaced{nthRun: nthRun{p: p}, fab: fab, ctx: ended, lost: &lost}
				return r.all([2]string{"left", "right"}, scenario)
			}
			t.Log(nth.Drive(t, way))
			if lost > 0 {
				t.Errorf("without a fault %d datagrams did not come", lost)
			}
		})
	}
}

// Rule: whichever call of the provider fails, nothing hangs, nothing is left behind, and the error
// names the call. In virtual time every run makes the same calls, so the test can make each one
// fail.
func TestNthCallFailsOnVirtualTime(t *testing.T) { onVirtualTime(t, (*nthPaced).talk) }
