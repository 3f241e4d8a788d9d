package rpma

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a connection carries private data both ways, unchanged, and both ends end it in either order:
// each gets Closed once, and Disconnect works before and after that.
func TestContract9DisconnectInEitherOrder(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		ep, port := r.listen()
		for _, first := range []string{"client", "server", "both"} {
			c, s := r.connectTo(ep, port, nil, nil)
			ends := []*Conn{c, s}
			if first == "server" {
				ends = []*Conn{s, c}
			}
			r.ok(ends[0].Disconnect())
			if first == "both" {
				r.ok(ends[1].Disconnect())
			}
			r.event(ends[1], Closed)
			r.event(ends[0], Closed)
			for _, e := range ends { // after Closed, and twice
				r.ok(e.Disconnect())
				r.ok(e.Disconnect())
				if _, err := e.TryNextEvent(); !errors.Is(err, ErrNoEvent) {
					t.Errorf("after Closed there is another event, or the error %v", err)
				}
				r.ok(e.Close(r.ctx))
				r.ok(e.Close(r.ctx))
				isCode(t, "Disconnect after Close", e.Disconnect(), ErrInvalid)
				if ev, err := e.NextEvent(r.ctx); ev != Undefined || !errors.Is(err, verbs.ErrClosed) {
					t.Errorf("NextEvent after Close is %v, %v; want Undefined and verbs.ErrClosed", ev, err)
				}
			}
		}
	})
}

// Rule: the end that disconnects gets Closed, however early it does. (It got Lost if Disconnect came between
// Established and the wait for the end.)
func TestDisconnectAtOnceIsClosed(t *testing.T) {
	r := newRig(t)
	ep, port := r.listen()
	rounds := 200
	if onDevice() {
		rounds = 10 // the race is not the device's
	}
	for range rounds {
		q := must.Get(r.peer[0].NewConnReq(r.ctx, r.addr[1], port, nil))(t)
		c := must.Get(q.Connect(nil))(t)
		s := must.Get(must.Get(ep.NextConnReq(r.ctx, nil))(t).Connect(nil))(t)
		for s.Disconnect() != nil && r.ctx.Err() == nil {
			// ENOTCONN before the connection is established. Without a pause, to come right behind that.
		}
		r.ok(s.Disconnect())
		r.event(s, Established)
		r.event(s, Closed)
		must.Do(t, errors.Join(s.Close(r.ctx), c.Close(r.ctx)))
	}
}
