package scale

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/internal/mem"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// The names of what a round is told and finds.
const (
	vOps      = "ops"
	vConns    = "conns"
	vRate     = "per_s"     // connections made a second
	vResident = "resident"  // bytes
	vHeap     = "heap"      // bytes
	vOff      = "off_heap"  // bytes mapped
	vNoStatm  = "no_statm"  // 1: the system does not tell what is resident
	vTurnover = "closed_ns" // time to close all
	vP50      = "p50_ns"
	vP99      = "p99_ns"
	vMost     = "max_ns"
	vCPU      = "cpu_ns"
)

// sizes are the options that connections are measured with.
var sizes = map[string]verbena.Options{
	"default": {},
	// small is what a service with many clients may choose: 16 operations and 4
	// messages of 256 bytes at a time.
	"small": {SendDepth: 16, RecvCredits: 4, MessageSize: 256},
}

// connecting makes connections and closes them, a round each.
type connecting struct {
	at   place
	opts verbena.Options
	n    int
}

func newConnecting(at place, opts verbena.Options, n int) (load, error) {
	return &connecting{at, opts, n}, nil
}

func (c *connecting) round(_ int, found rounds.Values) (err error) {
	before := footprint()
	t, err := settle(c.at, c.opts, c.n)
	if err != nil {
		return err
	}
	after := footprint()
	found[vConns], found[vRate] = float64(c.n), float64(c.n)/t.took.Seconds()
	found[vResident] = float64(after.resident - before.resident)
	found[vHeap], found[vOff] = float64(after.heap-before.heap), float64(after.mapped-before.mapped)
	if !after.told {
		found[vNoStatm] = 1
	}
	start := time.Now()
	err = t.close()
	found[vTurnover] = float64(time.Since(start))
	return err
}

func (c *connecting) close() error { return nil }

// memory is what a process has.
type memory struct {
	resident, heap, mapped int64
	told                   bool // resident is known
}

// footprint gives back what nobody uses and tells the rest.
func footprint() (m memory) {
	debug.FreeOSMemory() // collects, too
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m.heap = int64(s.HeapAlloc)
	_, m.mapped = mem.Live()
	m.resident, m.told = resident()
	return m
}

// waiting is one connection that is used, and others that are not.
type waiting struct {
	*town
	local  verbena.Slice
	remote verbena.Remote
	took   []time.Duration
}

func newWaiting(at place, opts verbena.Options, n int) (_ load, err error) {
	t, err := settle(at, opts, n+1)
	if err != nil {
		return nil, err
	}
	w := &waiting{town: t}
	if w.local, w.remote, err = t.reach(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return w, nil
}

func (w *waiting) round(n int, found rounds.Values) error {
	ctx := context.Background()
	w.took = slices.Grow(w.took[:0], n)
	c := w.conns[len(w.conns)/2] // not the first nor the last of whatever holds them
	for range n {
		t := time.Now()
		if _, err := c.Do(ctx, new(verbena.WriteOp(w.local, w.remote))); err != nil {
			return err
		}
		w.took = append(w.took, time.Since(t))
	}
	slices.Sort(w.took)
	at := func(percent int) float64 { return float64(w.took[min(n-1, n*percent/100)]) }
	found[vP50], found[vP99], found[vMost] = at(50), at(99), at(100)
	return nil
}
