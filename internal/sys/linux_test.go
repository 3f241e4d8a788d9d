//go:build linux && !portable

package sys

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
)

// fdSource is polled by its descriptor, like a kernel source.
type fdSource struct{ *Event }

func (fdSource) Notify(func()) {}

// A source that is polled by its descriptor and not drained is reported again.
func TestDescriptorsAreLevelTriggered(t *testing.T) {
	p, e := newPoller(t), newEvent(t)
	attach(t, p, fdSource{e}, 5)
	if got := look(t, p); len(got) != 0 {
		t.Fatalf("%v are ready, want none", got)
	}
	e.Signal()
	keys := make([]uint32, 2)
	for range 3 {
		if n, err := p.Wait(soon(), keys); n != 1 || keys[0] != 5 || err != nil {
			t.Fatalf("Wait = %v, %v; want [5]", keys[:n], err)
		}
	}
	e.Drain()
	if got := look(t, p); len(got) != 0 {
		t.Fatalf("%v are ready after draining, want none", got)
	}
	e.Signal()
	if err := p.Detach(5); err != nil {
		t.Fatal(err)
	}
	if got := look(t, p); len(got) != 0 {
		t.Fatalf("%v are ready after Detach, want none", got)
	}
	// One more than the keys and the event buffer hold: each is reported in turn.
	seen := map[uint32]bool{}
	for i := uint32(100); i < 100+2*maxEvents; i++ {
		e := newEvent(t)
		e.Signal()
		attach(t, p, fdSource{e}, i)
	}
	for range 2 * maxEvents {
		n := must.Get(p.Wait(past, keys))(t)
		for _, k := range keys[:n] {
			seen[k] = true
		}
	}
	if len(seen) != 2*maxEvents {
		t.Errorf("%d of %d sources were reported", len(seen), 2*maxEvents)
	}
}

// Descriptors wake a sleeper each time: the edge of the outer poller is never lost.
func TestDescriptorsPingPong(t *testing.T) {
	limit := soon()
	end := rounds() / 4
	var wg sync.WaitGroup
	a, b := newEvent(t), newEvent(t)
	play := func(p *Poller, mine, other *Event) {
		keys := make([]uint32, 1)
		for i := 0; i < end; {
			n, err := p.Wait(limit, keys)
			if err != nil || time.Now().After(limit) {
				t.Errorf("stuck at %d of %d: %v", i, end, err)
				return
			}
			if n > 0 && mine.Drain() > 0 {
				i++
				other.Signal()
			}
		}
	}
	pa, pb := newPoller(t), newPoller(t)
	attach(t, pa, fdSource{a}, 1)
	attach(t, pb, fdSource{b}, 1)
	wg.Go(func() { play(pa, a, b) })
	wg.Go(func() { play(pb, b, a) })
	a.Signal()
	wg.Wait()
}

