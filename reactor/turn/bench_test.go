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

// benchRound is how many operations are timed at a stretch: enough to hide the clock's cost, few
// enough that all contestants meet the same machine load.
const benchRound = 500

// contestant is one variant to be timed.
type contestant struct {
	name string
	run  func(n int)
}

// beside times contestants in alternating rounds of one run and reports the median of each, because
// on a shared machine only results of the same run are comparable.
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
	b.ReportMetric(0, "ns/op") // of all contestants together: meaningless
}

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

// BenchmarkOneCaller has one goroutine that posts and waits, against a device that completes at
// once: the cost of the turn itself. The alternative is a loop that runs every operation.
func BenchmarkOneCaller(b *testing.B) {
	on, off := Config{CallerDriving: true}, Config{}
	beside(b, []contestant{
		pingPong(b),
		echoed(b, "driving", on, false, true),
		echoed(b, "driving-async", on, false, false),
		echoed(b, "loop", off, false, false),
	})
}

// BenchmarkDevice is the same against a device with its own goroutine, so that a completion takes a
// goroutine switch, for several spin lengths.
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

const benchCallers = 16

// many returns a contestant with 16 callers of one reactor; its operations are those of all.
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

// mutexed returns a contestant with 16 callers that do their own work under one lock.
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

// BenchmarkSixteenCallers posts and waits from 16 goroutines.
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
