package reactor_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// stormWire is the minimum delay of a packet on the slow wire, and the maximum of its jitter.
const stormWire = 5 * time.Microsecond

// slowBed is the software RNIC over a wire with delay. In the other beds a send completes within
// the Execute that posts it, and no reactor waits for its event; here it waits, as on a device.
func slowBed(t testing.TB) bed {
	f := fabric.New(fabric.Config{})
	f.SetAll(fabric.Link{Delay: stormWire, Jitter: stormWire})
	p := must.Get(soft.New(soft.Config{Fabric: f}))(t)
	return bed{"slow", func(t testing.TB, dev int) verbs.Context {
		return must.Get(p.Open([...]string{"soft0", "soft1"}[dev]))(t)
	}}
}

// stormDevice is a device of a lane. It delays around arming, counts events and the races that
// occur, and loses what lane.loss selects.
type stormDevice struct {
	verbs.Context
	lane *lane
	rng  *rand.Rand // owned by the holder
	// lost counts the events that might have been lost; every stormLoseOne-th was. The holder owns
	// it.
	lost int
}

// The losses of a lane's devices; bits of lane.loss.
const (
	loseSendEvents uint32 = 1 << iota // one in stormLoseOne events of the send queue
	loseRecvEvents                    // the same of the receive queue
	loseRepolls                       // a completion from before the arming is not polled
)

// stormLoseOne is how many events it takes to lose one.
const stormLoseOne = 20

// userRecvCQ is the UserData that a reactor gives its receive completion queue.
const userRecvCQ = 1

type stormChannel struct {
	verbs.CompChannel
	d *stormDevice
}

func (d *stormDevice) CreateCompChannel() (verbs.CompChannel, error) {
	ch, err := d.Context.CreateCompChannel()
	return &stormChannel{ch, d}, err
}

func (d *stormDevice) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	return d.Context.CreateCQ(cqe, ch.(*stormChannel).CompChannel, vector, userData)
}

// stormDawdle sets how often an arming is delayed: one in stormDawdle, before it (after the last
// poll) or after it (before the loop sleeps). By itself the window is a few hundred nanoseconds,
// and a busy machine hardly ever hits it.
const stormDawdle = 4

// stormDawdleMost bounds the wait for another token, which need not come: this side may be the one
// to send it.
const stormDawdleMost = 200 * time.Microsecond

// Execute posts, arms and polls. If it arms and then finds a completion, it has met the race that
// the poll after arming exists for.
func (d *stormDevice) Execute(t *verbs.IOBatch) error {
	if len(t.Arms) == 0 {
		return d.Context.Execute(t)
	}
	polls := t.Polls
	if d.lane.loss.Load()&loseRepolls != 0 {
		t.Polls = nil
	}
	place := d.rng.IntN(2 * stormDawdle)
	if place == 0 {
		d.dawdle()
	}
	err := d.Context.Execute(t)
	if place == 1 {
		d.dawdle()
	}
	t.Polls = polls
	for i := range polls {
		if polls[i].N > 0 {
			d.lane.met.Add(1)
			break
		}
	}
	return err
}

// dawdle lets other goroutines run: until another token was sent, or stormDawdleMost is over, and
// then for a pause.
func (d *stormDevice) dawdle() {
	before := d.lane.sent.Load()
	began := time.Now()
	for d.lane.sent.Load() == before && time.Since(began) < stormDawdleMost {
		runtime.Gosched()
	}
	for took, began := stormPause(d.rng), time.Now(); ; {
		if runtime.Gosched(); time.Since(began) >= took {
			return
		}
	}
}

func (c *stormChannel) GetEvent() (verbs.CQ, bool, error) {
	for {
		cq, ok, err := c.CompChannel.GetEvent()
		if !ok {
			return cq, ok, err
		}
		c.d.lane.events.Add(1)
		kind := loseSendEvents
		if cq.UserData() == userRecvCQ {
			kind = loseRecvEvents
		}
		if c.d.lane.loss.Load()&kind == 0 {
			return cq, ok, err
		}
		if c.d.lost++; c.d.lost%stormLoseOne != 0 {
			return cq, ok, err
		}
		cq.AckEvents(1) // the reactor does not see this event
	}
}

