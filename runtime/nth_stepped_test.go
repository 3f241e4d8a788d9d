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

// nthPatience limits each wait of a scenario in virtual time. If a wait is longer, it fails with
// errNever.
const nthPatience = 30 * time.Second

// errNever is the error of a wait that reached its limit.
var errNever = errors.New("the expected event did not come within the limit of the wait")

// nthPaced is a run of a scenario. If fab is not nil, the run is in virtual time and uses one
// goroutine. If fab is nil, the run is in real time, and each reactor has its own goroutine. All runs
// in virtual time make the same calls, up to the call that fails.
type nthPaced struct {
	nthRun
	fab *fabric.Fabric
	// ctx is the context of operations. In virtual time this context has ended before the run starts, so
	// that no operation waits for a slot: there is no other goroutine that could free one.
	ctx  context.Context
	lost *int // the number of lost datagrams
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
				s.r.Step() // the result is not used, because Step may return true without progress
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
// returns errNever. The time limit is nthPatience in virtual time, and the duration within in real time.
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

// get(r, what, f, err) handles a call that returned the future f and the error err. If err is nil, get
// waits for f. If the call or the future has failed, get records the error, and ok is false. The string
// what describes the call in the recorded error.
func get[T any](r *nthPaced, what string, f futures.Future[T], err error) (v T, ok bool) {
	if err == nil {
		v, err = reached(r, f, nthTimeout)
	}
	return v, r.note(what, err)
}

// gone(what, ch) waits until ch is closed. If that takes longer than nthPatience in virtual time, or
// than 2*closeBound in real time, it records errNever.
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
		Conn: Options{SendDepth: 8, MessageSize: 512}}
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

// talk is a scenario. Two times it connects the runtimes, executes operations, gives up a
// receive, and closes the connection.
func (r *nthPaced) talk() {
	ln, err := r.server.Listen(":0")
	if !r.note("listening", err) {
		return
	}
	for round := range byte(2) {
		a, b := r.meet(ln, Options{})
		if a != nil && b != nil {
			r.exchange(a, b, round)
		}
		r.hangUp(a, b)
	}
}

// meet(ln, o) connects the two runtimes. It returns the dialing end a and the accepting end b. If an
// end has failed, its result is nil.
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
	case ok && a.Err() != nil: // the connection failed so early that the listener skipped the request
		r.note("the dialed connection had failed", a.Err())
	case ok: // dialing succeeded, so a request came; if dialing failed, perhaps no request came
		r.note("accepting", err)
	}
	return a, b
}

// hangUp closes the connections that are neither nil nor closed. If a connection had failed before with
// an error other than ErrPeerClosed, hangUp records this error.
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
// it discards a receive of b, and sends another message from a to b. The argument salt determines the
// content.
func (r *nthPaced) exchange(a, b *Conn, salt byte) {
	said := []byte{salt, 1, 2, 3}
	hear := func(what string) {
		if m, ok := get(r, what, b.Recv(), nil); ok {
			if !bytes.Equal(m.Data, said) {
				r.errs = append(r.errs, fmt.Errorf("%s: got % x, want % x", what, m.Data, said))
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
	if !r.note("making a region of the server", err) {
		return
	}
	defer func() { r.note("closing the server's region", target.Close()) }()
	source, err := r.client.NewRegion(4096, allAccess)
	if !r.note("making a region of the client", err) {
		return
	}
	defer func() { r.note("closing the client's region", source.Close()) }()
	fillFrom(source.Bytes(), uint64(salt))
	remote, err := target.Remote(0, 4096)
	r.note("getting the descriptor of the region", err)
	local, err := source.Slice(0, 4096)
	r.note("getting a slice of the region", err)
	f, err := a.Write(r.ctx, local, remote)
	if _, ok := get(r, "writing", f, err); ok && !bytes.Equal(target.Bytes()[:4096], source.Bytes()[:4096]) {
		r.errs = append(r.errs, errors.New("a WRITE succeeded, but the target region differs from the source region"))
	}
	f, err = a.Read(r.ctx, local, remote)
	get(r, "reading", f, err)
	word, err := target.Remote(8, 8)
	r.note("getting the descriptor of the word", err)
	f, err = a.Start(r.ctx, new(FetchAndAddOp(word, 1)))
	get(r, "FETCH_ADD", f, err)
	f, err = a.Start(r.ctx, new(CompareAndSwapOp(word, 0, 1)))
	get(r, "COMP_SWAP", f, err)
	given := b.Recv()
	given.Discard()
	if say("sending after a receive was discarded") {
		hear("receiving after a receive was discarded")
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
		r.note("closing the listeners, connections and PacketConns of a runtime",
			r.pump(func() bool { return len(rt.listeners)+len(rt.live)+len(rt.packets) == 0 }))
		for i := range nthCloses {
			if r.note(fmt.Sprintf("closing a runtime, attempt %d", i+1), rt.Close(context.Background())) {
				break
			}
		}
	}
}

// onVirtualTime runs a scenario in virtual time. Each of the three ways in which a call can fail has
// its own subtest. A subtest runs the scenario many times. In the n-th run, the n-th of the calls that
// can fail in this way fails. The last run is the first run in which no call fails.
func onVirtualTime(t *testing.T, scenario func(*nthPaced)) {
	notOnDevice(t, "the test runs in virtual time")
	for name, way := range map[string]nth.Scenario{
		"a call fails": {}, "a Close returns ErrBusy": {Busy: true}, "the device is removed": {Removed: true},
		"two calls fail, one after the other": {Then: 1, Step: nthStride()}, "two calls fail, one between": {Then: 2, Step: nthStride()},
		"two calls fail, two between": {Then: 3, Step: nthStride()},
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
				r := &nthPaced{nthRun: nthRun{p: p}, fab: fab, ctx: givenUp, lost: &lost}
				return r.all([2]string{"left", "right"}, scenario)
			}
			t.Log(nth.Drive(t, way))
			if lost > 0 {
				t.Errorf("%d datagrams were lost in the run without a fault, want 0", lost)
			}
		})
	}
}

// Rule: whichever call of the provider fails, the scenario ends and leaves nothing behind. If the
// scenario returns an error, the error names the call, or is ErrDeviceRemoved if the device was
// removed. In virtual time every run makes the same calls, so the test can make each call fail.
func TestNthCallFailsOnVirtualTime(t *testing.T) { onVirtualTime(t, (*nthPaced).talk) }
