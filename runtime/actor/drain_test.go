package actor

import (
	"fmt"
	"testing"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Rule: a graceful stop waits for outstanding operations before it closes the actor's connections:
// operations that wait for room start when there is some, and succeed.
func TestDrainWaitsForOperations(t *testing.T) {
	const ops = 10
	a, _, ln := openPair(t, verbena.Options{RecvCredits: 2})
	w := newWorld(t, Config{Runtime: a})
	served := make(chan *verbena.Conn, 1)
	go func() {
		peer, err := ln.Accept(w.ctx)
		if err != nil {
			t.Error(err)
		}
		served <- peer
	}()
	conn, err := a.Dial(w.ctx, ln.Addr().String())
	w.must("dialing", err)
	peer := wait(w, "the peer", served)
	o := newOwner()
	r := spawn[do](w, Options{}, o)
	began := make(chan struct{})
	w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
		w.must("owning", ctx.Own(conn, 0))
		for i := range uint64(ops) {
			w.must("starting", ctx.Start(conn, i, verbena.SendBytesOp([]byte("x"))))
		}
		ctx.Stop()
		close(began)
	}))
	wait(w, "the handler", began)
	for i := range 2 { // those that had room; the others wait for credits
		o.next(w, fmt.Sprintf("completed %d 0", i))
	}
	if how := r.cell.stop.Load(); how != stopDrain {
		t.Fatalf("it is to stop like %d, want %d", how, stopDrain)
	}
	settle(w, r) // until it has seen the stop
	if err := conn.Err(); err != nil {
		t.Errorf("%d operations wait for room, and the connection takes no more: %v", ops-2, err)
	}
	for range ops {
		m, err := peer.RecvWait(w.ctx)
		w.must("receiving", err)
		w.must("releasing", m.Release())
	}
	for i := 2; i < ops; i++ {
		o.next(w, fmt.Sprintf("completed %d 0", i))
	}
	wait(w, "the end", r.Done())
}
