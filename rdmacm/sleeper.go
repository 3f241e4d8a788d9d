package rdmacm

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// background is the context of calls that only wait for this process or its kernel.
var background = context.Background()

// maxReady is how many event channels one wait of the sleeper reports.
const maxReady = 64

// sleeper wakes the goroutines that wait for connection events. One goroutine of the Library waits for
// the events of all channels; it runs from the first wait on.
//
//	wait: rearm ──> asleep ── an event, the sleeper's goroutine ──> ready ──> the waiting goroutine
type sleeper struct {
	poller *sys.Poller

	mu      sync.Mutex // guards the fields below
	bells   map[uint32]chan struct{}
	last    uint32
	running bool
	ended   chan struct{} // closed when the goroutine has ended
}

func newSleeper() (*sleeper, error) {
	p, err := sys.NewPoller()
	if err != nil {
		return nil, err
	}
	return &sleeper{poller: p, bells: map[uint32]chan struct{}{}, ended: make(chan struct{})}, nil
}

// attach adds a source, and returns its key and its bell. The bell holds a value after an event that
// was asked for with rearm.
func (s *sleeper) attach(src verbs.Source) (key uint32, bell chan struct{}, err error) {
	s.mu.Lock()
	s.last++
	key, bell = s.last, make(chan struct{}, 1)
	s.bells[key] = bell
	if !s.running {
		s.running = true
		go s.run()
	}
	s.mu.Unlock()
	if err = s.poller.AttachOnce(src, key); err != nil {
		s.drop(key)
	}
	return key, bell, err
}

func (s *sleeper) drop(key uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.bells, key)
}

// detach removes a source, before it is closed.
func (s *sleeper) detach(key uint32) error {
	err := s.poller.Detach(key)
	if errors.Is(err, sys.ErrNotAttached) {
		err = nil
	}
	s.drop(key)
	return err
}

// count returns how many sources are attached.
func (s *sleeper) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bells)
}

func (s *sleeper) run() {
	defer close(s.ended)
	var keys [maxReady]uint32
	for {
		n, err := s.poller.Wait(time.Time{}, keys[:])
		if err != nil {
			return // the poller is closed
		}
		s.mu.Lock()
		for _, k := range keys[:n] {
			if bell := s.bells[k]; bell != nil {
				ring(bell)
			}
		}
		s.mu.Unlock()
	}
}

// ring puts a value into bell, unless it holds one.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// close ends the goroutine. No source may be attached.
func (s *sleeper) close() error {
	err := s.poller.Close()
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running {
		<-s.ended
	}
	return err
}
