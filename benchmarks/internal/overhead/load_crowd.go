package overhead

import (
	"errors"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

const (
	crowd      = 16 // goroutines on one connection
	crowdDepth = 8  // outstanding operations of each: together as many as one submitter
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

// crowdLoad is a crowd of goroutines, each with some writes outstanding.
type crowdLoad struct {
	*bed.Bed
	waves [crowd]wave
}

func newCrowd(at bed.Place) (suite.Load, error) { return newCrowdOf(at, false) }

// newCrowdTogether is the same with a single wait for each wave.
func newCrowdTogether(at bed.Place) (suite.Load, error) { return newCrowdOf(at, true) }

func newCrowdOf(at bed.Place, together bool) (suite.Load, error) {
	p, err := bed.Open(at, verbena.Config{}, 1, bed.Word, nil)
	if err != nil {
		return nil, err
	}
	l := &crowdLoad{Bed: p}
	for i := range l.waves {
		l.waves[i] = newWave(p.Local, crowdDepth, p.Remote)
		l.waves[i].together = together
	}
	return l, nil
}

func (l *crowdLoad) Round(n int, found rounds.Values) error {
	return l.Counted(found, func() error {
		return each(n, func(i, n int) error { return l.waves[i].run(l.Conns[0], n) })
	})
}

// crowdSync is a crowd of goroutines, each with one write outstanding, which it waits for.
type crowdSync struct {
	*bed.Bed
	took [crowd]suite.Samples
}

func newCrowdSync(at bed.Place) (suite.Load, error) { return newCrowdSyncOf(at, verbena.Config{}) }

// flushDelay is the flush deadline in the demonstration: some ten doorbells of a device.
const flushDelay = 10 * time.Microsecond

// newCrowdSyncKept is the same with a flush deadline.
func newCrowdSyncKept(at bed.Place) (suite.Load, error) {
	return newCrowdSyncOf(at, verbena.Config{FlushDelay: flushDelay})
}

func newCrowdSyncOf(at bed.Place, cfg verbena.Config) (suite.Load, error) {
	p, err := bed.Open(at, cfg, 1, bed.Word, nil)
	return &crowdSync{Bed: p}, err
}

func (l *crowdSync) Round(n int, found rounds.Values) error {
	for i := range l.took {
		l.took[i].Room(n/crowd + 1)
	}
	err := l.Counted(found, func() error {
		return each(n, func(i, n int) error { return l.Writes(l.Conns[0], n, &l.took[i]) })
	})
	all := make(suite.Samples, 0, n)
	for _, took := range l.took {
		all = append(all, took...)
	}
	all.Report(found)
	return err
}
