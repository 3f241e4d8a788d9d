//go:build linux && !portable

package reactor_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// mute is a device whose completion channel can fail. While mute.broken is set, GetEvent returns an
// error, and the channel's descriptor stays readable. (The descriptor of a removed device stays readable,
// too.)
type mute struct {
	verbs.Context
	broken atomic.Bool // set by the test
	asked  atomic.Bool // set if GetEvent was called while broken was set
	// asks holds the times of the first restAsks calls of GetEvent while broken was set. The holder
	// writes it, and the test reads it after the last of these calls.
	asks   []time.Time
	enough chan struct{} // closed by the last of the calls in asks
}

type muteChannel struct {
	verbs.CompChannel
	m *mute
}

var errMute = errors.New("the test makes GetEvent fail")

func (m *mute) CreateCompChannel() (verbs.CompChannel, error) {
	ch, err := m.Context.CreateCompChannel()
	return &muteChannel{ch, m}, err
}

func (m *mute) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	return m.Context.CreateCQ(cqe, ch.(*muteChannel).CompChannel, vector, userData)
}

func (c *muteChannel) GetEvent() (verbs.CQ, bool, error) {
	m := c.m
	if !m.broken.Load() {
		return c.CompChannel.GetEvent()
	}
	m.asked.Store(true)
	if len(m.asks) < restAsks {
		if m.asks = append(m.asks, time.Now()); len(m.asks) == restAsks {
			close(m.enough)
		}
	}
	return nil, false, errMute
}

// restAsks is the number of calls that a test records: calls of GetEvent, or of a source's handler.
const restAsks = 10

// rested checks that successive times in asks are at least EventRest apart. They are the times of calls
// of GetEvent, or of a source's handler.
func rested(t *testing.T, asks []time.Time) {
	t.Helper()
	for i := 1; i < len(asks); i++ {
		if d := asks[i].Sub(asks[i-1]); d < reactor.EventRest {
			t.Errorf("a call came %v after the call before it, want at least %v", d, reactor.EventRest)
		}
	}
}

// Rule: if the completion channel is readable but GetEvent fails, the loop calls GetEvent again
// only after EventRest, the time for which it suspends the channel. When GetEvent returns events
// again, they wake the loop.
func TestAChannelInErrorIsLetBe(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		m := &mute{enough: make(chan struct{})}
		cfg := reactor.Config{NoCallerDriving: true, Spin: -1, Recheck: -1}
		a, b := d.pair(t, cfg, reactor.QueueConfig{}, func(c verbs.Context) verbs.Context { m.Context = c; return m })
		defer b.close(t)
		defer a.close(t)
		answered(t, a, b)
		m.broken.Store(true)
		for ctx := bounded(t); !m.asked.Load(); {
			if ctx.Err() != nil {
				t.Fatalf("the loop did not call GetEvent within %v", patience)
			}
			answered(t, a, b) // raises an event only if the loop sleeps, because only then the completion queues are armed
		}
		comes(t, "the last of the recorded calls of GetEvent", m.enough)
		rested(t, m.asks)
		m.broken.Store(false)
		for range 10 {
			answered(t, a, b)
		}
	})
}

// descriptor is an event source with a file descriptor; its method Notify does nothing. The holder
// may replace the Event while the source is not attached to the poller.
type descriptor struct{ *sys.Event }

func (*descriptor) Notify(func()) {}

// Rule: the handler of a source is not called while the source is suspended. If the source is
// unwatched during the suspension, the handler is never called again.
func TestAWatchedSourceRests(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	defer l.close(t)
	src := &descriptor{must.Get(sys.NewEvent())(t)}
	defer src.Close()
	var asks []time.Time // the times of the first restAsks calls; written by the handler
	calls, enough := 0, make(chan struct{})
	watch := func() error {
		return l.r.Watch(src, func() {
			now := time.Now() // before the suspension, which ends EventRest after its beginning
			l.r.SuspendSource(src)
			if calls++; calls <= restAsks {
				asks = append(asks, now)
			}
			if calls == restAsks {
				close(enough)
			}
		})
	}
	l.do(t, func() { must.Do(t, watch()) })
	src.Signal() // the event is never drained
	comes(t, "the last of the recorded calls of the handler", enough)
	rested(t, asks)
	var before, after int
	l.do(t, func() {
		must.Do(t, l.r.Unwatch(src))
		must.Do(t, watch())
		must.Do(t, l.r.Unwatch(src))
		before = calls
	})
	over := make(chan struct{}) // closed after the suspension would have ended
	l.r.After(2*reactor.EventRest, func() { close(over) })
	comes(t, "the timer that ends after the suspension", over)
	l.do(t, func() { after = calls })
	if after != before {
		t.Errorf("the handler was called %d times after Unwatch, want 0", after-before)
	}
}

// Rule: if the descriptor of a source was closed, the source cannot be detached at the start of its
// suspension. Even then the source is attached again after the suspension, and its handler is called.
func TestASourceWhoseDescriptorWasClosedIsAskedAgain(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	defer l.close(t)
	src := &descriptor{must.Get(sys.NewEvent())(t)}
	again := make(chan struct{})
	first := true
	l.do(t, func() {
		must.Do(t, l.r.Watch(src, func() {
			if !first {
				src.Drain()
				close(again)
				return
			}
			first = false
			try(t, src.Close())
			next, err := sys.NewEvent()
			try(t, err)
			src.Event = next
			next.Signal()
			l.r.SuspendSource(src)
		}))
	})
	src.Signal()
	comes(t, "the second call of the handler", again)
	l.do(t, func() { must.Do(t, l.r.Unwatch(src)) })
	must.Do(t, src.Close())
}

// pinnedThreads returns how many threads of the process may run on only one processor.
func pinnedThreads(t *testing.T) (n int) {
	t.Helper()
	tasks := must.Get(filepath.Glob("/proc/self/task/*/status"))(t)
	for _, f := range tasks {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(text)) {
			list, ok := strings.CutPrefix(line, "Cpus_allowed_list:")
			if ok && !strings.ContainsAny(strings.TrimSpace(list), ",-") {
				n++
			}
		}
	}
	return n
}

// Rule: the loop of PolicyLatency runs on a thread that is pinned to one processor. After Close
// this thread has ended, or is not pinned any more.
func TestThePinnedThreadIsGivenBack(t *testing.T) {
	if cpus := must.Get(sys.ThreadCPUs())(t); len(cpus) < 2 {
		t.Skipf("the test needs two processors, because with one the loop is not pinned; the process may run on %v", cpus)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	dev := home().open(t, 0)
	r := must.Get(reactor.New(reactor.Config{Context: dev, Policy: reactor.PolicyLatency}))(t)
	if r.Policy() != reactor.PolicyLatency {
		t.Fatalf("the policy is %v, want latency", r.Policy())
	}
	until := time.After(10 * time.Second)
	for pinnedThreads(t) != 1 {
		select {
		case <-until:
			t.Fatalf("%d threads are pinned to one processor, want 1: the loop's thread", pinnedThreads(t))
		default:
			runtime.Gosched()
		}
	}
	must.Do(t, r.Close(bounded(t)))
	if n := pinnedThreads(t); n != 0 {
		t.Errorf("%d threads are pinned to one processor after Close, want 0", n)
	}
	must.Do(t, dev.Close())
}
