package main

import (
	"flag"
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
)

func TestMain(m *testing.M) { leak.Main(m) }

// Rule: all benchmarks run; in the steady state one allocates nothing per operation; a pipelined
// one has more than 4 work requests per doorbell.
func TestBenchmarksRun(t *testing.T) {
	short := flag.Lookup("test.benchtime")
	was := short.Value.String()
	// Enough for the setup to be a small part: the first park of each future makes a channel, and
	// a crowd of 16 on a busy machine parks many.
	times := "50000x"
	if raceEnabled {
		times = "5000x"
	}
	must.Do(t, short.Value.Set(times))
	defer func() { must.Do(t, short.Value.Set(was)) }()
	for _, c := range []struct {
		name      string
		run       func(*testing.B)
		pipelined bool
	}{
		{"submit", BenchmarkSubmit, true},
		{"flush", BenchmarkFlush, true},
		{"poll", BenchmarkPoll, true},
		{"await", BenchmarkAwait, true},
		{"together", BenchmarkTogether, true},
		{"write, 8 bytes", BenchmarkWrite8, false},
		{"write, 8 bytes, deep", BenchmarkWrite8Deep, true},
		{"write, 64 KiB", BenchmarkWrite64K, false},
		{"write, 64 KiB, deep", BenchmarkWrite64KDeep, false},
		{"ping-pong", BenchmarkPingPong, false},
		{"crowd", BenchmarkCrowd, false},
		{"tell", BenchmarkTell, false},
		{"ask", BenchmarkAsk, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := testing.Benchmark(c.run)
			if r.N == 0 {
				t.Fatal("it failed")
			}
			// The rest is the setup, and the Go runtime's own.
			if per := float64(r.MemAllocs) / float64(r.N); per > 0.1 && !raceEnabled {
				t.Errorf("%.3f allocations per operation", per)
			}
			if per := r.Extra[wrPerDoorbell]; c.pipelined && per <= 4 {
				t.Errorf("%.1f work requests per doorbell, want more than 4", per)
			}
		})
	}
}
