package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// nthTimeout bounds each wait of the scenario. A failed call may keep the other side waiting, but
// the scenario must end.
const nthTimeout = 2 * time.Second

// nthLate is how long the test waits for the accepting side after the dialing side has failed. The
// time is short, because the accepting side has perhaps failed too, or never gets a request.
const nthLate = 50 * time.Millisecond

// nthStride returns the distance, in calls, between the failing calls of two successive runs. If
// VERBENA_NTH is "all", the distance is 1, so each call fails in one of the runs. Otherwise the
// distance is 11, because many runs take a second in real time.
func nthStride() int {
	if os.Getenv("VERBENA_NTH") == "all" {
		return 1
	}
	return 11
}

// nthRun is one run of the scenario: two runtimes on one provider.
type nthRun struct {
	p              verbs.Provider
	server, client *Runtime
	errs           []error
}

// nthScenario returns a scenario that connects, transfers, cancels, reconnects and closes. The
// scenario returns all errors, joined.
func nthScenario(devices [2]string) func(verbs.Provider) error {
	return func(p verbs.Provider) error {
		r := &nthRun{p: p}
		r.all(devices)
		r.closeAll()
		return errors.Join(r.errs...)
	}
}

func (r *nthRun) note(what string, err error) bool {
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s: %w", what, err))
	}
	return err == nil
}

func (r *nthRun) all(devices [2]string) {
	cfg := Config{Provider: r.p, ConnectTimeout: nthTimeout / 2, Reactors: 1, Spin: -1, CQEntries: 256,
		Conn: Options{SendDepth: 8, RecvCredits: 4, MessageSize: 512}}
	var err error
	cfg.Device = devices[1]
	if r.server, err = Open(cfg); !r.note("opening the server", err) {
		return
	}
	cfg.Device = devices[0]
	if r.client, err = Open(cfg); !r.note("opening the client", err) {
		return
	}
	addr := r.server.Device().Addr[0].String() + ":0"
	ln, err := r.server.Listen(addr)
	if !r.note("listening", err) {
		return
	}
	for round := range 2 { // the second round is the reconnection
		a, b := r.connect(ln)
		if a == nil || b == nil {
			for _, c := range []*Conn{a, b} {
				if c != nil {
					r.hangUp("half a connection", c)
				}
			}
			continue
		}
		r.transfer(a, b, byte(round))
		r.cancel(a, b)
		r.hangUp("the dialer", a)
		r.hangUp("the listener", b)
	}
}

func (r *nthRun) hangUp(who string, c *Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), nthTimeout)
	defer cancel()
	cause := c.Err()
	r.note("closing "+who, c.Close(ctx))
	if cause != nil && !errors.Is(cause, ErrPeerClosed) { // the connection had failed before Close
		r.note(who+" had failed", cause)
	}
}

// connect(ln) dials and accepts. An end that has failed is nil. It uses AcceptAsync and not Accept,
// because Accept would skip a request that fails, and the future of AcceptAsync may report the error.
func (r *nthRun) connect(ln *Listener) (a, b *Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), nthTimeout)
	defer cancel()
	seat, err := ln.AcceptAsync()
	if !r.note("preparing to accept", err) {
		return nil, nil
	}
	a, err = r.client.Dial(ctx, ln.Addr().String())
	if !r.note("dialing", err) {
		ctx, cancel = context.WithTimeout(context.Background(), nthLate)
		defer cancel()
	}
	b, err = seat.Await(ctx)
	if seat.Valid() { // no request came
		seat.Discard()
	} else {
		r.note("accepting", err)
	}
	return a, b
}

