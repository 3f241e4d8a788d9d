package overhead

import (
	"context"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Rule: every conversation that is had in the guest works between two runtimes, and its
// times are in order.
func TestConversations(t *testing.T) {
	for what, v := range conversations {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			open := func(device string) *verbena.Runtime {
				rt, err := verbena.Open(verbena.Config{Device: device})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					ctx, cancel := context.WithTimeout(context.Background(), tearDown)
					defer cancel()
					if err := rt.Close(ctx); err != nil {
						t.Error(err)
					}
				})
				return rt
			}
			there, here := open("soft1"), open("soft0")
			const n = 300 // not a multiple of anything
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
			if found[vOps] != n || found[vWall] <= 0 {
				t.Errorf("it found %v", found)
			}
			if what != "rate" && (found[vP50] <= 0 || found[vP50] > found[vP99] || found[vP99] > found[vMost]) {
				t.Errorf("its times are %v", found)
			}
		})
	}
}
