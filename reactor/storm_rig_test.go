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

// stormWire is the delay of each packet on the slow wire, and the maximum of the jitter added to
// it.
const stormWire = 5 * time.Microsecond

// slowBed returns the software RNIC over a wire with delay. Without the delay a send completes
// within the Execute that posts it, and no reactor waits for its event. With it the reactor waits,
// as on a device.
func slowBed(t testing.TB) bed {
	f := fabric.New(fabric.Config{})
	f.SetAll(fabric.Link{Delay: stormWire, Jitter: stormWire})
	p := must.Get(soft.New(soft.Config{Fabric: f}))(t)
	return bed{"slow", func(t testing.TB, dev int) verbs.Context {
		return must.Get(p.Open([...]string{"soft0", "soft1"}[dev]))(t)
	}}
}

// stormDevice is the device of one side of a lane (two connected reactors). It delays some armings,
// counts events and races, and drops the events or polls that lane.loss selects.
type stormDevice struct {
	verbs.Context
	lane *lane
	rng  *rand.Rand // owned by the holder
	// lost counts the events that lane.loss selected; every stormLoseOne-th of them is dropped. The
	// holder owns it.
	lost int
}

// The losses of a lane's devices; bits of lane.loss.
const (
	loseSendEvents uint32 = 1 << iota // one in stormLoseOne events of the send completion queue
	loseRecvEvents                    // one in stormLoseOne events of the receive completion queue
	loseRepolls                       // the poll after the arming
)

// Of every stormLoseOne events that lane.loss selects, one is lost.
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

// One in stormDawdle armings is delayed, either before it (after the last poll) or after it (before
// the loop sleeps). Without the delay the window for a race is a few hundred nanoseconds, and a
// busy machine hardly ever hits it.
const stormDawdle = 4

// stormDawdleMost limits how long dawdle waits for another token. That token may never come,
// because this side may be the one that must send it.
const stormDawdleMost = 200 * time.Microsecond

// Execute posts, arms and polls. A completion that it finds after arming came between the last poll
// and the arming. This is the race for which the poll after arming exists.
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

// dawdle lets other goroutines run until another token was sent, but for at most stormDawdleMost,
// and then for a random pause.
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

// lane is two reactors that send volleys (groups of tokens) to each other, over any of their queue
// pairs. A token is a message without content.
type lane struct {
	t     *testing.T
	mode  stormMode
	sides [2]*stormSide
	// Counters. events: completion events of both sides; met: passes that armed and then found a
	// completion; hops: tokens that arrived; sent: sends submitted; done: sends completed; out:
	// volleys in transit. The holders of the sides' turns and the posters (the goroutines of the
	// method post) write them; the test and the posters read them.
	events, met, hops, sent, done atomic.Uint64
	out                           atomic.Int64
	isDone                        chan struct{} // has a value after done or hops grew
	loss                          atomic.Uint32 // losses of the lane's devices; set by the test
	stop                          atomic.Bool   // arriving volleys are removed; set by the test
	gone                          chan struct{} // closed when no volley is left

	seenHops uint64    // the value of hops that stalled last saw
	seenAt   time.Time // when stalled first saw this value
}

// stormSide is one reactor of a lane, with its queue pairs. It is the sink of their receives.
type stormSide struct {
	lane *lane
	ends []*end
	rng  *rand.Rand // owned by the holder
	// got counts the tokens of the current volley that arrived, if it has more than one; owned by
	// the holder
	got int
	// posts passes volleys to the poster.
	posts chan volley
	done  sync.WaitGroup
}

// volley is a group of tokens to be sent one after the other, each after its pause and over its
// queue.
type volley struct {
	n     int // number of tokens; each token carries it
	sent  int // how many of those were sent
	pause [stormMost]time.Duration
	queue [stormMost]int
	// If alone is set, the token is sent after all earlier tokens of the lane have arrived and all
	// their sends have completed. Only their own events can have reported that. So the token
	// arrives when the peer is about to arm again.
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
			for range max(l.mode.volleys, l.mode.most) { // all tokens may go over the same queue
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
		// This is no error if the lane is stopped, or after a first error, which flushes the other
		// receives.
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
	if v.pause[0] == 0 && !l.mode.await && !v.alone[0] { // the first token is sent by this sink
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

// end stops the lane and waits until all its volleys have arrived.
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
