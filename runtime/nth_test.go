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

// nthTimeout limits each wait of the scenario. If a call fails at one end, the other end may wait for
// a message that never comes. The limit ends this wait.
const nthTimeout = 2 * time.Second

// nthLate is how long the scenario waits for the accepting end after the dialing end has failed. The
// time is short, because perhaps the accepting end has failed too, or gets no request.
const nthLate = 50 * time.Millisecond

// nthStride returns the difference between the numbers of the failing calls in two successive runs. If
// VERBENA_NTH is "all", the difference is 1, so each call fails in one of the runs. Otherwise the
// difference is 11, to save time: in real time, many of the runs take a second.
func nthStride() int {
	if os.Getenv("VERBENA_NTH") == "all" {
		return 1
	}
	return 11
}

// nthRun is one run of a scenario. The runtimes server and client use the provider p. The errors of the
// scenario are in errs.
type nthRun struct {
	p              verbs.Provider
	server, client *Runtime
	errs           []error
}

// nthScenario returns a scenario. Two times the scenario connects two runtimes, executes operations,
// gives up a receive, and closes the connection. The scenario returns all errors, joined.
func nthScenario(devices [2]string) func(verbs.Provider) error {
	return func(p verbs.Provider) error {
		r := &nthRun{p: p}
		r.all(devices)
		r.closeAll()
		return errors.Join(r.errs...)
	}
}

// note records err with the text what, unless err is nil. It reports whether err is nil.
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
	for round := range 2 {
		a, b := r.connect(ln)
		if a == nil || b == nil {
			for _, c := range []*Conn{a, b} {
				if c != nil {
					r.hangUp("the only connected end", c)
				}
			}
			continue
		}
		r.transfer(a, b, byte(round))
		r.cancel(a, b)
		r.hangUp("the dialing end", a)
		r.hangUp("the accepting end", b)
	}
}

// hangUp closes c. If c had failed before with an error other than ErrPeerClosed, hangUp records this
// error.
func (r *nthRun) hangUp(who string, c *Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), nthTimeout)
	defer cancel()
	cause := c.Err()
	r.note("closing "+who, c.Close(ctx))
	if cause != nil && !errors.Is(cause, ErrPeerClosed) {
		r.note(who+" had failed", cause)
	}
}

// connect(ln) connects the two runtimes. It returns the dialing end a and the accepting end b. If an
// end has failed, its result is nil. If a request fails, the future of AcceptAsync may report the error.
// Accept would skip the request, so this method does not call Accept.
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
	if seat.Valid() { // the wait ended before a connection was accepted, perhaps because no request came
		seat.Discard()
	} else {
		r.note("accepting", err)
	}
	return a, b
}

// transfer sends a message from a to b, and executes a WRITE, a READ and two atomics. The argument
// salt determines the content.
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
				r.errs = append(r.errs, fmt.Errorf("received % x, want % x", m.Data, []byte{salt, 1, 2, 3}))
			}
			m.Release()
		}
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
	for i := range source.Bytes() {
		source.Bytes()[i] = byte(i)*3 + salt
	}
	remote, err := target.Remote(0, 4096)
	r.note("getting the descriptor of the region", err)
	local, err := source.Slice(0, 4096)
	r.note("getting a slice of the region", err)
	f, err = a.Write(ctx, local, remote)
	if _, ok := await("writing", f, err); ok && !bytes.Equal(target.Bytes(), source.Bytes()) {
		r.errs = append(r.errs, errors.New("a WRITE succeeded, but the target region differs from the source region"))
	}
	f, err = a.Read(ctx, local, remote)
	await("reading", f, err)
	word, err := target.Remote(8, 8)
	r.note("getting the descriptor of the word", err)
	f, err = a.Start(ctx, new(FetchAndAddOp(word, 1)))
	await("FETCH_ADD", f, err)
	f, err = a.Start(ctx, new(CompareAndSwapOp(word, 0, 1)))
	await("COMP_SWAP", f, err)
}

// cancel(a, b) calls b.RecvWait with a context that has ended, so RecvWait gives up. After that, cancel
// sends a message from a to b, and receives it.
func (r *nthRun) cancel(a, b *Conn) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if m, err := b.RecvWait(ctx); err == nil {
		m.Release()
		r.errs = append(r.errs, errors.New("RecvWait with an ended context returned a message, but none was sent"))
	} else if !errors.Is(err, context.Canceled) {
		r.note("RecvWait with an ended context", err)
	}
	ctx, stop = context.WithTimeout(context.Background(), nthTimeout)
	defer stop()
	f, err := a.SendBytes(ctx, []byte("after"))
	if r.note("sending after RecvWait gave up", err) {
		if _, err = f.Await(ctx); r.note("sending after RecvWait gave up", err) {
			if m, err := b.RecvWait(ctx); r.note("receiving after RecvWait gave up", err) {
				m.Release()
			}
		}
	}
}

// nthCloses limits the calls of Runtime.Close. If Close fails, closeAll calls it again, up to nthCloses
// times in all.
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
			if r.note(fmt.Sprintf("closing a runtime, attempt %d", i+1), err) {
				break
			}
		}
	}
}

// Rule: whichever call of the provider fails, the scenario ends and leaves nothing behind. If the
// scenario returns an error, the error names the call.
func TestNthCallFailsOnTheSoftwareRNIC(t *testing.T) {
	notOnDevice(t, "the test makes the n-th call fail")
	provider := func() (verbs.Provider, error) { return soft.New(soft.Config{}) }
	o := nth.Drive(t, nth.Scenario{Provider: provider, Run: nthScenario([2]string{"soft0", "soft1"}), Step: nthStride(),
		Gauges: []leak.Gauge{{Name: "objects of the software RNIC", Read: soft.Live}}})
	t.Log(o)
}

func init() { nthTopics["plain"] = (*nthPaced).plainly }

// nthPath has an ACK timeout of 4 ms and one retry. So an operation fails soon if the peer's queue
// pair does not exist.
var nthPath = bootstrap.Path{Timeout: 10, RetryCount: 1}

// plainly connects two ends without a connection manager and closes them. Before the
// server's end is connected, it posts a receive. The client's end sends one message. The method also
// prepares and closes a third end, which is never connected.
func (r *nthPaced) plainly() {
	space, all, ok := r.region(r.server, 64, allAccess, 0)
	defer r.give(space)
	third, err := r.server.Prepare(PlainOptions{Path: nthPath})
	if r.note("preparing the third end", err) {
		third.c.end(false)
		defer func() {
			if r.gone("closing the third end", third.c.closed) {
				r.note("closing the third end", third.c.closeErr)
			}
		}()
	}
	ps, err := r.server.Prepare(PlainOptions{Path: nthPath})
	r.note("preparing the server's end", err)
	pc, err := r.client.Prepare(PlainOptions{Path: nthPath})
	r.note("preparing the client's end", err)
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
	posted := r.note("posting the early receive", err)
	if _, err = ps.Connect(context.Background(), pc.Local()); !r.note("connecting the server's end", err) {
		return
	}
	if _, err = pc.Connect(context.Background(), ps.Local()); !r.note("connecting the client's end", err) || !posted || recv.Settled() {
		return
	}
	f, err := pc.c.SendBytes(r.ctx, []byte("plain"))
	if _, ok := get(r, "sending", f, err); !ok {
		return
	}
	if x, ok := get(r, "the early receive", recv, nil); ok && string(space.Bytes()[:x.Bytes]) != "plain" {
		r.wrong("received %q, want %q", space.Bytes()[:x.Bytes], "plain")
	}
}
