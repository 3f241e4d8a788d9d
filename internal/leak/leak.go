package leak

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/sys"
)

// Gauge is another resource that can be left behind.
type Gauge struct {
	Name string     // the resource, for the message: "objects of the software RNIC"
	Read func() int // returns the current count; called from the goroutine that checks
}

// Snapshot is the state at one moment.
type Snapshot struct {
	goroutines map[uint64]bool
	fds        map[int]string // nil where descriptors are not visible
	arenas     int
	bytes      int64
	gauges     []Gauge
	counts     []int
}

// patience is how long ending resources may take. A closing goroutine needs microseconds, or some
// scheduler slices of 10 ms on a busy machine; the rest is for the race detector under load.
const patience = 10 * time.Second

// lookEvery is the time between two checks of a process that is not clean yet.
const lookEvery = 2 * time.Millisecond

// Take records the current state. It blocks no longer than it takes to list the goroutines. The
// snapshot belongs to the caller.
func Take(gauges ...Gauge) (*Snapshot, error) {
	// Go's own poller has two descriptors, made on first use. A pipe is the cheapest way to use
	// it.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("leak: a pipe to start Go's poller: %w", err)
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		return nil, err
	}
	s := &Snapshot{goroutines: map[uint64]bool{}, gauges: gauges}
	for _, g := range goroutines() {
		s.goroutines[g.id] = true
	}
	if s.fds, err = openFDs(); err != nil {
		return nil, err
	}
	s.arenas, s.bytes = mem.Live()
	for _, g := range gauges {
		s.counts = append(s.counts, g.Read())
	}
	return s, nil
}

// openFDs returns nil where descriptors are not visible.
func openFDs() (map[int]string, error) {
	fds, err := sys.OpenFDs()
	if errors.Is(err, sys.ErrUnsupported) {
		return nil, nil
	}
	return fds, err
}

// Check compares the current state with the snapshot, repeatedly until nothing is left or wait
// has passed, and returns the remaining resources as an [*Error]; nil for none. It blocks the
// calling goroutine for at most about wait.
func (s *Snapshot) Check(wait time.Duration) error {
	limit := time.Now().Add(wait)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		left, err := s.compare()
		if err != nil || left == nil {
			return err
		}
		if time.Now().After(limit) {
			return left
		}
		runtime.Gosched()
		<-tick.C
	}
}

// compare returns the resources that are not in the snapshot.
func (s *Snapshot) compare() (*Error, error) {
	e := Error{Goroutines: s.Started()}
	fds, err := openFDs()
	if err != nil {
		return nil, err
	}
	kept := keptByCM(s.fds, fds)
	for fd, what := range fds {
		if was, ok := s.fds[fd]; (!ok || was != what) && !kept[fd] {
			e.Descriptors = append(e.Descriptors, fmt.Sprintf("%d: %s", fd, what))
		}
	}
	slices.Sort(e.Descriptors)
	arenas, bytes := mem.Live()
	if arenas > s.arenas || bytes > s.bytes {
		e.Arenas, e.Bytes = arenas-s.arenas, bytes-s.bytes
	}
	for i, g := range s.gauges {
		if n := g.Read() - s.counts[i]; n > 0 {
			e.Gauges = append(e.Gauges, fmt.Sprintf("%d more %s", n, g.Name))
		}
	}
	if e.empty() {
		return nil, nil
	}
	return &e, nil
}

// Started returns the stacks of the goroutines that are not in the snapshot. It does not wait for
// any to end. Use it in a test of whether goroutines were started: runtime.NumGoroutine counts
// too many while a garbage collection has taken the ended ones off their list to free their
// stacks (Go 1.26, mgcmark.go, markrootFreeGStacks); the stacks are listed while the world is
// stopped.
func (s *Snapshot) Started() (stacks []string) {
	for _, g := range goroutines() {
		if !s.goroutines[g.id] && !g.harmless() {
			stacks = append(stacks, g.text)
		}
	}
	return stacks
}

// Error lists the resources left behind.
type Error struct {
	Goroutines  []string // their stacks, as runtime.Stack prints them
	Descriptors []string // number and description
	Arenas      int      // mappings of package mem, more than before
	Bytes       int64    // their size, more than before
	Gauges      []string // the name and count of each gauge that grew
}

func (e *Error) empty() bool {
	return len(e.Goroutines)+len(e.Descriptors)+len(e.Gauges) == 0 && e.Arenas == 0 && e.Bytes == 0
}

// Error lists everything, a stack per goroutine.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "leak: left behind: %d goroutines, %d descriptors, %d mappings (%d bytes)",
		len(e.Goroutines), len(e.Descriptors), e.Arenas, e.Bytes)
	for _, g := range e.Gauges {
		b.WriteString(", " + g)
	}
	for _, d := range e.Descriptors {
		b.WriteString("\ndescriptor " + d)
	}
	for _, g := range e.Goroutines {
		b.WriteString("\n" + g)
	}
	return b.String()
}
