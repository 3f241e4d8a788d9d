package scale

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/internal/mem"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// The names of a round's further results.
const (
	vConns    = "conns"
	vRate     = "per_s"     // connections made a second
	vResident = "resident"  // bytes
	vHeap     = "heap"      // bytes
	vOff      = "off_heap"  // bytes mapped
	vNoStatm  = "no_statm"  // 1: the system does not report resident memory
	vTurnover = "closed_ns" // time to close all
)

// sizes are the options of the measured connections.
var sizes = map[string]verbena.Options{
	"default": {},
	// small is a choice for a service with many clients: 16 operations and 4 messages of 256
	// bytes at a time.
	"small": {SendDepth: 16, RecvCredits: 4, MessageSize: 256},
}

// connecting makes connections and closes them, in each round.
type connecting struct {
	at   bed.Place
	opts verbena.Options
	n    int
}

func newConnecting(at bed.Place, opts verbena.Options, n int) (suite.Load, error) {
	return &connecting{at, opts, n}, nil
}

func (c *connecting) Round(_ int, found rounds.Values) (err error) {
	before := footprint()
	b, err := bed.Open(c.at, verbena.Config{Conn: c.opts}, c.n, 0, nil)
	if err != nil {
		return err
	}
	after := footprint()
	found[vConns], found[vRate] = float64(c.n), float64(c.n)/b.Took.Seconds()
	found[vResident] = float64(after.resident - before.resident)
	found[vHeap], found[vOff] = float64(after.heap-before.heap), float64(after.mapped-before.mapped)
	if !after.told {
		found[vNoStatm] = 1
	}
	start := time.Now()
	err = b.Close()
	found[vTurnover] = float64(time.Since(start))
	return err
}

func (c *connecting) Close() error { return nil }

// memory is the memory of a process.
type memory struct {
	resident, heap, mapped int64
	told                   bool // resident is known
}

// footprint frees unused memory and measures the rest.
func footprint() (m memory) {
	debug.FreeOSMemory() // also runs a garbage collection
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m.heap = int64(s.HeapAlloc)
	_, m.mapped = mem.Live()
	m.resident, m.told = resident()
	return m
}

// waiting is one active connection, and idle ones.
type waiting struct {
	*bed.Bed
	took suite.Samples
}

func newWaiting(at bed.Place, opts verbena.Options, n int) (suite.Load, error) {
	b, err := bed.Open(at, verbena.Config{Conn: opts}, n+1, bed.Word, nil)
	return &waiting{Bed: b}, err
}

func (w *waiting) Round(n int, found rounds.Values) error {
	w.took.Room(n)
	c := w.Conns[len(w.Conns)/2] // neither the first nor the last in any data structure
	if err := w.Writes(c, n, &w.took); err != nil {
		return err
	}
	w.took.Report(found)
	return nil
}
