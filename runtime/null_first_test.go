//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: on iWARP the accepting end of a managed connection may send as soon as Accept has returned it, although a
// device that does not wait for the dialing end by itself (siw) breaks a raw connection whose accepting end does so.
func TestAcceptingEndSendsFirst(t *testing.T) {
	for _, raw := range []bool{false, true} {
		t.Run(fmt.Sprintf("raw %v", raw), func(t *testing.T) {
			a, b := profileBed("siw").connected(t, Config{Conn: Options{Raw: raw}})
			ctx := testContext(t)
			var recv Future
			if raw {
				recv = must.Get(a.PostRecv(bufferOf(t, a.rt, make([]byte, 16)).Slice()))(t)
			}
			f, err := b.SendBytes(ctx, []byte("first"))
			if raw {
				must.Do(t, err)
				if _, err := f.Await(ctx); !errors.As(err, new(*verbs.WCError)) {
					t.Errorf("the first SEND of the accepting end returned %v, want a failed completion", err)
				}
				if _, err := recv.Await(ctx); err == nil {
					t.Error("the message of the accepting end arrived, want a broken connection")
				}
				return
			}
			done(t, f, err)
			m := must.Get(a.RecvWait(ctx))(t)
			if string(m.Data) != "first" {
				t.Errorf("the dialing end received %q, want %q", m.Data, "first")
			}
			release(t, m)
		})
	}
}

// Rule: on iWARP a message arrives even if its sender closes the connection at once, so that the accepting end learns
// of the first frame and of the end together.
func TestDialSendAndCloseOnIWARP(t *testing.T) {
	b := profileBed("siw")
	server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
	ln := must.Get(server.Listen(":0"))(t)
	ctx := testContext(t)
	for range 20 {
		seat := must.Get(ln.AcceptAsync())(t)
		c := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
		f, err := c.SendBytes(ctx, []byte("one"))
		done(t, f, err)
		must.Do(t, c.Close(ctx))
		s := must.Get(seat.Await(ctx))(t)
		m := must.Get(s.RecvWait(ctx))(t)
		release(t, m)
		must.Do(t, s.Close(ctx))
	}
}
