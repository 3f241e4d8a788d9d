//go:build linux && !portable

package reactor_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor"
)

// pinnedThreads is how many threads of the process may run on one processor only.
func pinnedThreads(t *testing.T) (n int) {
	t.Helper()
	tasks := must(filepath.Glob("/proc/self/task/*/status"))(t)
	for _, f := range tasks {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(text)) {
			list, ok := strings.CutPrefix(line, "Cpus_allowed_list:")
			if ok && !strings.ContainsAny(strings.TrimSpace(list), ",-") {
				n++
			}
		}
	}
	return n
}

// Rule: the loop of PolicyLatency runs on a thread pinned to one processor, and that
// thread is nobody's any more, or as it was, when the reactor is closed.
func TestThePinnedThreadIsGivenBack(t *testing.T) {
	if cpus := must(sys.ThreadCPUs())(t); len(cpus) < 2 {
		t.Skipf("the process may run on processors %v only: there is none to choose", cpus)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	dev := home().open(t, 0)
	r := must(reactor.New(reactor.Config{Context: dev, Policy: reactor.PolicyLatency}))(t)
	if r.Policy() != reactor.PolicyLatency {
		t.Fatalf("the policy is %v", r.Policy())
	}
	until := time.After(10 * time.Second)
	for pinnedThreads(t) != 1 {
		select {
		case <-until:
			t.Fatalf("%d threads are pinned, want the loop's", pinnedThreads(t))
		default:
			runtime.Gosched()
		}
	}
	check(t, r.Close(bounded(t)))
	if n := pinnedThreads(t); n != 0 {
		t.Errorf("%d threads are pinned after Close", n)
	}
	check(t, dev.Close())
}
