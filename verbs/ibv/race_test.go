//go:build linux && cgo && !portable

package ibv

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// afterwards is a number of yields to other goroutines that is enough for a batch that has polled
// to end.
const afterwards = 1000

// closeUnderTurn is an environment variable of the process that makes the mistake.
const closeUnderTurn = "VERBENA_TEST_CLOSE_UNDER_TURN"

// Rule: the race detector reports the close of an object during another goroutine's batch,
// although it does not see the accesses of C. The test runs in a process of its own, which the
// report ends.
func TestClosingUnderATurnIsSeen(t *testing.T) {
	if os.Getenv(closeUnderTurn) != "" {
		closeAfterUnsynchronisedTurn(t)
		return
	}
	if !raceEnabled {
		t.Skip("needs the race detector: go test -race")
	}
	nullPaths(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), closeUnderTurn+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "DATA RACE") || !strings.Contains(string(out), "ibv.used") {
		t.Errorf("%v\n%s", err, out)
	}
}

// closeAfterUnsynchronisedTurn executes a batch in one goroutine and closes in another. Only the
// library's counters, which do not synchronize, show that the batch came first.
func closeAfterUnsynchronisedTurn(t *testing.T) {
	r := newRig(t, Config{})
	cq := must.Get(r.ctx.CreateCQ(4, nil, 0, 0))(t)
	before := r.null.Stats().Polls
	done := make(chan error)
	go func() {
		for r.null.Stats().Polls == before {
			runtime.Gosched()
		}
		for range afterwards {
			runtime.Gosched() // the batch ends
		}
		done <- cq.Close()
	}()
	go func() {
		turn := verbs.IOBatch{Polls: []verbs.PollGroup{{CQ: cq, WC: r.wc}}}
		done <- r.ctx.Execute(&turn)
	}()
	must.Do(t, <-done)
	must.Do(t, <-done)
}
