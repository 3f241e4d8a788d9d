//go:build linux && !portable

package reactor_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// mute is a completion channel that gives no event while it is broken, though its
// descriptor says that there is one: as that of a device which is gone.
type mute struct {
	verbs.Context
	broken atomic.Bool  // the test's
	asked  atomic.Int64 // how often, while broken; the holder's
}

type muteChannel struct {
	verbs.CompChannel
	m *mute
}

var errMute = errors.New("mute")

func (m *mute) CreateCompChannel() (verbs.CompChannel, error) {
	ch, err := m.Context.CreateCompChannel()
	return &muteChannel{ch, m}, err
}

func (m *mute) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	return m.Context.CreateCQ(cqe, ch.(*muteChannel).CompChannel, vector, userData)
}

func (c *muteChannel) GetEvent() (verbs.CQ, bool, error) {
	if c.m.broken.Load() {
		c.m.asked.Add(1)
		return nil, false, errMute
	}
	return c.CompChannel.GetEvent()
}

// restTime is how long a source stays broken, and restAsked how often it is asked
// meanwhile at most: each 10 ms, and when the test does something.
const (
	restTime  = 200 * time.Millisecond
	restAsked = 40
)

// Rule: a completion channel that stays readable and gives no event does not keep
// the loop going round; when it gives events again, they wake the loop.
func TestAChannelInErrorIsLetBe(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		var m *mute
		cfg := reactor.Config{NoCallerDriving: true, Spin: -1, Recheck: -1}
		a, b := d.pair(t, cfg, reactor.QueueConfig{}, func(c verbs.Context) verbs.Context { m = &mute{Context: c}; return m })
		defer b.close(t)
		defer a.close(t)
		answered(t, a, b)
		m.broken.Store(true)
		answered(t, a, b)
		<-time.After(restTime)
		if n := m.asked.Load(); n > restAsked {
			t.Errorf("a broken channel was asked for events %d times in %v, want at most %d", n, restTime, restAsked)
		}
		m.broken.Store(false)
		for range 10 {
			answered(t, a, b)
		}
		if m.asked.Load() == 0 {
			t.Error("the channel was never asked")
		}
	})
}

// descriptor is a source with nothing but one.
type descriptor struct{ *sys.Event }

func (descriptor) Notify(func()) {}

// Rule: a watched source that rests is not called for, is called for again when it
// has rested, and may be unwatched meanwhile.
func TestAWatchedSourceRests(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	defer l.close(t)
	src := descriptor{must(sys.NewEvent())(t)}
	defer src.Close()
	var calls atomic.Int64
	again := make(chan struct{})
	watch := func() error {
		return l.r.Watch(src, func() {
			if l.r.Rest(src); calls.Add(1) == 3 {
				close(again)
			}
		})
	}
	l.do(t, func() { check(t, watch()) })
	src.Signal() // and nobody takes it
	comes(t, "the third call", again)
	<-time.After(restTime)
	if n := calls.Load(); n > restAsked {
		t.Errorf("called %d times for a source that rests 10 ms each time", n)
	}
	l.do(t, func() {
		check(t, l.r.Unwatch(src))
		check(t, watch())
		check(t, l.r.Unwatch(src))
	})
	n := calls.Load()
	<-time.After(restTime / 4)
	if got := calls.Load(); got != n {
		t.Errorf("called %d times after the end of the watch", got-n)
	}
}
