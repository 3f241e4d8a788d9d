package reactor

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
)

// Task is a function that the holder of the turn runs after a call of Schedule. It runs at least
// one time after each call; calls close together may share one run. Unlike Defer, Schedule does not
// allocate, and a driver may run the task in place of the loop. The owner of the Task keeps it
// alive. The zero value with Fn set is ready for use.
type Task struct {
	// Fn must not block, panic or end its goroutine: it is a part of the pass.
	Fn   func()
	hook ring.Hook[readyTask]
	// scheduled is set by the Schedule that pushes the task, and cleared by the holder before it
	// calls Fn. A Schedule that finds it set pushes nothing: Fn still runs later, and sees the
	// atomic stores that the caller made before Schedule.
	scheduled atomic.Bool
}

// readyTask is a Task on its reactor's task list.
type readyTask Task

// InboxHook links the task.
func (t *readyTask) InboxHook() *ring.Hook[readyTask] { return &t.hook }

// Schedule has the holder run t soon. Any goroutine may call it, the holder too. If quiet is set,
// Schedule does not wake the loop. The calling goroutine must then next await a future that t
// settles: while it waits, it runs t itself.
func (r *Reactor) Schedule(t *Task, quiet bool) {
	if !t.scheduled.Load() && t.scheduled.CompareAndSwap(false, true) {
		r.tasks.Push((*readyTask)(t))
	}
	if quiet {
		r.tok.SubmittedBeforeDrive()
	} else {
		r.tok.Submitted()
	}
	r.afterClose()
}

func (r *Reactor) runTasks() bool {
	t := r.tasks.TakeAll()
	if t == nil {
		return false
	}
	outer := r.inUserCode
	r.inUserCode = true
	for t != nil {
		next := t.hook.Unlink()
		t.scheduled.Store(false)
		t.Fn()
		t = next
	}
	r.inUserCode = outer
	return true
}
