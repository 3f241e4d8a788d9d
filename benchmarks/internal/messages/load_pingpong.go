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
	trip func() error
}

// newPings makes the goroutine at the far end, which answers with answer, and the round trip of the near end.
func newPings(at bed.Place, answer func(ctx context.Context, far *verbena.Conn) error, trip func(ctx context.Context, near *verbena.Conn, op *verbena.Op) error) (suite.Load, error) {
	k, err := connect(at, verbena.Options{}, 0)
	if err != nil {
		return nil, err
	}
	ctx, op := context.Background(), verbena.SendBytesOp(make([]byte, bed.Word))
	l := &pings{link: k, trip: func() error { return trip(ctx, k.near, &op) }}
	l.serve(func() error {
		for {
			if err := answer(ctx, l.far); err != nil {
				return err
			}
		}
	})
	return l, nil
}

func (l *pings) Round(n int, found rounds.Values) error { return trips(&l.took, n, found, l.trip) }

// newManagedPings starts the messages, and has the wait for the next one post them.
func newManagedPings(s settings) (suite.Load, error) { return newPings(s.at, bed.Answer, bed.Exchange) }

// newCalls uses Call and Reply.
func newCalls(s settings) (suite.Load, error) {
	return newPings(s.at, func(ctx context.Context, far *verbena.Conn) error {
		m, err := far.RecvWait(ctx)
		if err != nil {
			return err
		}
		op := verbena.SendBytesOp(m.Data)
		return m.Reply(ctx, &op)
	}, func(ctx context.Context, near *verbena.Conn, op *verbena.Op) error {
		m, err := near.Call(ctx, op)
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
	work       time.Duration // the processor time that each end uses in a round trip
	took       suite.Samples
}

func newChannelPings(settings) (suite.Load, error) { return newChannelPair(0), nil }

// endWork is about half of a round trip of managedPings, without the hand-over.
const endWork = 1500 * time.Nanosecond

// newWorkedPings shows what Go's scheduler does to two goroutines that hand over as seldom as those of managedPings.
func newWorkedPings(settings) (suite.Load, error) { return newChannelPair(endWork), nil }

func newChannelPair(work time.Duration) *channelPair {
	l := &channelPair{ping: make(chan [bed.Word]byte), pong: make(chan [bed.Word]byte), work: work}
	go func() {
		defer close(l.pong)
		for m := range l.ping {
			l.compute()
			l.pong <- m
		}
	}()
	return l
}

// compute uses the processor for the time l.work.
func (l *channelPair) compute() {
	if l.work > 0 {
		for began := time.Now(); time.Since(began) < l.work; {
		}
	}
}

func (l *channelPair) Round(n int, found rounds.Values) error {
	return trips(&l.took, n, found, func() error {
		l.ping <- [bed.Word]byte{}
		<-l.pong
		l.compute()
		return nil
	})
}

// Close implements suite.Load.
func (l *channelPair) Close() error {
	close(l.ping)
	<-l.pong
	return nil
}
