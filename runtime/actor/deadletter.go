package actor

import (
	"reflect"
	"runtime"
	"sync/atomic"
)

// DeadLetter is a message or event that was accepted but not handled, or whose handling failed, or a
// message that Overflow Drop dropped.
type DeadLetter struct {
	ID   uint64 // the actor's number (Ref.ID)
	Name string
	What any // the message, a Completion or a ConnEvent
	Err  error
}

// reporting is the number of calls of Config.DeadLetters in progress, of all systems. Each of these
// calls increments it before, and decrements it after, on its goroutine. deadLetter reads it, to save
// the search of the stack; it sees the call that it is in. It publishes nothing.
var reporting atomic.Int64

// reportEntry is the entry address of System.reportDead, which is on the stack of every call of
// Config.DeadLetters.
var reportEntry = runtime.FuncForPC(reflect.ValueOf((*System).reportDead).Pointer()).Entry()

// deadLetter counts a message or an event that is not handled, and reports it.
//
// A call of Config.DeadLetters may tell a full actor with Overflow Drop. The message is a dead letter,
// too. If it were reported, the call would cause a further one, until the stack overflows. So a dead
// letter with such a call on its stack is only counted. A message that is a DeadLetter is only counted
// on any goroutine.
func (a *core) deadLetter(what any, cause error) {
	s := a.sys
	s.stats.DeadLetters.Add(1)
	if s.cfg.DeadLetters == nil {
		return
	}
	if _, again := what.(DeadLetter); again || reporting.Load() > 0 && onStack(reportEntry, 2) {
		s.stats.Unreported.Add(1)
		return
	}
	s.reportDead(DeadLetter{ID: a.id, Name: a.opt.Name, What: what, Err: cause})
}

// reportDead calls Config.DeadLetters.
//
//go:noinline
func (s *System) reportDead(l DeadLetter) {
	reporting.Add(1)
	defer reporting.Add(-1) // deferred: the function may panic
	s.cfg.DeadLetters(l)
}
