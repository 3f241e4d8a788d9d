package runtime

import (
	"errors"

	"github.com/verbena-rdma/verbena/futures"
)

func init() { nthTopics["pending"] = (*nthPaced).pends }

// pends prepares a Pending at the client and a Pending at the server, connects both and
// closes both connections. The server posts a receive before it connects. After both ends are
// connected, the client sends a message.
func (r *nthPaced) pends() {
	space, all, ok := r.region(r.server, 64, allAccess, 0)
	defer r.give(space)
	ln, err := r.server.ListenOptions(":0", Options{Raw: true})
	if !r.note("listening", err) || !ok {
		return
	}
	_, held, err := r.client.dialing(r.ctx, nil, ln.Addr().String(), Options{Raw: true}, true)
	a, ok := get(r, "preparing to dial", held, err)
	if !ok {
		return
	}
	var b *Conn
	defer func() { r.hangUp(a, b) }()
	seat, err := ln.addWaiter(&ln.prepareWaiters, acceptWaiter{})
	if !r.note("preparing to accept", err) {
		return
	}
	connect := func(c *Conn) futures.Future[*Conn] {
		promise, f := c.rt.conns.New(nil)
		c.sh.r.Defer(func() { c.goOn(promise) })
		return f
	}
	dialed, late := connect(a), nthTimeout
	if r.fab != nil {
		_ = r.pump(func() bool { return seat.Settled() || dialed.Settled() })
	}
	if dialed.Settled() {
		late = nthLate
	}
	// If dialing fails, perhaps no request comes. So errNever is not recorded.
	if b, err = reached(r, seat, late); !errors.Is(err, errNever) {
		r.note("waiting for a request", err)
	}
	if b == nil {
		_, _ = get(r, "dialing", dialed, nil)
		return
	}
	recv, err := b.PostRecv(all)
	posted := r.note("posting the early receive", err)
	_, accepted := get(r, "accepting", connect(b), nil)
	if _, ok := get(r, "dialing", dialed, nil); !ok || !accepted || !posted || recv.Settled() {
		return
	}
	f, err := a.SendBytes(r.ctx, []byte("early"))
	if _, ok := get(r, "sending", f, err); !ok {
		return
	}
	if x, ok := get(r, "the early receive", recv, nil); ok && string(space.Bytes()[:x.Bytes]) != "early" {
		r.wrong("received %q, want %q", space.Bytes()[:x.Bytes], "early")
	}
}
