package reactor

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
)

// Task is a function that is run, holding the turn, once after every Schedule,
// or once for several that came close together. Unlike a function given to
// Defer it costs no allocation, and a driver runs it too. Its owner keeps it
// alive; the zero value with Fn set is ready.
type Task struct {
	// Fn must not block, panic or end its goroutine: it is a part of the turn.
	Fn   func()
	hook ring.Hook[readyTask]
	// scheduled is set by the Schedule that enqueues and cleared by the holder
	// before it calls Fn: what was published before a Schedule that found it
	// set is seen by Fn.
	scheduled atomic.Bool
}

// readyTask is a Task on its reactor's list.
type readyTask Task

// InboxHook links the task.
func (t *readyTask) InboxHook() *ring.Hook[readyTask] { return &t.hook }

// Schedule has t run soon. Any goroutine, the turn's too. quiet promises that
// the caller awaits, on this goroutine, a future of this reactor that needs it.
func (r *Reactor) Schedule(t *Task, quiet bool) {
	if !t.scheduled.Load() && t.scheduled.CompareAndSwap(false, true) {
		r.tasks.Push((*readyTask)(t))
	}
	if quiet {
		r.tok.Quiet()
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
