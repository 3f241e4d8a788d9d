package suite

import (
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

// The names of a round's arguments and results, besides those of one load.
const (
	Ops     = "ops"
	CPU     = "cpu_ns"
	Wall    = "wall_ns"
	Mallocs = "mallocs"
	Posted  = "posted" // work requests
	Lists   = "lists"  // doorbells
	Polled  = "polled" // completions
	P50     = "p50_ns"
	P99     = "p99_ns"
	P999    = "p999_ns"
	Max     = "max_ns"
)

// OpsArgs makes a side do n operations in each round.
func OpsArgs(n int) func(rounds.Round) rounds.Values {
	return func(rounds.Round) rounds.Values { return rounds.Values{Ops: float64(n)} }
}

// Per returns a value of a side per operation.
func Per(who, value string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][value] / max(r[who][Ops], 1) }
}

// Scaled returns a value of a side in another unit: divided by by.
func Scaled(who, value string, by float64) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][value] / by }
}

// Rate returns a side's operations a second, in millions.
func Rate(who string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][Ops] / max(r[who][Wall], 1) * 1e3 }
}

// PerList returns a side's work requests per doorbell.
func PerList(who string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][Posted] / max(r[who][Lists], 1) }
}

// PerPolled returns a side's work requests per completion: the signaling period.
func PerPolled(who string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][Posted] / max(r[who][Polled], 1) }
}

// Samples are the durations of operations. One goroutine at a time may use them.
type Samples []time.Duration

// Room empties s and reserves space for n samples, so that measuring allocates nothing.
func (s *Samples) Room(n int) { *s = slices.Grow((*s)[:0], n) }

// Report adds the percentiles and the maximum to found; nothing for no samples. It sorts s.
func (s Samples) Report(found rounds.Values) {
	if len(s) == 0 {
		return
	}
	slices.Sort(s)
	at := func(permille int) float64 { return float64(s[min(len(s)-1, len(s)*permille/1000)]) }
	found[P50], found[P99], found[P999], found[Max] = at(500), at(990), at(999), float64(s[len(s)-1])
}
