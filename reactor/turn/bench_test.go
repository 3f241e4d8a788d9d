//go:build !verbena_model

package turn

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
)

// benchRound is the number of operations between two readings of the clock. With this number the cost
// of a reading is negligible, and the contestants alternate so often that they all meet the same load
// of the machine.
const benchRound = 500

// contestant is one variant to be timed.
type contestant struct {
	name string
	run  func(n int)
}

// beside times the contestants alternately in one run, because on a shared machine the results of
// different runs are not comparable. For each contestant, beside reports the median and the 99th
// percentile of the contestant's rounds, in nanoseconds per operation.
func beside(b *testing.B, cs []contestant) {
	times := make([][]float64, len(cs))
	for _, c := range cs {
		c.run(benchRound) // warm up
	}
	for b.Loop() {
		for i, c := range cs {
			start := time.Now()
			c.run(benchRound)
			times[i] = append(times[i], float64(time.Since(start).Nanoseconds())/benchRound)
		}
	}
	for i, c := range cs {
		slices.Sort(times[i])
		b.ReportMetric(times[i][len(times[i])/2], c.name+"-ns/op")
		b.ReportMetric(times[i][len(times[i])*99/100], c.name+"-p99-round")
	}
	b.ReportMetric(0, "ns/op") // hide the default metric, which adds up all contestants
}

// pingPong returns a contestant for comparison: two goroutines pass a value to and fro over channels.
func pingPong(b *testing.B) contestant {
	to, from := make(chan int), make(chan int)
	go func() {
		for v := range to {
			from <- v
		}
	}()
	b.Cleanup(func() { close(to) })
	return contestant{"chan-pingpong", func(n int) {
		for i := range n {
			to <- i
			<-from
		}
	}}
}

// echoed returns a contestant with one caller and a reactor of its own.
func echoed(b *testing.B, name string, cfg Config, device, quiet bool) contestant {
	e := newEcho(b, cfg, device)
	e.pool = futures.NewPool(futures.Options[uint64]{})
	b.Cleanup(func() { e.close(b) })
	j := new(job)
	return contestant{name, func(n int) {
		for i := range n {
			if _, err := e.push(j, uint64(i), quiet).Await(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}}
}

// BenchmarkOneCaller measures the cost of the turn. One goroutine submits and waits, and the device
// completes every operation at once. In the contestant "loop" no caller drives: the loop runs every
// pass.
func BenchmarkOneCaller(b *testing.B) {
	on, off := Config{CallerDriving: true}, Config{}
	beside(b, []contestant{
		pingPong(b),
		echoed(b, "driving", on, false, true),
		echoed(b, "driving-async", on, false, false),
		echoed(b, "loop", off, false, false),
	})
}

// BenchmarkDevice is BenchmarkOneCaller with a device that has its own goroutine. So each
// completion takes a goroutine switch. The contestants have different values of Config.Spin.
func BenchmarkDevice(b *testing.B) {
	cs := []contestant{pingPong(b)}
	for _, s := range []struct {
		name string
		spin int
	}{{"spin0", 0}, {"spin4", 4}, {"spin64", 64}} {
		cs = append(cs,
			echoed(b, "driving-"+s.name, Config{CallerDriving: true, Spin: s.spin}, true, true),
			echoed(b, "loop-"+s.name, Config{Spin: s.spin}, true, false))
	}
	beside(b, cs)
}

// benchCallers is the number of callers in BenchmarkSixteenCallers.
const benchCallers = 16

// many returns a contestant with 16 callers on one reactor. The callers share the n
// operations of a round.
func many(b *testing.B, name string, cfg Config, device bool) contestant {
	e := newEcho(b, cfg, device)
	e.pool = futures.NewPool(futures.Options[uint64]{})
	b.Cleanup(func() { e.close(b) })
	var jobs [benchCallers]job
	return contestant{name, func(n int) {
		var wg sync.WaitGroup
		for c := range benchCallers {
			wg.Go(func() {
				for i := range n / benchCallers {
					if _, err := e.push(&jobs[c], uint64(i), true).Await(context.Background()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}}
}

// mutexed returns a contestant without a token: all of its 16 callers run passes,
// under one mutex.
func mutexed() contestant {
	var mu sync.Mutex
	e := &echo{pool: futures.NewPool(futures.Options[uint64]{})}
	var jobs [benchCallers]job
	return contestant{"mutex", func(n int) {
		var wg sync.WaitGroup
		for c := range benchCallers {
			wg.Go(func() {
				for i := range n / benchCallers {
					j := &jobs[c]
					var f futures.Future[uint64]
					j.promise, f = e.pool.New(nil)
					j.value = uint64(i)
					e.inbox.Push(j)
					for settled := false; !settled; settled = f.Settled() {
						mu.Lock()
						e.Pass(false)
						mu.Unlock()
					}
					f.Poll()
				}
			})
		}
		wg.Wait()
	}}
}

// BenchmarkSixteenCallers measures 16 goroutines that submit and wait at the same time.
func BenchmarkSixteenCallers(b *testing.B) {
	on, off := Config{CallerDriving: true}, Config{}
	beside(b, []contestant{
		many(b, "driving", on, false),
		many(b, "loop", off, false),
		mutexed(),
		many(b, "driving-device", on, true),
		many(b, "loop-device", off, true),
	})
}
