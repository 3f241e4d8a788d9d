package reactor_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// pause is how long to wait with a token: seldom until the peer sleeps soundly,
// often not at all, as a rule about as long as it takes the peer to hear of the
// one before, to poll, to arm and to lie down.
func (s *stormSide) pause() time.Duration {
	atOnce := 1 << 8
	if s.lane.mode.volleys > 1 { // who is in a crowd has others before and behind
		atOnce = 1<<10 - 1<<7
	}
	switch n := s.rng.IntN(1 << 10); {
	case n == 0:
		return time.Millisecond
	case n < atOnce:
		return 0
	}
	return stormPause(s.rng)
}

// stormPause is a pause, of each order of size as many.
func stormPause(rng *rand.Rand) time.Duration {
	return time.Duration(rng.IntN(1 << (1 + rng.IntN(stormPauses())))) // ns
}

// post is the goroutine that sends after pauses.
func (s *stormSide) post() {
	for v := range s.posts {
		for v.sent < v.n {
			if v.alone[v.sent] {
				s.lane.allDone()
			}
			if d := v.pause[v.sent]; d >= time.Millisecond {
				<-time.After(d)
			} else {
				for began := time.Now(); time.Since(began) < d; {
				}
			}
			s.send(&v)
			runtime.Gosched() // so that the loop posts it before the pause, not after
		}
	}
}

// send sends the next token of a volley, from the poster. It waits for room: a
// token may be back before the completion of its sending was taken.
func (s *stormSide) send(v *volley) {
	q, token := s.next(v)
	v.sent++
	s.lane.sent.Add(1)
	if !s.lane.mode.await {
		_, err := q.Submit(context.Background(), &token, &reactor.Payload{}, reactor.Wait)
		try(s.lane.t, err)
		return
	}
	token.Sink = nil
	f, err := q.Submit(context.Background(), &token, &reactor.Payload{}, reactor.Quiet)
	if err == nil {
		_, err = f.Await(context.Background())
	}
	try(s.lane.t, err)
	sending{s.lane}.Complete(reactor.Turn{}, reactor.Completion{}, err)
}

// trySend is send from the turn, which leaves the token to the poster if there is
// no room.
func (s *stormSide) trySend(v *volley) {
	q, token := s.next(v)
	s.lane.sent.Add(1)
	switch _, err := q.Submit(context.Background(), &token, &reactor.Payload{}, reactor.Try); {
	case err == nil:
		v.sent++
		return
	case !errors.Is(err, reactor.ErrQueueFull):
		s.lane.t.Error(err)
	}
	s.lane.sent.Add(^uint64(0))
}

// allDone waits until all tokens of the lane have arrived and their sends have
// completed. In a lane with one volley no more can be submitted meanwhile: the volley
// is here.
func (l *lane) allDone() {
	for l.done.Load() < l.sent.Load() || l.hops.Load() < l.sent.Load() {
		<-l.isDone
	}
}

// look has who waits look again.
func (l *lane) look() {
	select {
	case l.isDone <- struct{}{}:
	default: // it will anyway
	}
}

// next is the next token of a volley, and where it goes.
func (s *stormSide) next(v *volley) (*reactor.Queue, reactor.Send) {
	return s.ends[v.queue[v.sent]].q, reactor.Send{Opcode: verbs.WRSendWithImm, Imm: uint32(v.n), Sink: sending{s.lane}}
}

// sending takes the completion of a token's sending. Whether it failed shows by itself:
// then no token arrives.
type sending struct{ l *lane }

func (s sending) Complete(reactor.Turn, reactor.Completion, error) {
	s.l.done.Add(1)
	s.l.look()
}
