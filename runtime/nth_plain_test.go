package runtime

import (
	"context"

	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

func init() { nthTopics["plain"] = (*nthPaced).plainly }

// nthPath finds out soon that the other end did not come to be.
var nthPath = bootstrap.Path{Timeout: 10, RetryCount: 1} // 4 ms, once more

// plainly connects two ends without a connection manager, one of which has posted
// a receive before, has each say something, and closes them; a third is only
// prepared.
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
