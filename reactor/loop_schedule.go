package reactor

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
)

// Task is a function that the holder runs after Schedule: at least one time after each, but maybe
// only one time for several close together. Unlike a function given to Defer it costs no
// allocation, and a driver may run it in place of the loop. Its owner keeps it alive. The zero
// value with Fn set is ready for use.
type Task struct {
	// Fn must not block, panic or end its goroutine: it is a part of the pass.
	Fn   func()
	hook ring.Hook[readyTask]
	// scheduled is set by the Schedule that pushes the task and cleared by the holder before it
	// calls Fn. If Schedule finds it set, Fn still runs later and sees the caller's earlier atomic
	// stores.
	scheduled atomic.Bool
}

// readyTask is a Task on its reactor's task list.
type readyTask Task

// InboxHook links the task.
func (t *readyTask) InboxHook() *ring.Hook[readyTask] { return &t.hook }

// Schedule has the holder run t soon. Any goroutine may call it, the holder too. If quiet is set,
// Schedule does not wake the loop; the caller must next await, on this goroutine, a future that t
// settles.
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