// transfer sends a message from a to b, and executes a WRITE, a READ and two atomics.
func (r *nthRun) transfer(a, b *Conn, salt byte) {
	ctx, cancel := context.WithTimeout(context.Background(), nthTimeout)
	defer cancel()
	await := func(what string, f Future, err error) (Result, bool) {
		if !r.note(what, err) {
			return Result{}, false
		}
		res, err := f.Await(ctx)
		return res, r.note(what, err)
	}
	f, err := a.SendBytes(ctx, []byte{salt, 1, 2, 3})
	if _, ok := await("sending", f, err); ok {
		m, err := b.RecvWait(ctx)
		if r.note("receiving", err) {
			if !bytes.Equal(m.Data, []byte{salt, 1, 2, 3}) {
				r.errs = append(r.errs, fmt.Errorf("received % x", m.Data))
			}
			m.Release()
		}
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
	for i := range source.Bytes() {
		source.Bytes()[i] = byte(i)*3 + salt
	}
	remote, err := target.Remote(0, 4096)
	r.note("naming the region", err)
	local, err := source.Slice(0, 4096)
	r.note("slicing the region", err)
	f, err = a.Write(ctx, local, remote)
	if _, ok := await("writing", f, err); ok && !bytes.Equal(target.Bytes(), source.Bytes()) {
		r.errs = append(r.errs, errors.New("a write that succeeded did not arrive"))
	}
	f, err = a.Read(ctx, local, remote)
	await("reading", f, err)
	word, err := target.Remote(8, 8)
	r.note("naming the word", err)
	f, err = a.Start(ctx, new(FetchAndAddOp(word, 1)))
	await("adding", f, err)
	f, err = a.Start(ctx, new(CompareAndSwapOp(word, 0, 1)))
	await("swapping", f, err)
}

// cancel(a, b) gives up a wait of b for a message. Then it sends a message from a to b.
func (r *nthRun) cancel(a, b *Conn) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if m, err := b.RecvWait(ctx); err == nil {
		m.Release()
		r.errs = append(r.errs, errors.New("a message came that nobody sent"))
	} else if !errors.Is(err, context.Canceled) {
		r.note("a receive that was given up", err)
	}
	ctx, stop = context.WithTimeout(context.Background(), nthTimeout)
	defer stop()
	f, err := a.SendBytes(ctx, []byte("after"))
	if r.note("sending after the cancellation", err) {
		if _, err = f.Await(ctx); r.note("sending after the cancellation", err) {
			if m, err := b.RecvWait(ctx); r.note("receiving after the cancellation", err) {
				m.Release()
			}
		}
	}
}

// nthCloses limits the calls of Runtime.Close. If Close fails, it is called again.
const nthCloses = 4

func (r *nthRun) closeAll() {
	for _, rt := range []*Runtime{r.client, r.server} {
		if rt == nil {
			continue
		}
		for i := range nthCloses {
			ctx, cancel := context.WithTimeout(context.Background(), nthTimeout)
			err := rt.Close(ctx)
			cancel()
			if r.note(fmt.Sprintf("closing a runtime, try %d", i+1), err) {
				break
			}
		}
	}
}

// Rule: whichever call of the provider fails, nothing hangs, nothing is left behind, and the error
// names the call.
func TestNthCallFailsOnTheSoftwareRNIC(t *testing.T) {
	notOnDevice(t, "the n-th call fails")
	provider := func() (verbs.Provider, error) { return soft.New(soft.Config{}) }
	o := nth.Drive(t, nth.Scenario{Provider: provider, Run: nthScenario([2]string{"soft0", "soft1"}), Step: nthStride(),
		Gauges: []leak.Gauge{{Name: "objects of the software RNIC", Read: soft.Live}}})
	t.Log(o)
}

func init() { nthTopics["plain"] = (*nthPaced).plainly }

// nthPath has short limits: an operation fails soon if the other end does not exist.
var nthPath = bootstrap.Path{Timeout: 10, RetryCount: 1} // an ACK timeout of 4 ms, 1 retry

// plainly() connects two ends without a connection manager and closes them. Before the server's end
// is connected, it posts a receive. The client's end sends one message. A third end is prepared and
// closed, but not connected.
func (r *nthPaced) plainly() {
	space, all, ok := r.region(r.server, 64, allAccess, 0)
	defer r.give(space)
	third, err := r.server.Prepare(PlainOptions{Path: nthPath})
	if r.note("preparing the third", err) {
		third.c.end(false)
		defer func() {
			if r.gone("closing the third", third.c.closed) {
				r.note("closing the third", third.c.closeErr)
			}
		}()
	}
	ps, err := r.server.Prepare(PlainOptions{Path: nthPath})
	r.note("preparing the server", err)
	pc, err := r.client.Prepare(PlainOptions{Path: nthPath})
	r.note("preparing the client", err)
	var conns [2]*Conn
	defer func() { r.hangUp(conns[:]...) }()
	if ps != nil {
		conns[1] = ps.c
	}
	if pc != nil {
		conns[0] = pc.c
	}
	if ps == nil || pc == nil || !ok {
		return
	}
	recv, err := ps.PostRecv(all)
	posted := r.note("posting early", err)
	if _, err = ps.Connect(context.Background(), pc.Local()); !r.note("connecting the server", err) {
		return
	}
	if _, err = pc.Connect(context.Background(), ps.Local()); !r.note("connecting the client", err) || !posted || recv.Settled() {
		return
	}
	f, err := pc.c.SendBytes(r.ctx, []byte("plain"))
	if _, ok := get(r, "sending", f, err); !ok {
		return
	}
	if x, ok := get(r, "the early receive", recv, nil); ok && string(space.Bytes()[:x.Bytes]) != "plain" {
		r.wrong("received %q", space.Bytes()[:x.Bytes])
	}
}
