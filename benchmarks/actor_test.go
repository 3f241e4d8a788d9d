package main

import (
	"context"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime/actor"
)

// mailboxSize is the size of the actor's mailbox and of the channel compared with it.
const mailboxSize = 1024

// asking is a message to the actor of these benchmarks: a number to add, the end of a block, or a
// question.
type asking struct {
	n     uint64
	last  bool
	reply actor.Reply[uint64]
}

// adder adds numbers, and signals the end of a block.
type adder struct {
	sum  uint64
	done chan struct{}
}

func (a *adder) Receive(_ *actor.Context[asking], m asking) {
	a.sum += m.n
	m.reply.Send(a.sum)
	if m.last {
		a.done <- struct{}{}
	}
}

// spawnAdder makes a system with one actor.
func spawnAdder(b *testing.B) (actor.Ref[asking], *adder) {
	b.Helper()
	sys := must.Get(actor.New(actor.Config{}))(b)
	b.Cleanup(func() {
		if err := sys.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	a := &adder{done: make(chan struct{}, 1)}
	ref := must.Get(actor.Spawn(sys, actor.Options{Mailbox: mailboxSize, Overflow: actor.Wait}, func() actor.Handler[asking] { return a }))(b)
	return ref, a
}

// BenchmarkTell measures Tell to one actor, beside a buffered channel of the same messages to one
// goroutine. Both run until the last message is handled.
func BenchmarkTell(b *testing.B) {
	ref, a := spawnAdder(b)
	ctx := context.Background()
	in, done := make(chan asking, mailboxSize), make(chan struct{})
	defer close(in)
	go func() {
		h := &adder{done: done}
		for m := range in {
			h.Receive(nil, m)
		}
	}()
	beside(b, "chan", 0, func(n int) {
		for i := range n {
			if err := ref.Tell(ctx, asking{n: 1, last: i == n-1}); err != nil {
				b.Fatal(err)
			}
		}
		<-a.done
	}, func(n int) {
		for i := range n {
			in <- asking{n: 1, last: i == n-1}
		}
		<-done
	})
}

// BenchmarkAsk measures a question and its answer, one after the other, beside a ping-pong of two
// goroutines over channels.
func BenchmarkAsk(b *testing.B) {
	ref, _ := spawnAdder(b)
	ctx := context.Background()
	ping, pong := make(chan uint64), make(chan uint64)
	defer close(ping)
	go func() {
		sum := uint64(0)
		for n := range ping {
			sum += n
			pong <- sum
		}
	}()
	question := func(r actor.Reply[uint64]) asking { return asking{n: 1, reply: r} }
	beside(b, "chan", 0, func(n int) {
		for range n {
			if _, err := actor.AskWait(ctx, ref, question); err != nil {
				b.Fatal(err)
			}
		}
	}, func(n int) {
		for range n {
			ping <- 1
			<-pong
		}
	})
}
