//go:build verbena_model

package actor

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/model/mutate"
)

// failing is a world with a child that fails some times, and a parent that handles the events of it.
func failing(failures int) func() model.World {
	return func() model.World {
		child := &core{}
		lane, handled := 0, 0 // events in the parent's lane, and failures that it was told of
		m := model.World{
			Shared: func(d *model.Digest) {
				if ev := child.unseen.Load(); ev != nil {
					d.Add(uint64(ev.Failures))
				}
				d.Add(uint64(lane)<<32 | uint64(handled))
			},
			Check: func() error {
				if lane > 1 {
					return fmt.Errorf("%d events of one child wait in the lane", lane)
				}
				return nil
			},
			End: func([]string) error {
				if handled != failures {
					return fmt.Errorf("the parent was told of %d failures, want %d", handled, failures)
				}
				return nil
			},
		}
		m.Act("child", func() {
			for i := range failures {
				model.Forget(i)
				model.Yield("fail")
				if !child.merge(&ChildEvent{Failures: 1}) {
					model.Yield("push")
					lane++
				}
			}
		})
		m.Act("parent", func() {
			for {
				model.Forget(0)
				model.Block("look", func() bool { return lane > 0 })
				lane--
				model.Yield("handle")
				handled += child.unseen.Swap(nil).Failures // as systemEvent does
			}
		})
		return m
	}
}

// Rule: in every interleaving the parent is told of each failure once, and at most one event of a child waits.
func TestModelFailures(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		model.Holds(t, fmt.Sprint(n, " failures"), failing(n))
	}
}

// Rule: each protection is needed: without it some interleaving loses a failure, or the lane grows.
func TestModelFailuresMutants(t *testing.T) {
	mutate.Test(t,
		mutate.New("a failure joins the one that waits", "wait in the lane", failing(3)).
			In("failure.go", "old != nil {", "old != nil && !MUTANT {"),
		mutate.New("a failure joins only one that still waits", "was told of", failing(3)).
			In("failure.go", "a.unseen.CompareAndSwap(old, &merged) {", "a.unseen.CompareAndSwap(old, &merged) || MUTANT {"))
}