func TestDescriptorsAllocateNothing(t *testing.T) {
	p, e := newPoller(t), newEvent(t)
	attach(t, p, fdSource{e}, 1)
	keys := make([]uint32, 2)
	if n := testing.AllocsPerRun(200, func() {
		e.Signal()
		if n, err := p.Wait(soon(), keys); n != 1 || err != nil {
			t.Fatalf("Wait = %d, %v", n, err)
		}
		e.Drain()
		p.Wake()
		if _, err := p.Wait(time.Time{}, keys); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per turn, want 0", n)
	}
}

// FD is not called on a source that announces itself.
func TestAnnouncingSourcesNeedNoDescriptor(t *testing.T) {
	p, e := newPoller(t), newEvent(t)
	attach(t, p, e, 1)
	if e.fd.ref.Load() != nil {
		t.Error("attaching an event made a descriptor")
	}
	e.Signal()
	if fd := e.FD(); fd < 0 {
		t.Fatal("an event has no descriptor when asked for it")
	}
	q := newPoller(t) // sees the signal that came before the descriptor
	attach(t, q, fdSource{e}, 2)
	if got := look(t, q); !slices.Equal(got, []uint32{2}) {
		t.Errorf("ready: %v, want 2: a raised event has a readable descriptor", got)
	}
}

func TestDescriptorsAreClosed(t *testing.T) {
	open := func() map[int]string {
		t.Helper()
		fds := must.Get(OpenFDs())(t)
		return fds
	}
	before := open()
	for range 20 {
		p := must.Get(NewPoller())(t)
		e := must.Get(NewEvent())(t)
		attach(t, p, fdSource{e}, 1)
		if what := open()[e.FD()]; what != "anon_inode:[eventfd]" {
			t.Fatalf("descriptor %d is %q", e.FD(), what)
		}
		if err := errors.Join(p.Close(), e.Close()); err != nil {
			t.Fatal(err)
		}
		if e.FD() != -1 {
			t.Fatal("a closed event gives a descriptor")
		}
	}
	for fd, what := range open() {
		if _, ok := before[fd]; !ok && (what == "anon_inode:[eventfd]" || what == "anon_inode:[eventpoll]") {
			t.Errorf("descriptor %d (%s) stays open", fd, what)
		}
	}
}

func TestNodesFromFiles(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if nodes, err := NodesAt(root); err != nil || len(nodes) != 1 || len(nodes[0].CPUs) != runtime.NumCPU() {
		t.Errorf("nothing to read: %+v, %v; want one node with all processors", nodes, err)
	}
	write("online", "0,2\n")
	if nodes, err := NodesAt(root); err == nil {
		t.Errorf("a node without a directory: %+v, want an error", nodes)
	}
	write("node0/cpulist", "0-1,4\n")
	write("node0/meminfo", "Node 0 MemTotal:       4096 kB\nNode 0 MemFree: 12 kB\n")
	write("node2/cpulist", "\n")
	want := []Node{{ID: 0, CPUs: []int{0, 1, 4}, MemBytes: 4 << 20}, {ID: 2}}
	if nodes, err := NodesAt(root); err != nil || !reflect.DeepEqual(nodes, want) {
		t.Errorf("%+v, %v; want %+v", nodes, err, want)
	}
	write("node2/cpulist", "0-4294967295")
	if nodes, err := NodesAt(root); err == nil {
		t.Errorf("a hostile list: %d nodes, want an error", len(nodes))
	}
}

func TestPinThread(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		cpus, err := ThreadCPUs()
		if err != nil || len(cpus) == 0 {
			t.Errorf("ThreadCPUs = %v, %v", cpus, err)
			return
		}
		last := cpus[len(cpus)-1:]
		if err := PinThread(last); err != nil {
			t.Error(err)
			return
		}
		if got, err := ThreadCPUs(); err != nil || !slices.Equal(got, last) {
			t.Errorf("pinned to %v, %v; want %v", got, err, last)
		}
		for _, bad := range [][]int{nil, {-1}, {maxCPU}, {maxCPU - 1}} {
			if PinThread(bad) == nil {
				t.Errorf("pinned to %v", bad)
			}
		}
	}()
	<-done
}

// Rule: a source attached with AttachOnce is reported one time after each Rearm, at once if there is
// something to take, and never unarmed.
func TestSourceAttachedOnceIsReportedOnce(t *testing.T) {
	p, e := newPoller(t), newEvent(t)
	must.Do(t, p.AttachOnce(fdSource{e}, 7))
	t.Cleanup(func() { must.Do(t, p.Detach(7)) })
	e.Signal()
	if got := look(t, p); len(got) != 0 {
		t.Errorf("unarmed, %v was reported", got)
	}
	for range 2 {
		must.Do(t, p.Rearm(7))
		if got := look(t, p); !slices.Equal(got, []uint32{7}) {
			t.Errorf("armed, %v was reported, want 7", got)
		}
		if got := look(t, p); len(got) != 0 {
			t.Errorf("reported before, %v was reported again", got)
		}
	}
	e.Drain()
	must.Do(t, p.Rearm(7))
	if got := look(t, p); len(got) != 0 {
		t.Errorf("armed and empty, %v was reported", got)
	}
	e.Signal()
	if got := look(t, p); !slices.Equal(got, []uint32{7}) {
		t.Errorf("after an event %v was reported, want 7", got)
	}
	if err := p.Rearm(8); !errors.Is(err, ErrNotAttached) {
		t.Errorf("arming an unknown key: %v, want %v", err, ErrNotAttached)
	}
}
