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

// stormWire is what a packet takes on a wire that takes time, at least, and at most as
// long again.
const stormWire = 5 * time.Microsecond

// slowBed is the software RNIC over a wire that takes time. On the others a send
// completes within the turn that posts it, and no reactor ever waits for the event of
// one; here it does, as on a device.
func slowBed(t testing.TB) bed {
	f := fabric.New(fabric.Config{})
	f.SetAll(fabric.Link{Delay: stormWire, Jitter: stormWire})
	p := must.Get(soft.New(soft.Config{Fabric: f}))(t)
	return bed{"slow", func(t testing.TB, dev int) verbs.Context {
		return must.Get(p.Open([...]string{"soft0", "soft1"}[dev]))(t)
	}}
}

// stormDevice is a device of a lane: it takes its time around arming, counts events and
// the races that are met, and loses what it is told to.
type stormDevice struct {
	verbs.Context
	lane *lane
	rng  *rand.Rand // the holder's
	// lost are events that might have been lost, every stormLoseOne-th was; the holder's.
	lost int
}

// What a lane's devices may lose; bits of lane.loss.
const (
	loseSendEvents uint32 = 1 << iota // one in stormLoseOne of those of the send queue
	loseRecvEvents                    // of the receive queue
	loseRepolls                       // what was completed before a queue was armed stays there
)

// stormLoseOne is that one event in so many is lost.
const stormLoseOne = 20

// userRecvCQ is the UserData that a reactor gives its receive queue.
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

// stormDawdle is that around one arming in so many others are let run: before it, after
// the last poll, or behind it, before the reactor lies down. Of itself the window is a
// few hundred nanoseconds wide, and on a busy machine hardly ever met.
const stormDawdle = 4

// stormDawdleMost bounds the wait for another token, which need not come: this side may
// be the one to send it.
const stormDawdleMost = 200 * time.Microsecond

// Turn posts, arms and polls; a turn that armed and then found something has met the
// race for which there is a poll after arming.
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

// dawdle lets others run: until another token was sent, at most as long as that may
// take, and then for a pause.
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
		cq.AckEvents(1) // nobody else will
	}
}

// lane is two reactors that send volleys to and fro, over any of their queue pairs.
type lane struct {
	t     *testing.T
	mode  stormMode
	sides [2]*stormSide
	// events counts the completion events of both sides, met the turns that armed and
	// then found a completion, hops the tokens that arrived, sent and done the sends
	// submitted and completed, out the volleys under way. Written by the holders of
	// the sides' turns and by the posters, read by the test and the posters.
	events, met, hops, sent, done atomic.Uint64
	out                           atomic.Int64
	isDone                        chan struct{} // has a value after done or hops went up
	loss                          atomic.Uint32 // what the lane's devices lose; the test's
	stop                          atomic.Bool   // volleys that arrive are taken out; set by end
	gone                          chan struct{} // closed when none is left

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
	// alone says that the token waits until every one of the lane before it has arrived,
	// and every send has completed: then nothing but their own events could have told
	// so. It comes when the peer is about to arm again.
	alone [stormMost]bool
}

// stormMost is the most tokens a volley may have.
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

// start gives each queue its receives, and the lane its tokens.
func (l *lane) start(t *testing.T) {
	for _, s := range l.sides {
		for i, e := range s.ends {
			for range max(l.mode.volleys, l.mode.most) { // all may take the same way
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

// Complete is the arrival of a token.
func (s *stormSide) Complete(_ reactor.SinkContext, c reactor.Completion, err error) {
	l := s.lane
	if err != nil {
		if !l.stop.Load() && !l.t.Failed() { // after the first the rest is flushed, and the mode may be over
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
	if v.pause[0] == 0 && !l.mode.await && !v.alone[0] { // the first goes from the turn
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
