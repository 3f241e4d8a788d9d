package messages

import (
	"context"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// pings is a goroutine that sends a message and waits for the answer.
type pings struct {
	*link
	took suite.Samples
}

func newManagedPings(s settings) (suite.Load, error) {
	k, err := connect(s.at, verbena.Options{}, 0)
	if err != nil {
		return nil, err
	}
	l := &pings{link: k}
	l.serve(l.echo)
	return l, nil
}

// echo answers each message with one of the same text.
func (l *pings) echo() error {
	ctx := context.Background()
	for {
		if err := bed.Answer(ctx, l.far); err != nil {
			return err
		}
	}
}

func (l *pings) Round(n int, found rounds.Values) error {
	ctx, op := context.Background(), verbena.SendBytesOp(make([]byte, bed.Word))
	return trips(&l.took, n, found, func() error { return bed.Exchange(ctx, l.near, &op) })
}

// calls is a goroutine that calls, and one that replies.
type calls struct {
	*link
	took suite.Samples
}

func newCalls(s settings) (suite.Load, error) {
	k, err := connect(s.at, verbena.Options{}, 0)
	if err != nil {
		return nil, err
	}
	l := &calls{link: k}
	l.serve(func() error {
		ctx := context.Background()
		for {
			m, err := l.far.RecvWait(ctx)
			if err != nil {
				return err
			}
			op := verbena.SendBytesOp(m.Data)
			if err := m.Reply(ctx, &op); err != nil {
				return err
			}
		}
	})
	return l, nil
}

func (l *calls) Round(n int, found rounds.Values) error {
	ctx, op := context.Background(), verbena.SendBytesOp(make([]byte, bed.Word))
	return trips(&l.took, n, found, func() error {
		m, err := l.near.Call(ctx, &op)
		if err != nil {
			return err
		}
		return m.Release()
	})
}

// trips does n round trips, and reports the percentiles of their times.
func trips(took *suite.Samples, n int, found rounds.Values, trip func() error) error {
	took.Room(n)
	for range n {
		t := time.Now()
		if err := trip(); err != nil {
			return err
		}
		*took = append(*took, time.Since(t))
	}
	took.Report(found)
	return nil
}

// channelPair is a goroutine that answers over channels.
type channelPair struct {
	ping, pong chan [bed.Word]byte
	took       suite.Samples
}

func newChannelPings(settings) (suite.Load, error) {
	l := &channelPair{ping: make(chan [bed.Word]byte), pong: make(chan [bed.Word]byte)}
	go func() {
		defer close(l.pong)
		for m := range l.ping {
			l.pong <- m
		}
	}()
	return l, nil
}

func (l *channelPair) Round(n int, found rounds.Values) error {
	return trips(&l.took, n, found, func() error {
		l.ping <- [bed.Word]byte{}
		<-l.pong
		return nil
	})
}

// Close implements suite.Load.
func (l *channelPair) Close() error {
	close(l.ping)
	<-l.pong
	return nil
}
