//go:build linux && cgo && !portable

package ibv

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// batches are the lengths of the lists that are posted with one doorbell.
var batches = []int{1, rigDepth}

// BenchmarkInstant measures posting and polling on the instant device, a list of requests with
// one completion in each round: through Execute, and in a C program's loop over the same library,
// which is the lower bound. The difference is our overhead.
func BenchmarkInstant(b *testing.B) {
	for _, n := range batches {
		b.Run(fmt.Sprintf("c_%d", n), func(b *testing.B) { loopInC(b, n) })
		b.Run(fmt.Sprintf("turn_%d", n), func(b *testing.B) { loopOfTurns(b, n, false, Config{}) })
	}
}

// BenchmarkExtended is the same round with the newer interface: extended posting, and completion
// queues polled by ibv_start_poll. It decided the default of Config.ExtendedCQ.
func BenchmarkExtended(b *testing.B) {
	for _, n := range batches {
		b.Run(fmt.Sprintf("plain_%d", n), func(b *testing.B) { loopOfTurns(b, n, false, Config{}) })
		b.Run(fmt.Sprintf("posting_%d", n), func(b *testing.B) { loopOfTurns(b, n, true, Config{}) })
		b.Run(fmt.Sprintf("polling_%d", n), func(b *testing.B) { loopOfTurns(b, n, false, Config{ExtendedCQ: true}) })
	}
}

// loopInC runs the C program for the rounds of the benchmark and reports the time that it
// measures.
func loopInC(b *testing.B, n int) {
	lib := filepath.Dir(nullPaths(b).Verbs)
	bin := filepath.Join(b.TempDir(), "loop")
	cmd := exec.Command(compiler(b), "-std=gnu11", "-O2", "-pthread", "-Wno-unused-function", "-I"+filepath.Join(lib, "abi"), "-I"+filepath.Join(lib, "c"),
		"-o", bin, filepath.Join("nulldev", "testdata", "loop.c"), "-L"+lib, "-l:libibverbs.so.1", "-l:librdmacm.so.1", "-Wl,-rpath,"+lib)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(bin, strconv.Itoa(b.N), strconv.Itoa(n)).CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	ns := must.Get(strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64))(b)
	b.ReportMetric(float64(ns)/float64(b.N), "ns/op")
}

func loopOfTurns(b *testing.B, n int, extended bool, cfg Config) {
	null := must.Get(nulldev.Open(nullPaths(b)))(b)
	defer null.Close()
	null.SetMode(nulldev.Instant)
	r := newRig(b, cfg)
	turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(n), Count: n, Extended: extended}}, Polls: []verbs.PollGroup{{CQ: r.cq, WC: r.wc}}}
	for i := range n - 1 {
		r.sends[i].Flags = 0
	}
	before := null.Stats()
	b.ReportAllocs()
	start := time.Now()
	for range b.N {
		err := r.ctx.Execute(&turn)
		if g, p := &turn.Sends[0], &turn.Polls[0]; err != nil || g.Accepted != n || p.N != 1 {
			b.Fatalf("%v, %+v, %+v", err, g, p)
		}
	}
	b.ReportMetric(float64(time.Since(start))/float64(b.N), "ns/op")
	if s := null.Stats(); s.Doorbells-before.Doorbells != uint64(b.N) || s.Completions-before.Completions != uint64(b.N) {
		b.Errorf("%d rounds: %d doorbells, %d completions", b.N, s.Doorbells-before.Doorbells, s.Completions-before.Completions)
	}
}