// lane is two reactors that send volleys to each other, over any of their queue pairs.
type lane struct {
	t     *testing.T
	mode  stormMode
	sides [2]*stormSide
	// events counts the completion events of both sides, met the passes that armed and then found a
	// completion, hops the tokens that arrived, sent and done the sends submitted and completed,
	// out the volleys in transit. The holders of the sides' turns and the posters write them; the
	// test and the posters read them.
	events, met, hops, sent, done atomic.Uint64
	out                           atomic.Int64
	isDone                        chan struct{} // has a value after done or hops grew
	loss                          atomic.Uint32 // losses of the lane's devices; set by the test
	stop                          atomic.Bool   // arriving volleys are removed; set by end
	gone                          chan struct{} // closed when no volley is left

	seenHops uint64 // last seen by stalled, and when it changed
	seenAt   time.Time
}

// stormSide is one reactor of a lane, with its queue pairs. It is the sink of their receives.
type stormSide struct {
	lane *lane
	ends []*end
	rng  *rand.Rand // owned by the holder
	// tokens that arrived of the current volley, if it has more than one; owned by the holder
	got int
	// posts passes the volleys to the poster.
	posts chan volley
	done  sync.WaitGroup
}

// volley is a set of tokens to be sent, each after a pause and over a queue.
type volley struct {
	n     int // number of tokens; each token carries it
	sent  int // how many of those were sent
	pause [stormMost]time.Duration
	queue [stormMost]int
	// alone makes the token wait until all earlier tokens of the lane have arrived and all sends
	// have completed, which only their own events can have reported. So it arrives when the peer is
	// about to arm again.
	alone [stormMost]bool
}

// stormMost is the maximum number of tokens in a volley.
const stormMost = 4

func newLane(t *testing.T, b bed, m stormMode, src *rand.PCG) *lane {
	l := &lane{t: t, mode: m, isDone: make(chan struct{}, 1), gone: make(chan struct{})}
	qc := reactor.QueueConfig{SendDepth: stormCrowd, RecvDepth: stormCrowd, MaxSGE: 1, Inline: -1}
	for i := range l.sides {
		first := newEnd(t, b.open(t, i), m.cfg, qc, func(c verbs.Context) verbs.Context {
			return &stormDevice{Context: c, lane: l, rng: rand.New(rand.NewPCG(src.Uint64(), src.Uint64()))}
		})
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

// start posts the receives of each queue and sends the first tokens.
func (l *lane) start(t *testing.T) {
	for _, s := range l.sides {
		for i, e := range s.ends {
			for range max(l.mode.volleys, l.mode.most) { // all may take the same queue
				must.Do(t, e.q.PostRecv(&reactor.Recv{Sink: s, Tag: uint64(i)}, nil, reactor.Block))
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

// Complete handles the arrival of a token.
func (s *stormSide) Complete(_ reactor.SinkContext, c reactor.Completion, err error) {
	l := s.lane
	if err != nil {
		// after the first error the rest is flushed, and the mode may be over
		if !l.stop.Load() && !l.t.Failed() {
			l.t.Errorf("a receive ended with %v", err)
		}
		return
	}
	l.hops.Add(1)
	l.look()
	try(l.t, s.ends[c.Tag].q.PostRecv(&reactor.Recv{Sink: s, Tag: c.Tag}, nil, reactor.Block))
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
		v.queue[i], v.pause[i], v.alone[i] = s.rng.IntN(stormQueues), s.pause(), l.mode.alone && s.rng.IntN(2) == 0
	}
	if v.pause[0] == 0 && !l.mode.await && !v.alone[0] { // the first goes out from the sink
		s.trySend(&v)
	}
	if v.sent < v.n {
		s.posts <- v // has room for all volleys
	}
}

func (l *lane) takeOut() {
	if l.out.Add(-1) == 0 {
		close(l.gone)
	}
}

// stalled reports whether the lane has made no progress for longer than patience.
func (l *lane) stalled() bool {
	if n := l.hops.Load(); n != l.seenHops {
		l.seenHops, l.seenAt = n, time.Now()
	}
	return time.Since(l.seenAt) > patience
}

// end removes all volleys from the lane.
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
