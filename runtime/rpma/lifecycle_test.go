package rpma

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// Rule: the zero value of a configuration has librpma's defaults, and what is set is kept.
func TestConfigDefaults(t *testing.T) {
	for _, c := range []*ConnConfig{nil, {}} {
		got := must.Get(c.validate("test"))(t)
		if want := (ConnConfig{Timeout: 1000 * time.Millisecond, CQSize: 10, RCQSize: 0, SQSize: 10, RQSize: 10}); got != want {
			t.Errorf("the defaults are %+v, want %+v", got, want)
		}
	}
	set := ConnConfig{Timeout: 7, CQSize: 1, RCQSize: 2, SQSize: 3, RQSize: 4, SharedChannel: true}
	if got := must.Get(set.validate("test"))(t); got != set {
		t.Errorf("the configuration %+v became %+v", set, got)
	}
	if got := must.Get((*SRQConfig)(nil).validate("test"))(t); got != (SRQConfig{100, 100}) {
		t.Errorf("the defaults of an SRQ are %+v, want 100 and 100", got)
	}
}

// Rule: a peer that does not answer is unreachable after the runtime's ConnectTimeout, and resolving it takes at
// most ConnConfig.Timeout.
func TestUnreachable(t *testing.T) {
	r := newRig(t)
	b := mainBed(t)
	ep, port := r.listen()
	_ = ep // nobody answers
	rt := must.Get(runtime.Open(runtime.Config{Provider: b.provider(t), Device: b.devices[0], ConnectTimeout: 50 * time.Millisecond}))(t)
	defer func() { must.Do(t, rt.Close(r.ctx)) }()
	p := must.Get(NewPeer(rt))(t)
	c := must.Get(must.Get(p.NewConnReq(r.ctx, r.addr[1], port, nil))(t).Connect(nil))(t)
	r.event(c, Unreachable)
	if !errors.Is(c.Err(), runtime.ErrConnectTimeout) {
		t.Errorf("the cause is %v, want runtime.ErrConnectTimeout", c.Err())
	}
	must.Do(t, c.Close(r.ctx))
	must.Do(t, p.Close())
	err := second(r.peer[0].NewConnReq(r.ctx, r.addr[1], port, &ConnConfig{Timeout: 1}))
	if isCode(t, "a timeout of a nanosecond", err, ErrProvider); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v, want context.DeadlineExceeded", err)
	}
	ended, end := contextEnded()
	defer end()
	if _, err := ep.NextConnReq(ended, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("NextConnReq with a context that has ended returned %v, want its error", err)
	}
}

// Rule: when the device is removed, connections are Lost, and their operations complete with a failure.
func TestDeviceRemoval(t *testing.T) {
	if onDevice() {
		t.Skip("the test removes the software RNIC")
	}
	provider := must.Get(soft.New(soft.Config{}))(t)
	r := bed{"", func(testing.TB) verbs.Provider { return provider }, [2]string{"soft0", "soft1"}}.rig(t)
	c, s := r.connect(nil, nil)
	must.Do(t, c.Recv(r.mr(0, 8, RecvBuf), 0, 8, 5))
	must.Do(t, provider.Remove("soft0"))
	r.event(c, Lost)
	if wc := r.next(c.CQ()); wc.Context != 5 || wc.Err() == nil {
		t.Errorf("the receive completed with %+v, want a failure", wc)
	}
	isCode(t, "a message after the removal", c.Send(nil, 0, 0, CompletionAlways, 1), ErrProvider)
	must.Do(t, c.Close(r.ctx))
	must.Do(t, s.Close(r.ctx))
}

