package reactor_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

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
	p := must(soft.New(soft.Config{Fabric: f}))(t)
	return bed{"slow", func(t testing.TB, dev int) verbs.Context {
		return must(p.Open([...]string{"soft0", "soft1"}[dev]))(t)
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
func (d *stormDevice) Turn(t *verbs.Turn) error {
	if len(t.Arms) == 0 {
		return d.Context.Turn(t)
	}
	polls := t.Polls
	if d.lane.loss.Load()&loseRepolls != 0 {
		t.Polls = nil
	}
	place := d.rng.IntN(2 * stormDawdle)
	if place == 0 {
		d.dawdle()
	}
	err := d.Context.Turn(t)
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
