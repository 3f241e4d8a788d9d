package plog

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// Rule: Append waits for memory only until its context ends. The record is not in the log then, and the writer goes on.
// (The bug: it waited for the mutex of the runtime's memory, and for the system.)
func TestAppendWaitsForMemoryWithItsContext(t *testing.T) {
	s := newServer(t, Config{Lanes: 1})
	plan := new(nth.Plan)
	rt := openWith(t, verbena.Config{Provider: nth.Wrap(soft.Default(), plan)})
	w := joined(t, rt, s, 0)
	first := must.Get(w.Append(testContext(t), []byte("warm")))(t)
	payload := make([]byte, 3000) // of a size that no pool has yet
	entered, release := plan.Hold("ibv_reg_mr")
	defer release()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := w.Append(ctx, payload)
		ended <- err
	}()
	<-entered
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknown) {
			t.Errorf("Append while the system pins memory: %v, want the error of the context, and no ErrUnknown", err)
		}
	case <-testContext(t).Done():
		t.Error("Append waits for the system beyond its context")
	}
	release()
	if next := must.Get(w.Append(testContext(t), payload))(t); next != first+1 {
		t.Errorf("the next record is at %d, want %d: behind the first", next, first+1)
	}
}