// scenario connects, exchanges messages, writes and flushes, and closes. It returns all errors.
func scenario(p verbs.Provider) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	note := func(what string, e error) bool {
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", what, e))
		}
		return e == nil
	}
	var peers [2]*Peer
	var addrs [2]string
	for i, dev := range []string{"soft0", "soft1"} {
		rt, e := runtime.Open(runtime.Config{Provider: p, Device: dev, ConnectTimeout: time.Second, CQEntries: 256, Spin: -1})
		if !note("opening", e) {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			if e := rt.Close(ctx); e != nil {
				note("closing the runtime", errors.Join(e, rt.Close(ctx)))
			}
		}()
		addrs[i] = rt.Device().Addr[0].String()
		if peers[i], e = NewPeer(rt); !note("a peer", e) {
			return err
		}
	}
	again := func(what string, fn func() error) { // what fails may be closed again
		if e := fn(); e != nil {
			note(what, e)
			_ = fn()
		}
	}
	into, e := peers[1].NewMR(64, WriteDst|FlushVisibility|RecvBuf)
	if !note("memory", e) {
		return err
	}
	defer again("closing memory", into.Close)
	from, e := peers[0].NewMR(64, WriteSrc|SendBuf)
	if !note("memory", e) {
		return err
	}
	defer again("closing memory", from.Close)
	srq, e := peers[1].NewSRQ(&SRQConfig{RQSize: 4})
	if !note("an SRQ", e) {
		return err
	}
	defer again("closing an SRQ", srq.Close)
	ep, e := peers[1].Listen(ctx, addrs[1], "0")
	if !note("listening", e) {
		return err
	}
	defer again("closing an endpoint", func() error { return ep.Close(context.Background()) })
	q, e := peers[0].NewConnReq(ctx, addrs[1], fmt.Sprint(ep.Addr().Port()), &ConnConfig{RCQSize: 4, SharedChannel: true})
	if !note("a request", e) {
		return err
	}
	c, e := q.Connect([]byte("x"))
	if !note("connecting", e) {
		return err
	}
	defer again("closing the client", func() error { return c.Close(context.Background()) })
	late, done := context.WithTimeout(ctx, 200*time.Millisecond)
	defer done()
	var s *Conn
	defer func() { note("the client", unlessClosed(c.Err())) }()
	sq, e := ep.NextConnReq(late, &ConnConfig{SRQ: srq})
	if note("a request at the server", e) {
		note("a receive", srq.Recv(into, 0, 8, 1))
		if s, e = sq.Connect(nil); note("accepting", e) {
			defer again("closing the server", func() error { return s.Close(context.Background()) })
			defer func() {
				for ev := Established; ev == Established; { // until its end, whose reason is then known
					if ev, e = s.NextEvent(late); e != nil {
						break
					}
				}
				note("the server", unlessClosed(s.Err()))
			}()
		}
	}
	if ev, e := c.NextEvent(ctx); !note("an event", e) || ev != Established {
		return err
	}
	desc, e := into.Descriptor()
	note("a descriptor", e)
	dst, e := ParseRemoteMR(desc[:])
	note("a descriptor", e)
	refused := func(what string, wc *WC) error { // a request that the device refused completes with the errno
		if wc.Status != verbs.WCLocQPOpErr {
			return wc.Err()
		}
		return errors.Join(wc.Err(), &verbs.OpError{Op: what, Errno: syscall.Errno(wc.VendorErr)})
	}
	for i, op := range []func(uint64) error{
		func(w uint64) error { return c.Send(from, 0, 8, CompletionAlways, w) },
		func(w uint64) error { return c.Write(dst, 0, from, 0, 64, CompletionAlways, w) },
		func(w uint64) error { return c.Flush(dst, 0, 64, Visibility, CompletionAlways, w) },
		func(w uint64) error { return c.AtomicWrite(dst, 0, [8]byte{}, CompletionAlways, w) },
	} {
		if !note("an operation", op(uint64(i))) {
			return err
		}
		var wc [1]WC
		for {
			if _, _, e := c.Wait(late); !note("waiting", e) {
				if _, e := srq.RCQ().GetWC(wc[:]); e == nil {
					note("the receive", refused("ibv_post_srq_recv", &wc[0]))
				}
				break
			}
			if _, e := c.CQ().GetWC(wc[:]); e == nil {
				note("a completion", refused("ibv_post_send", &wc[0]))
				break
			}
		}
	}
	note("disconnecting", c.Disconnect())
	if s != nil {
		for ev := Established; ev == Established && e == nil; {
			ev, e = s.NextEvent(ctx)
		}
		note("the server's event", e)
	}
	return err
}

// unlessClosed returns err, unless it says that an end has closed the connection.
func unlessClosed(err error) error {
	if errors.Is(err, runtime.ErrPeerClosed) || errors.Is(err, runtime.ErrConnClosed) {
		return nil
	}
	return err
}

// Rule: whichever call of the provider fails, the program gets an error that names it, or goes on, and
// everything can be closed.
func TestNthCallFails(t *testing.T) {
	if onDevice() {
		t.Skip("the test has the calls of the software RNIC fail")
	}
	step := 7 // some of the runs wait for a timeout
	if os.Getenv("VERBENA_NTH") == "all" {
		step = 1
	}
	o := nth.Drive(t, nth.Scenario{Provider: func() (verbs.Provider, error) { return soft.New(soft.Config{}) }, Run: scenario, Step: step})
	t.Log(o)
}
