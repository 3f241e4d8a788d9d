package rpma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// alone makes a software RNIC that reaches nothing outside of it.
func alone() (*soft.Provider, error) {
	return soft.New(soft.Config{Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{
		{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1")}, {Name: "soft1", Addr: netip.MustParseAddr("127.0.0.2")},
	}})
}

// scenario connects, exchanges messages, writes and flushes, and closes. It returns all errors.
func scenario(p verbs.Provider) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
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
	late, done := context.WithTimeout(ctx, 500*time.Millisecond)
	defer done()
	var s *Conn
	defer func() { note("the client", unlessClosed(c.Err())) }()
	sq, e := ep.NextConnReq(late, &ConnConfig{SRQ: srq})
	if note("a request at the server", e) {
		note("a receive", srq.Recv(into, 0, 8, 1))
		if s, e = sq.Connect(nil); note("accepting", e) {
			defer again("closing the server", func() error { return s.Close(context.Background()) })
			defer func() {
				for s.Err() == nil { // until its end, whose reason is then known
					if _, e = s.NextEvent(late); e != nil {
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
	step := 41 // some of the runs wait for a timeout
	if os.Getenv("VERBENA_NTH") == "all" {
		step = 1
	}
	o := nth.Drive(t, nth.Scenario{Provider: func() (verbs.Provider, error) { return alone() }, Run: scenario, Step: step})
	t.Log(o)
}
