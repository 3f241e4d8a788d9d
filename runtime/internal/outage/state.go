package outage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// stages records what each dialing goroutine and each listener of the load does at the moment. The
// zero value is ready for use. Its methods may be called from any goroutine.
type stages struct {
	mu  sync.Mutex
	all map[string]stage // by the name of the goroutine
}

type stage struct {
	what  string
	since time.Time
}

// set records that the goroutine of this name does what from now on.
func (s *stages) set(name, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]stage{}
	}
	s.all[name] = stage{fmt.Sprintf(format, args...), time.Now()}
}

// stuckWait is how long State waits for the reactors.
const stuckWait = 5 * time.Second

// State describes what the load does at the moment: the stage of each dialing goroutine and of each
// listener, the outstanding operations, the outcomes until now, and the operations that the runtime
// reports as stuck. It is for the message of a failed test. It waits for the turn of the reactors, at
// most stuckWait.
func (p *Peer) State() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d connections dialed, %d wanted\n", p.rt.Device().Name, p.connected.Load(), p.wanted)
	p.stages.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(p.stages.all)) {
		s := p.stages.all[name]
		fmt.Fprintf(&b, "  %s: for %v: %s\n", name, time.Since(s.since).Round(time.Millisecond), s.what)
	}
	p.stages.mu.Unlock()
	for _, s := range p.ledger.unended() {
		fmt.Fprintf(&b, "  outstanding: %s\n", s)
	}
	var r Report
	p.ledger.fill(&r)
	for _, k := range slices.Sorted(maps.Keys(r.Ops)) {
		t := r.Ops[k]
		fmt.Fprintf(&b, "  %s: %d ok, failed %v, the first: %s\n", k, t.OK, t.Failed, t.Example)
	}
	stuck := make(chan struct{})
	var all []verbena.Stuck // written before stuck is closed
	go func() { all = p.rt.Stuck(time.Second); close(stuck) }()
	if !wait(stuck, stuckWait) {
		fmt.Fprintf(&b, "  a reactor did not respond within %v\n", stuckWait)
		return b.String()
	}
	for _, s := range all {
		fmt.Fprintf(&b, "  stuck: %v\n", s)
	}
	return b.String()
}
