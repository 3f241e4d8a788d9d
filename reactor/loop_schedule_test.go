package reactor_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
)

// Rule: if Schedule is called several times before the task runs, the task runs once. A call after
// that run causes another run.
func TestATaskRunsAgain(t *testing.T) {
	l := newLone(t, reactor.Config{Stepped: true}, nil)
	defer l.close(t)
	ran := 0
	task := reactor.Task{Fn: func() { ran++ }}
	for want := range 3 {
		l.r.Schedule(&task, false)
		l.r.Schedule(&task, true)
		if l.r.Step(); ran != want+1 {
			t.Errorf("the task ran %d times, want %d", ran, want+1)
		}
	}
}
