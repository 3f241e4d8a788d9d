package overhead

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

const (
	crowd      = 16 // goroutines on one connection
	crowdDepth = 8  // operations that each has under way: together as many as one submitter
)

// each divides n operations among the crowd.
func each(n int, run func(i, n int) error) error {
	var all sync.WaitGroup
	var errs [crowd]error
	for i := range crowd {
		share := n / crowd
		if i < n%crowd {
			share++
		}
		all.Go(func() { errs[i] = run(i, share) })
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

// crowdLoad is a crowd, each with some writes under way.
type crowdLoad struct {
	*pair
	waves [crowd]wave
}

func newCrowd(m machine) (load, error) { return newCrowdOf(m, false) }

// newCrowdTogether is the same with waves that are waited for as one.
func newCrowdTogether(m machine) (load, error) { return newCrowdOf(m, true) }

func newCrowdOf(m machine, together bool) (load, error) {
	p, err := connect(m, verbena.Config{}, 1, word, nil)
	if err != nil {
		return nil, err
	}
	l := &crowdLoad{pair: p}
	for i := range l.waves {
		l.waves[i] = newWave(p.local, crowdDepth, p.remote)
		l.waves[i].together = together
	}
	return l, nil
}

func (l *crowdLoad) round(n int, found rounds.Values) error {
	return l.counted(found, func() error {
		return each(n, func(i, n int) error { return l.waves[i].run(l.conns[0], n) })
	})
}

// crowdSync is a crowd, each with one write under way, which it waits for.
type crowdSync struct {
	*pair
	took [crowd]samples
}

func newCrowdSync(m machine) (load, error) { return newCrowdSyncOf(m, verbena.Config{}) }

// flushDelay is what a flush deadline is shown with: some ten doorbells of a device.
const flushDelay = 10 * time.Microsecond

// newCrowdSyncKept is the same with a flush deadline.
func newCrowdSyncKept(m machine) (load, error) {
	return newCrowdSyncOf(m, verbena.Config{FlushDelay: flushDelay})
}

func newCrowdSyncOf(m machine, cfg verbena.Config) (load, error) {
	p, err := connect(m, cfg, 1, word, nil)
	return &crowdSync{pair: p}, err
}

func (l *crowdSync) round(n int, found rounds.Values) error {
	for i := range l.took {
		l.took[i].room(n/crowd + 1)
	}
	err := l.counted(found, func() error {
		return each(n, func(i, n int) error { return l.took[i].writes(l.conns[0], l.local, l.remote, n) })
	})
	all := make(samples, 0, n)
	for _, took := range l.took {
		all = append(all, took...)
	}
	all.report(found)
	return err
}

// samples are how long operations took.
type samples []time.Duration

// room empties it and makes room, so that measuring allocates nothing.
func (s *samples) room(n int) { *s = slices.Grow((*s)[:0], n) }

// writes writes n times, one after the other, and takes the time of each.
func (s *samples) writes(c *verbena.Conn, local verbena.Slice, remote verbena.Remote, n int) error {
	ctx := context.Background()
	for range n {
		t := time.Now()
		if _, err := c.Do(ctx, new(verbena.WriteOp(local, remote))); err != nil {
			return err
		}
		*s = append(*s, time.Since(t))
	}
	return nil
}

// report adds the percentiles. It sorts s.
func (s samples) report(found rounds.Values) {
	if len(s) == 0 {
		return
	}
	slices.Sort(s)
	at := func(permille int) float64 { return float64(s[min(len(s)-1, len(s)*permille/1000)]) }
	found[vP50], found[vP99], found[vP999], found[vMost] = at(500), at(990), at(999), float64(s[len(s)-1])
}
