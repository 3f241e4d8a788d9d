package overhead

import (
	"context"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Rule: all conversations of the guest work between two runtimes, and their times are in order.
func TestConversations(t *testing.T) {
	for what, v := range conversations {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			open := func(device string) *verbena.Runtime {
				rt := must.Get(verbena.Open(verbena.Config{Device: device}))(t)
				t.Cleanup(func() { must.Do(t, bed.Close(rt)) })
				return rt
			}
			there, here := open("soft1"), open("soft0")
			const n = 300 // not a multiple of any depth
			at, served := make(chan string, 1), make(chan error, 1)
			go func() { served <- v.listen(ctx, there, "127.0.0.2:0", n, func(addr string) { at <- addr }) }()
			var found rounds.Values
			var err error
			select {
			case addr := <-at:
				found, err = v.dial(ctx, here, addr, n)
			case err := <-served:
				t.Fatal("nobody listens:", err)
			}
			if err != nil {
				t.Fatal("who dialled:", err)
			}
			if err := <-served; err != nil {
				t.Error("who listened:", err)
			}
			if found[suite.Ops] != n || found[suite.Wall] <= 0 {
				t.Errorf("it found %v", found)
			}
			if what != "rate" && (found[suite.P50] <= 0 || found[suite.P50] > found[suite.P99] || found[suite.P99] > found[suite.Max]) {
				t.Errorf("its times are %v", found)
			}
		})
	}
}
