package messages

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// receives is how many receives a raw connection has posted: eight times as many as messages are outstanding, so that a
// sender that waits for them waits seldom.
const receives = 8 * depth

// newRawOneWay makes a receiver that posts each receive again in its sink, and counts them for the sender: a sender
// that is faster would meet no receive, and the device would make it wait.
func newRawOneWay(s settings) (suite.Load, error) {
	k, err := connect(s.at, verbena.Options{Raw: true, RecvCredits: receives}, bed.Word)
	if err != nil {
		return nil, err
	}
	return newOneWay(k, words(), func(l *oneWay) (func(int) error, error) {
		region, err := l.There.NewRegion(bed.Word, verbs.AccessLocalWrite)
		if err != nil {
			return nil, err
		}
		at, err := region.Slice(0, bed.Word)
		if err != nil {
			return nil, err
		}
		r := &rawReceiver{
			conn: l.far, op: verbena.PostRecvOp(at),
			more: make(chan struct{}, 1), all: make(chan struct{}, 1), broken: make(chan error, receives),
		}
		for range receives {
			if err := r.post(); err != nil {
				return nil, err
			}
		}
		l.Room = r.room
		return r.receive, nil
	})
}

// rawReceiver is the sink of the receives of a raw connection.
type rawReceiver struct {
	conn *verbena.Conn
	op   verbena.Op
	sent int64 // the sender's

	// received counts receives that were posted again. The sink writes it; the sender and the receiver read it.
	received atomic.Int64
	// expected is the value of received at the end of the round. The receiver writes it, and then reads received; the
	// sink writes received, and then reads expected. So one of them sees the end.
	expected atomic.Int64
	more     chan struct{} // to the sender: half of the receives were posted again
	all      chan struct{} // to the receiver: received was expected
	broken   chan error    // has room for the errors of all receives
}

func (r *rawReceiver) post() error { return r.conn.TryStartTo(&r.op, r, 0) }

// room waits until there are receives for n more messages.
func (r *rawReceiver) room(n int) {
	for r.sent += int64(n); r.sent-r.received.Load() > receives; {
		select {
		case <-r.more:
		case err := <-r.broken:
			r.broken <- err // the receiver returns it
			return
		}
	}
}

// receive receives n messages.
func (r *rawReceiver) receive(n int) error {
	for end := r.expected.Add(int64(n)); r.received.Load() < end; {
		select {
		case <-r.all:
		case err := <-r.broken:
			return err
		}
	}
	return nil
}

// Complete implements verbena.Sink.
func (r *rawReceiver) Complete(_ verbena.SinkContext, _ verbena.Result, err error) {
	if err == nil {
		err = r.post()
	}
	if err != nil {
		r.broken <- err
		return
	}
	n := r.received.Add(1)
	if n%(receives/2) == 0 {
		signal(r.more)
	}
	if n == r.expected.Load() {
		signal(r.all)
	}
}

// signal sends on c unless a signal is in it already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
