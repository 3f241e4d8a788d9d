//go:build !race

package runtime

import (
	"context"
	"testing"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: if a message is sent and received on a raw connection, neither end allocates memory. This holds
// for a receive of the connection and for a shared receive.
func TestRawReceivesAllocateNothing(t *testing.T) { onBeds(t, rawReceivesAllocateNothing) }

func rawReceivesAllocateNothing(t *testing.T, d bed) {
	a, b := d.connected(t, Config{Conn: Options{Raw: true}})
	into := mine(t, b.rt)
	batch := b.Batch()
	exchanges(t, a, func() (futures.Future[Result], error) {
		f, err := batch.Start(context.Background(), new(PostRecvOp(into)))
		batch.Flush()
		return f, err
	})

	s, _, clients := sharing(t, d, 4, 1)
	into = mine(t, s.rt)
	exchanges(t, clients[0], func() (futures.Future[Arrival], error) { return s.PostRecv(into) })
}

// exchanges() checks that an exchange allocates nothing. An exchange has three steps: post() posts a
// receive, from.Do sends a message, and the message settles the future of the receive.
func exchanges[T any](t *testing.T, from *Conn, post func() (futures.Future[T], error)) {
	t.Helper()
	ctx := context.Background() // not testContext, whose timer would count as an allocation
	out := mine(t, from.rt)
	exchange := func() {
		f, err := post()
		if err == nil {
			_, err = from.Do(ctx, new(SendOp(out)))
		}
		if err == nil {
			_, err = f.Await(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	runs := 1000
	if onDevice {
		runs = deviceAllocOps
	}
	if n := testing.AllocsPerRun(runs, exchange); n >= 0.5 {
		t.Errorf("an exchange made %v allocations, want 0", n)
	}
}

// mine() returns a slice of 8 bytes of a new region.
func mine(t *testing.T, rt *Runtime) Slice {
	t.Helper()
	r := must.Get(rt.NewRegion(8, verbs.AccessLocalWrite))(t)
	t.Cleanup(func() { mustClose(t, r) })
	return must.Get(r.Slice(0, 8))(t)
}
