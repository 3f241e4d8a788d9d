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

// neighbours is the number of flooding goroutines, each on its own connection, and floodDepth the
// number of writes that each always keeps outstanding.
const neighbours, floodDepth = 16, 32

// flood runs the neighbors.
type flood struct {
	*bed.Bed
	waves [neighbours]wave
	// over is set by Round when the probe is done; the neighbors read it after each wave. It
	// publishes nothing.
	over atomic.Bool
	took suite.Samples
	// probe measures n operations beside the flood.
	probe func(f *flood, n int) error
}

// newFlooded makes a synchronous caller on a connection of its own beside the flood.
func newFlooded(at bed.Place) (suite.Load, error) {
	return newFlood(at, func(f *flood, n int) error {
		return f.Writes(f.Conns[neighbours], n, &f.took)
	})
}

// newFloodedChannels makes a token ping-pong between two goroutines beside the same flood.
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

// idleConns is the number of unused connections of an idle process.
const idleConns = 1000

// idleConfig keeps them small, and the runtime as economical as possible.
var idleConfig = verbena.Config{CQEntries: 1 << 16, Conn: verbena.Options{SendDepth: 8, RecvCredits: 4, MessageSize: 256}}

// idle is a process with unused connections. An operation is a millisecond.
type idle struct{ *bed.Bed }

func newIdle(at bed.Place) (suite.Load, error) {
	p, err := bed.Open(at, idleConfig, idleConns, bed.Word, nil)
	return &idle{p}, err
}

func (idle) Round(n int, _ rounds.Values) error { return asleep{}.Round(n, nil) }

// asleep is a process that sleeps, without connections.
type asleep struct{}

func newAsleep(bed.Place) (suite.Load, error) { return asleep{}, nil }

func (asleep) Round(n int, _ rounds.Values) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n)*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	return nil
}

func (asleep) Close() error { return nil }
