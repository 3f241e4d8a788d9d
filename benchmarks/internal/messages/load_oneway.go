package messages

import (
	"context"
	"errors"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// oneWay is a goroutine that sends and one that receives. A round ends when the last message was received.
type oneWay struct {
	*link
	bed.Lists
	expect chan int      // to the receiver: the messages of a round
	got    chan struct{} // from the receiver: it has them all
}

// newOneWay makes both goroutines, with the messages of lists. receive prepares the receiver, and returns a function that
// receives n messages.
func newOneWay(k *link, lists bed.Lists, receive func(*oneWay) (func(n int) error, error)) (suite.Load, error) {
	l := &oneWay{link: k, Lists: lists, expect: make(chan int), got: make(chan struct{}, 1)}
	do, err := receive(l)
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	l.serve(func() error {
		for n := range l.expect {
			if err := do(n); err != nil {
				return err
			}
			l.got <- struct{}{}
		}
		return verbena.ErrPeerClosed
	})
	return l, nil
}

func (l *oneWay) Round(n int, found rounds.Values) error {
	select {
	case l.expect <- n:
	case err := <-l.broken:
		return err
	}
	if err := l.Counted(found, func() error { return l.Run(l.near, n) }); err != nil {
		return err
	}
	select {
	case <-l.got:
		return nil
	case err := <-l.broken:
		return err
	}
}

// Close implements suite.Load.
func (l *oneWay) Close() error {
	close(l.expect)
	return l.link.Close()
}

// words makes lists of messages of one word.
func words() bed.Lists {
	return bed.NewLists(verbena.SendBytesOp(make([]byte, bed.Word)), listLen, depth)
}

// newManagedOneWay makes a receiver of a managed connection.
func newManagedOneWay(s settings) (suite.Load, error) {
	k, err := connect(s.at, verbena.Options{}, bed.Word)
	if err != nil {
		return nil, err
	}
	return newOneWay(k, words(), receiveManaged)
}

// receiveManaged takes all messages that are there at each wake-up.
func receiveManaged(l *oneWay) (func(int) error, error) {
	ctx := context.Background()
	var ms [listLen]verbena.Message
	return func(n int) error {
		for n > 0 {
			k, err := l.far.RecvMany(ctx, ms[:min(n, len(ms))])
			if err == nil {
				err = verbena.ReleaseMany(ms[:k])
			}
			if err != nil {
				return err
			}
			n -= k
		}
		return nil
	}, nil
}

// writes is the same lists of WRITEs, which need no receiver.
type writes struct {
	*link
	bed.Lists
}

func newWrites(s settings) (suite.Load, error) {
	k, err := connect(s.at, verbena.Options{}, bed.Word)
	if err != nil {
		return nil, err
	}
	return &writes{k, bed.NewLists(verbena.WriteOp(k.Local, k.Remote), listLen, depth)}, nil
}

func (l *writes) Round(n int, found rounds.Values) error {
	return l.Counted(found, func() error { return l.Run(l.near, n) })
}

// channelLoad is a goroutine that receives from a channel with a buffer.
type channelLoad struct {
	in  chan [bed.Word]byte
	got chan struct{}
}

func newChannelOneWay(settings) (suite.Load, error) {
	l := &channelLoad{make(chan [bed.Word]byte, depth), make(chan struct{})}
	go func() {
		defer close(l.got)
		for m := range l.in {
			if m[0] != 0 { // the last of a round
				l.got <- struct{}{}
			}
		}
	}()
	return l, nil
}

func (l *channelLoad) Round(n int, _ rounds.Values) error {
	for range n - 1 {
		l.in <- [bed.Word]byte{}
	}
	l.in <- [bed.Word]byte{1}
	<-l.got
	return nil
}

// Close implements suite.Load.
func (l *channelLoad) Close() error {
	close(l.in)
	<-l.got
	return nil
}
