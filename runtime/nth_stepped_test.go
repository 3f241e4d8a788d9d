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
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// nthPatience is how much virtual time each wait of the stepped scenario has;
// what takes longer never ends.
const nthPatience = 30 * time.Second

// errNever is a wait that nothing would have ended.
var errNever = errors.New("it never comes")

// nthStepped is the scenario on one goroutine and virtual time, so that every
// run makes the same calls.
type nthStepped struct {
	nthRun
	fab   *fabric.Fabric
	ended context.Context // what waits on it never waits
}

// pump turns everything until cond holds.
func (r *nthStepped) pump(cond func() bool) error {
	limit, last := r.fab.Now()+nthPatience, uint64(0)
	for !cond() {
		busy, next, polled := false, limit+1, uint64(0)
		for _, rt := range []*Runtime{r.server, r.client} {
			if rt == nil {
				continue
			}
			for _, s := range rt.shards {
				s.r.Step() // true as long as anything is out
				polled += s.r.Stats().Polled
				busy = s.r.Pending() || busy
				if at := s.r.NextTimer(); !at.IsZero() {
					next = min(next, time.Duration(at.UnixNano()))
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

// get waits for a future.
func get[T any](r *nthStepped, what string, f futures.Future[T], err error) (v T, ok bool) {
	if !r.note(what, err) {
		return v, false
	}
	if err := r.pump(f.Settled); err != nil {
		f.Discard()
		r.note(what, err)
		return v, false
	}
	v, err, _ = f.Poll()
	return v, r.note(what, err)
}

func (r *nthStepped) run() error {
	var err error
	open := func(device string) (*Runtime, error) {
		return Open(Config{Provider: r.p, Device: device, ConnectTimeout: 2 * time.Second, CQEntries: 256, stepped: true,
			now:  func() time.Time { return time.Unix(0, int64(r.fab.Now())) },
			Conn: Options{SendDepth: 8, RecvCredits: 4, MessageSize: 512}})
	}
	if r.server, err = open("right"); r.note("opening the server", err) {
		if r.client, err = open("left"); r.note("opening the client", err) {
			r.talk()
		}
	}
	r.shut()
	return errors.Join(r.errs...)
}

func (r *nthStepped) talk() {
	ln, err := r.server.Listen("10.0.0.2:0")
	if !r.note("listening", err) {
		return
	}
	for round := range byte(2) { // the second is the reconnection
		seat, err := ln.AcceptAsync()
		if !r.note("preparing to accept", err) {
			return
		}
		dialing, err := r.client.DialAsync(r.ended, ln.Addr().String(), Options{})
		a, ok := get(r, "dialing", dialing, err)
		if !ok && !seat.Settled() {
			_ = r.pump(func() bool { return seat.Settled() || len(r.client.live) == 0 })
		}
		if !ok && !seat.Settled() {
			seat.Discard() // no request came
			continue
		}
		b, ok := get(r, "accepting", seat, nil)
		if a != nil && ok {
			r.exchange(a, b, round)
		}
		for _, c := range []*Conn{a, b} {
			if c == nil {
				continue
			}
			if err := c.Err(); err != nil && !errors.Is(err, ErrPeerClosed) {
				r.note("a connection had failed", err)
			}
			c.End()
			r.note("closing a connection", r.pump(func() bool { return c.state == connGone }))
			if c.state == connGone {
				r.note("closing a connection", c.closeErr)
			}
		}
	}
}

// exchange sends, receives, writes, reads, adds, swaps, gives up a receive and
// receives again.
func (r *nthStepped) exchange(a, b *Conn, salt byte) {
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
		f, err := a.SendBytes(r.ended, said)
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
	f, err := a.Write(r.ended, local, remote)
	if _, ok := get(r, "writing", f, err); ok && !bytes.Equal(target.Bytes()[:4096], source.Bytes()[:4096]) {
		r.errs = append(r.errs, errors.New("a write that succeeded did not arrive"))
	}
	f, err = a.Read(r.ended, local, remote)
	get(r, "reading", f, err)
	word, err := target.Remote(8, 8)
	r.note("naming the word", err)
	f, err = a.FetchAndAdd(r.ended, word, 1)
	get(r, "adding", f, err)
	f, err = a.CompareAndSwap(r.ended, word, 0, 1)
	get(r, "swapping", f, err)
	given := b.Recv()
	given.Discard()
	if say("sending after the cancellation") {
		hear("receiving after the cancellation")
	}
}

// shut closes both runtimes, which may take more than one try.
func (r *nthStepped) shut() {
	for _, rt := range []*Runtime{r.client, r.server} {
		if rt == nil {
			continue
		}
		for l := range rt.listeners {
			l.end()
		}
		for c := range rt.live {
			c.End()
		}
		r.note("closing what a runtime has", r.pump(func() bool { return len(rt.listeners)+len(rt.live) == 0 }))
		for i := range nthCloses {
			if r.note(fmt.Sprintf("closing a runtime, try %d", i+1), rt.Close(context.Background())) {
				break
			}
		}
	}
}

// Rule: on virtual time, where every run makes the same calls, each of them is
// made to fail: nothing hangs, nothing is left, and the error names the call.
func TestNthCallFailsOnVirtualTime(t *testing.T) {
	for _, busy := range []bool{false, true} { // a Close that fails has closed, or is to be made again
		t.Run(fmt.Sprintf("busy %t", busy), func(t *testing.T) {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			var fab *fabric.Fabric
			provider := func() (verbs.Provider, error) {
				fab = fabric.New(fabric.Config{Virtual: true, Seed: 1})
				return soft.New(soft.Config{Fabric: fab, Devices: []soft.DeviceConfig{
					{Name: "left", Addr: netip.MustParseAddr("10.0.0.1")}, {Name: "right", Addr: netip.MustParseAddr("10.0.0.2")}}})
			}
			run := func(p verbs.Provider) error {
				r := &nthStepped{nthRun: nthRun{p: p}, fab: fab, ended: ended}
				return r.run()
			}
			t.Log(nth.Drive(t, nth.Scenario{Provider: provider, Run: run, Busy: busy}))
		})
	}
}
