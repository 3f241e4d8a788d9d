package messages

import (
	"context"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/runtime/actor"
)

// mailboxLen is the size of the actor's mailbox, and of the channel compared with it.
const mailboxLen = 1024

// number is a message: a number to add, and perhaps a question for the sum.
type number struct {
	n     uint64
	reply actor.Reply[uint64]
}

// adder adds numbers. It signals when it has added as many as a round has.
type adder struct {
	sum, until uint64
	done       chan struct{}
}

// Receive implements actor.Handler.
func (a *adder) Receive(_ *actor.Context[number], m number) {
	a.sum += m.n
	m.reply.Send(a.sum)
	a.until -= m.n
	if a.until == 0 {
		a.done <- struct{}{}
	}
}

// actors is a system with one actor, and goroutines that send to it.
type actors struct {
	sys     *actor.System
	ref     actor.Ref[number]
	to      *adder
	senders int
	took    suite.Samples
}

func newActors(senders int) (*actors, error) {
	sys, err := actor.New(actor.Config{})
	if err != nil {
		return nil, err
	}
	l := &actors{sys: sys, to: &adder{done: make(chan struct{}, 1)}, senders: senders}
	l.ref, err = actor.Spawn(sys, actor.Options{Mailbox: mailboxLen, Overflow: actor.Wait}, func() actor.Handler[number] { return l.to })
	return l, err
}

// Close implements suite.Load.
func (l *actors) Close() error { return l.sys.Close(context.Background()) }

// telling is goroutines that tell.
type telling struct{ *actors }

func newTells(s settings) (suite.Load, error) {
	l, err := newActors(s.senders)
	return telling{l}, err
}

func (l telling) Round(n int, found rounds.Values) error {
	ctx := context.Background()
	return spread(l.senders, n, &l.to.until, l.to.done, func() error { return l.ref.Tell(ctx, number{n: 1}) })
}

// spread has senders call send n times in all, and waits until the receiver has done that much. until is set before
// the first call.
func spread(senders, n int, until *uint64, done <-chan struct{}, send func() error) error {
	*until = uint64(n)
	if err := suite.Spread(senders, n, send); err != nil {
		return err
	}
	<-done
	return nil
}

// channelActor is a goroutine that adds the numbers of a channel with a buffer.
type channelActor struct {
	in      chan number
	to      adder
	senders int
	ended   chan struct{}
}

func newChannelTells(s settings) (suite.Load, error) {
	l := &channelActor{in: make(chan number, mailboxLen), to: adder{done: make(chan struct{}, 1)}, senders: s.senders, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for m := range l.in {
			l.to.Receive(nil, m)
		}
	}()
	return l, nil
}

func (l *channelActor) Round(n int, _ rounds.Values) error {
	return spread(l.senders, n, &l.to.until, l.to.done, func() error {
		l.in <- number{n: 1}
		return nil
	})
}

// Close implements suite.Load.
func (l *channelActor) Close() error {
	close(l.in)
	<-l.ended
	return nil
}

// asking is a goroutine that asks and waits.
type asking struct{ *actors }

func newAsks(settings) (suite.Load, error) {
	l, err := newActors(1)
	return asking{l}, err
}

func (l asking) Round(n int, found rounds.Values) error {
	ctx := context.Background()
	question := func(r actor.Reply[uint64]) number { return number{reply: r} }
	l.to.until = 1 // never reached
	return trips(&l.took, n, found, func() error {
		_, err := actor.AskWait(ctx, l.ref, question)
		return err
	})
}
