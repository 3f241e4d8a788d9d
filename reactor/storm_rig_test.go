package reactor_test

import (
	"math/rand/v2"
	"net/netip"
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

// The slow wire delays each packet by stormWire, plus a random time of up to stormWire.
const stormWire = 5 * time.Microsecond

// slowBed returns the software RNIC over a wire that delays packets. Without the delay, a send
// completes within the call of Execute that posts the send, and no reactor waits for an event. With
// the delay, reactors wait for events, as on a device.
func slowBed(t testing.TB) bed {
	f := fabric.New(fabric.Config{})
	f.SetAll(fabric.Link{Delay: stormWire, Jitter: stormWire})
	return bedOf(t, f)
}

// bedOf returns the software RNIC over a fabric of the test's own.
func bedOf(t testing.TB, f *fabric.Fabric) bed {
	p := must.Get(soft.New(soft.Config{Fabric: f, Devices: []soft.DeviceConfig{
		{Name: "soft0", Addr: netip.MustParseAddr("10.0.0.1")}, {Name: "soft1", Addr: netip.MustParseAddr("10.0.0.2")}}}))(t)
	return bed{"own fabric", func(t testing.TB, dev int) verbs.Context {
		return must.Get(p.Open([...]string{"soft0", "soft1"}[dev]))(t)
	}}
}

// stormDevice is the device of one side of a lane (two connected reactors). It delays some armings,
// and drops the events or polls that lane.loss selects. It counts events (lane.events) and races
// (lane.met).
type stormDevice struct {
	verbs.Context
	lane *lane
	rng  *rand.Rand // owned by the holder
	// The number of events of the kinds that lane.loss selects. Every stormLoseOne-th of these
	// events is dropped; the others are not. The holder owns this field.
	lost int
}

// The bits of lane.loss: what the devices of the lane lose.
const (
	loseSendEvents uint32 = 1 << iota // one in stormLoseOne events of the send completion queue
	loseRecvEvents                    // one in stormLoseOne events of the receive completion queue
	loseRepolls                       // every poll after an arming
)

// stormLoseOne determines how many events are dropped: of each stormLoseOne events of the kinds that
// lane.loss selects, the device drops one.
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

// One in stormDawdle armings is delayed. Half of the delays are between the last poll and the
// arming, the other half between the arming and the loop's sleep. Without the delays, a completion
// would have to come within a few hundred nanoseconds to cause a race. This hardly ever happens on
// a busy machine.
const stormDawdle = 4

// stormDawdleMost is the longest time that stormDevice.dawdle waits until the lane sends its next token
// (a message, see lane). Without this limit the wait might never end, because the reactor that waits
// may itself have to send that token.
const stormDawdleMost = 200 * time.Microsecond

// Execute posts, arms and polls. If the poll after an arming finds a completion, Execute counts a
// race (lane.met): the completion probably came after the previous poll and before the arming. Such a
// completion raises no event, so only the poll after the arming can find it.
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

// dawdle lets other goroutines run until the lane sends another token, or until
// stormDawdleMost has passed. After that, it lets them run for a random pause.
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
	// The counters are:
	//
	//	events   completion events of both sides
	//	met      passes that armed and then found a completion
	//	hops     tokens that have arrived
	//	sent     sends that were submitted
	//	done     sends that have completed
	//	out      volleys in transit
	//
	// The goroutines that write them are the test (in the method start), the holders of both sides,
	// and the posters (stormSide.post). The test and the posters read them.
	events, met, hops, sent, done atomic.Uint64
	out                           atomic.Int64
	isDone                        chan struct{} // receives a value when done or hops was incremented
	loss                          atomic.Uint32 // bits: what the lane's devices lose; set by the test
	stop                          atomic.Bool   // if true, a volley that arrives is not answered; set by the test
	gone                          chan struct{} // closed when no volley is left

	seenHops uint64    // the value of hops at the last call of stalled()
	seenAt   time.Time // when stalled() first saw this value
}

// stormSide is one reactor of a lane, with its queue pairs. It is the sink of their receives.
type stormSide struct {
	lane *lane
	ends []*end
	rng  *rand.Rand // owned by the holder
	// got is the number of tokens of the current volley that have arrived. It is not used
	// for a volley of one token. The holder owns the field.
	got int
	// posts passes volleys to the poster: the goroutine that runs s.post().
	posts chan volley
	done  sync.WaitGroup
}

// volley is a group of tokens to be sent one after the other.
type volley struct {
	n     int                      // number of tokens; each token carries this number
	sent  int                      // number of tokens that were sent
	pause [stormMost]time.Duration // by token: the time before the token is sent
	queue [stormMost]int           // by token: the queue over which the token is sent
	// If alone[i] is set, token i is sent only after all earlier tokens of the lane have arrived
	// and all their sends have completed. If the event of token i is then lost, no event of an
	// earlier token makes the reactor poll and hides the loss.
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

// start posts the receives of each queue, starts the posters, and has them send the
// first volleys, of one token each.
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
		// A receive also ends with an error if its queue pair is flushed: after an earlier failure, or
		// when the lane is closed. These errors are not reported.
		if !l.stop.Load() && !l.t.Failed() {
			l.t.Errorf("a receive ended with %v, want success", err)
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
	if v.pause[0] == 0 && !l.mode.await && !v.alone[0] { // this sink sends the first token itself
		s.trySend(&v)
	}
	if v.sent < v.n {
		s.posts <- v // does not block: the channel has room for all volleys
	}
}

func (l *lane) takeOut() {
	if l.out.Add(-1) == 0 {
		close(l.gone)
	}
}

// stalled reports whether no token has arrived for longer than patience.
func (l *lane) stalled() bool {
	if n := l.hops.Load(); n != l.seenHops {
		l.seenHops, l.seenAt = n, time.Now()
	}
	return time.Since(l.seenAt) > patience
}

// end stops the lane, and waits until all its volleys have arrived and its posters have
// returned.
func (l *lane) end(t *testing.T) {
	l.stop.Store(true)
	select {
	case <-l.gone:
	case <-time.After(patience):
		t.Fatalf("%d volleys did not arrive within %v: a wake-up was lost\n%s", l.out.Load(), patience, l.report())
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
