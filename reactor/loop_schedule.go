package reactor

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
)

// Task is a function that the holder of the turn runs after a call of Schedule. After each call of
// Schedule, the function runs at least once; several calls before the run share this run. Unlike
// Defer, Schedule does not allocate, and a driver may run the task in place of the loop. The owner of
// a Task keeps the Task alive. A Task with only Fn set is ready for use.
type Task struct {
	// Fn must not block, panic or end its goroutine, because Fn runs as a part of the pass.
	Fn   func()
	hook ring.Hook[readyTask]
	// scheduled is set while the task waits for a run. Schedule sets it before it pushes the task.
	// The holder clears it before the call of Fn. If scheduled is set already, Schedule pushes
	// nothing, because Fn will still run. That run sees the atomic stores that the caller made
	// before Schedule.
	scheduled atomic.Bool
}

// readyTask is a Task on its reactor's task list.
type readyTask Task

// InboxHook links the task.
func (t *readyTask) InboxHook() *ring.Hook[readyTask] { return &t.hook }

// Schedule queues t; the holder of the turn runs it soon. Any goroutine may call Schedule, the
// holder too. If quiet is true, Schedule does not wake the loop, unless Config.NoCallerDriving is
// set. A caller that passes true must next await a future that t settles. While the caller waits, it
// may drive and so run t itself.
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
