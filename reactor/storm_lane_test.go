package reactor_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// lane is two reactors that send volleys to and fro, over any of their queue pairs.
type lane struct {
	t     *testing.T
	mode  stormMode
	sides [2]*stormSide
	// events counts the completion events of both sides, hops the tokens that
	// arrived, out the volleys under way. Written by the holders of the sides'
	// turns and by the posters, read by the test.
	events, hops atomic.Uint64
	out          atomic.Int64
	stop         atomic.Bool   // volleys that arrive are taken out; set by end
	gone         chan struct{} // closed when none is left

	seenHops uint64 // by stalled, and when that was
	seenAt   time.Time
}

// stormSide is one reactor of a lane, with its queue pairs. It is the sink of their
// receives.
type stormSide struct {
	lane *lane
	ends []*end
	rng  *rand.Rand // the holder's
	got  int        // tokens of a volley of more than one; the holder's
	// posts takes the volleys for the poster.
	posts chan volley
	done  sync.WaitGroup
}

// volley is tokens to be sent, each after a pause and over a queue.
type volley struct {
	n     int // how many there are; each token says so
	sent  int // of those, already
	pause [stormMost]time.Duration
	queue [stormMost]int
}

// stormMost is the most tokens a volley may have.
const stormMost = 4

// countedChannel counts the events taken.
type countedChannel struct {
	verbs.CompChannel
	n *atomic.Uint64
}

type counted struct {
	verbs.Context
	n *atomic.Uint64
}

func (c *counted) CreateCompChannel() (verbs.CompChannel, error) {
	ch, err := c.Context.CreateCompChannel()
	return &countedChannel{ch, c.n}, err
}

func (c *counted) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	return c.Context.CreateCQ(cqe, ch.(*countedChannel).CompChannel, vector, userData)
}

func (c *countedChannel) GetEvent() (verbs.CQ, bool, error) {
	cq, ok, err := c.CompChannel.GetEvent()
	if ok {
		c.n.Add(1)
	}
	return cq, ok, err
}

func newLane(t *testing.T, b bed, m stormMode, src *rand.PCG) *lane {
	l := &lane{t: t, mode: m, gone: make(chan struct{})}
	qc := reactor.QueueConfig{SendDepth: stormCrowd, RecvDepth: stormCrowd, MaxSGE: 1, Inline: -1}
	for i := range l.sides {
		first := newEnd(t, b.open(t, i), m.cfg, qc, func(c verbs.Context) verbs.Context { return &counted{c, &l.events} })
		s := &stormSide{lane: l, ends: []*end{first}, rng: rand.New(rand.NewPCG(src.Uint64(), src.Uint64())), posts: make(chan volley, m.volleys)}
		for range stormQueues - 1 {
			s.ends = append(s.ends, first.another(t, qc))
		}
		l.sides[i] = s
	}
	for i := range stormQueues {
		a, b := l.sides[0].ends[i], l.sides[1].ends[i]
		a.ready(t, b)
		b.ready(t, a)
	}
	return l
}

// start gives each queue its receives, and the lane its tokens.
func (l *lane) start(t *testing.T) {
	for _, s := range l.sides {
		for i, e := range s.ends {
			for range max(l.mode.volleys, l.mode.most) { // all may take the same way
				check(t, e.q.PostRecv(&reactor.Recv{Sink: s, Tag: uint64(i)}, nil))
			}
		}
		s.done.Go(s.post)
	}
	l.seenAt = time.Now()
	l.out.Store(int64(l.mode.volleys))
	for i := range l.mode.volleys {
		l.sides[i%2].posts <- volley{n: 1}
	}
}

// Complete is the arrival of a token.
func (s *stormSide) Complete(c reactor.Completion, err error) {
	l := s.lane
	if err != nil {
		if !l.stop.Load() && !l.t.Failed() { // after the first the rest is flushed, and the mode may be over
			l.t.Errorf("a receive ended with %v", err)
		}
		return
	}
	l.hops.Add(1)
	try(l.t, s.ends[c.Tag].q.PostRecv(&reactor.Recv{Sink: s, Tag: c.Tag}, nil))
	if n := int(c.Imm); n > 1 {
		if s.got++; s.got < n {
			return
		}
		s.got = 0
	}
	if l.stop.Load() {
		l.takeOut()
		return
	}
	v := volley{n: 1 + s.rng.IntN(l.mode.most)}
	for i := range v.n {
		v.queue[i], v.pause[i] = s.rng.IntN(stormQueues), s.pause()
	}
	if v.pause[0] == 0 && !l.mode.await { // the first goes from the turn
		s.trySend(&v)
	}
	if v.sent < v.n {
		s.posts <- v // has room for all volleys
	}
}

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
	return time.Duration(s.rng.IntN(1 << (1 + s.rng.IntN(stormPauses())))) // ns; of each order of size as many
}

// post is the goroutine that sends after pauses.
func (s *stormSide) post() {
	for v := range s.posts {
		for v.sent < v.n {
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
	if !s.lane.mode.await {
		_, err := q.Post(context.Background(), &token, reactor.Payload{})
		try(s.lane.t, err)
		return
	}
	token.Sink = nil
	f, err := q.PostQuiet(context.Background(), &token, reactor.Payload{})
	if err == nil {
		_, err = f.Await(context.Background())
	}
	try(s.lane.t, err)
}

// trySend is send from the turn, which leaves the token to the poster if there is
// no room.
func (s *stormSide) trySend(v *volley) {
	q, token := s.next(v)
	switch _, err := q.TryPost(&token, reactor.Payload{}); {
	case err == nil:
		v.sent++
	case !errors.Is(err, reactor.ErrQueueFull):
		s.lane.t.Error(err)
	}
}

// next is the next token of a volley, and where it goes.
func (s *stormSide) next(v *volley) (*reactor.Queue, reactor.Send) {
	return s.ends[v.queue[v.sent]].q, reactor.Send{Opcode: verbs.WRSendWithImm, Imm: uint32(v.n), Sink: ignored{}}
}

// ignored is a sink for what shows by itself: a send that fails lets no token
// arrive.
type ignored struct{}

func (ignored) Complete(reactor.Completion, error) {}

func (l *lane) takeOut() {
	if l.out.Add(-1) == 0 {
		close(l.gone)
	}
}

// stalled tells whether the lane stood still for longer than anything takes.
func (l *lane) stalled() bool {
	if n := l.hops.Load(); n != l.seenHops {
		l.seenHops, l.seenAt = n, time.Now()
	}
	return time.Since(l.seenAt) > patience
}

// end takes the volleys out.
func (l *lane) end(t *testing.T) {
	l.stop.Store(true)
	select {
	case <-l.gone:
	case <-time.After(patience):
		t.Fatalf("%d volleys did not arrive: a wake-up was lost\n%s", l.out.Load(), l.report())
	}
	for _, s := range l.sides {
		close(s.posts)
		s.done.Wait()
	}
}

func (l *lane) close(t *testing.T) {
	for _, s := range l.sides {
		for _, e := range s.ends {
			e.closeQueue(t)
		}
		s.ends[0].closeRest(t)
	}
}
