package overhead

import (
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/internal/mem"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// stamper wraps a runtime's device and takes the time when writes are about to be posted. The
// remote address identifies the write: each outstanding write has a word of its own there. Both
// sides pay for its cost.
type stamper struct {
	verbs.Provider
	// base is the address of the first word. Written before the first write.
	base uint64
	// submitted is the time at which the write to a word was about to be submitted, in
	// nanoseconds since began. The submitter sets it before the write, whose way to the device
	// publishes it; the holder of the turn reads it.
	submitted [depth]int64
	began     time.Time
	// waited are the times of writes from there. The holder's; Round's when all are done.
	waited suite.Samples
}

// Open implements verbs.Provider.
func (s *stamper) Open(name string) (verbs.Context, error) {
	c, err := s.Provider.Open(name)
	if err != nil {
		return nil, err
	}
	return &stampedContext{c, s}, nil
}

// stampedContext is a device whose batches are inspected.
type stampedContext struct {
	verbs.Context
	s *stamper
}

// Execute implements verbs.Context.
func (c *stampedContext) Execute(t *verbs.IOBatch) error {
	if len(t.Sends) > 0 {
		c.s.posting(t.Sends)
	}
	return c.Context.Execute(t)
}

// posting inspects lists that are about to be posted.
func (s *stamper) posting(groups []verbs.SendGroup) {
	now := int64(time.Since(s.began))
	for i := range groups {
		for addr := groups[i].Head; addr != 0; {
			a, ok := mem.Find(addr, verbs.SizeofSendWR) // the requests of a list may be in several arenas
			if !ok {
				break // the device will refuse it
			}
			w, _ := mem.At[verbs.SendWR](a, addr)
			if slot := (w.RemoteAddr - s.base) / bed.Word; w.Opcode == verbs.WRRDMAWrite && slot < depth && len(s.waited) < cap(s.waited) {
				s.waited = append(s.waited, time.Duration(now-s.submitted[slot]))
			}
			addr = w.Next
		}
	}
}

// stamped performs writes of a number of goroutines whose way to the device is timed.
type stamped struct {
	*bed.Bed
	*stamper
	waves []wave
}

// newStamped makes one submitter.
func newStamped(at bed.Place) (suite.Load, error) { return newStamps(at, 1, depth) }

// newStampedCrowd makes a crowd of goroutines with as many outstanding writes.
func newStampedCrowd(at bed.Place) (suite.Load, error) { return newStamps(at, crowd, crowdDepth) }

func newStamps(at bed.Place, goroutines, under int) (suite.Load, error) {
	l := &stamped{stamper: &stamper{began: time.Now()}, waves: make([]wave, goroutines)}
	var err error
	if l.Bed, err = bed.Open(at, verbena.Config{}, 1, depth*bed.Word, func(p verbs.Provider) verbs.Provider {
		l.Provider = p
		return l.stamper
	}); err != nil {
		return nil, err
	}
	l.base = l.Remote.Addr
	own, err := l.Here.NewRegion(bed.Word, verbs.AccessLocalWrite) // the source of all writes
	if err != nil {
		return nil, err
	}
	if l.Local, err = own.Slice(0, bed.Word); err != nil {
		return nil, err
	}
	for g := range l.waves {
		at, remotes := g*under, make([]verbena.Remote, under)
		for i := range remotes {
			if remotes[i], err = l.Remote.At(uint64(at+i)*bed.Word, bed.Word); err != nil {
				return nil, err
			}
		}
		l.waves[g] = newWave(l.Local, under, remotes...)
		l.waves[g].before = func(n int) {
			now := int64(time.Since(l.began))
			for i := range n {
				l.submitted[at+i] = now
			}
		}
	}
	return l, nil
}

func (l *stamped) Round(n int, found rounds.Values) error {
	l.waited.Room(n)
	err := l.Counted(found, func() error {
		if len(l.waves) == 1 {
			return l.waves[0].run(l.Conns[0], n)
		}
		return each(n, func(i, n int) error { return l.waves[i].run(l.Conns[0], n) })
	})
	l.waited.Report(found)
	return err
}
