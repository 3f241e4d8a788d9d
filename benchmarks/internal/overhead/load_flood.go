package overhead

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// neighbours is how many goroutines flood, each on a connection of its own, and
// floodDepth how many writes each has under way, always.
const neighbours, floodDepth = 16, 32

// flood is the neighbours.
type flood struct {
	*bed.Bed
	waves [neighbours]wave
	// over is set by round when the probe is done, and read by the neighbours after
	// each wave. It publishes nothing.
	over atomic.Bool
	took suite.Samples
	// probe takes the time of n operations beside the flood.
	probe func(f *flood, n int) error
}

// newFlooded is a synchronous caller on a connection of its own beside the flood.
func newFlooded(at bed.Place) (suite.Load, error) {
	return newFlood(at, func(f *flood, n int) error {
		return f.Writes(f.Conns[neighbours], n, &f.took)
	})
}

// newFloodedChannels is a token between two goroutines beside the same flood.
func newFloodedChannels(at bed.Place) (suite.Load, error) {
	return newFlood(at, func(f *flood, n int) error {
		there, back := make(chan struct{}), make(chan struct{})
		go func() {
			for range there {
				back <- struct{}{}
			}
			close(back)
		}()
		for range n {
			t := time.Now()
			there <- struct{}{}
			<-back
			f.took = append(f.took, time.Since(t))
		}
		close(there)
		<-back
		return nil
	})
}

func newFlood(at bed.Place, probe func(*flood, int) error) (suite.Load, error) {
	p, err := bed.Open(at, verbena.Config{}, neighbours+1, bed.Word, nil)
	if err != nil {
		return nil, err
	}
	f := &flood{Bed: p, probe: probe}
	for i := range f.waves {
		f.waves[i] = newWave(p.Local, floodDepth, p.Remote)
	}
	return f, nil
}

func (f *flood) Round(n int, found rounds.Values) error {
	f.took.Room(n)
	f.over.Store(false)
	var all, flowing sync.WaitGroup
	var errs [neighbours]error
	flowing.Add(neighbours)
	for i := range f.waves {
		all.Go(func() {
			for first := true; first || !f.over.Load() && errs[i] == nil; first = false {
				errs[i] = f.waves[i].run(f.Conns[i], floodDepth)
				if first {
					flowing.Done()
				}
			}
		})
	}
	flowing.Wait()
	err := f.Counted(found, func() error { return f.probe(f, n) })
	f.over.Store(true)
	all.Wait()
	f.took.Report(found)
	return errors.Join(err, errors.Join(errs[:]...))
}

// idleConns is how many connections an idle process has, and nobody uses.
const idleConns = 1000

// idleConfig keeps them small, and the runtime as economical as it can be told to be.
var idleConfig = verbena.Config{CQEntries: 1 << 16, Conn: verbena.Options{SendDepth: 8, RecvCredits: 4, MessageSize: 256}}

// idle is a process with connections over which nothing goes. An operation is a
// millisecond.
type idle struct{ *bed.Bed }

func newIdle(at bed.Place) (suite.Load, error) {
	p, err := bed.Open(at, idleConfig, idleConns, bed.Word, nil)
	return &idle{p}, err
}

func (idle) Round(n int, _ rounds.Values) error { return asleep{}.Round(n, nil) }

// asleep is a process that sleeps, and has nothing else.
type asleep struct{}

func newAsleep(bed.Place) (suite.Load, error) { return asleep{}, nil }

func (asleep) Round(n int, _ rounds.Values) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n)*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	return nil
}

func (asleep) Close() error { return nil }
