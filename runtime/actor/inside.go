package actor

import (
	"context"
	"reflect"
	"runtime"
)

// insideKey is the context key of the system of the handler's actor.
type insideKey struct{}

// runEntry is the entry address of core.run, which is on the stack of every running handler.
var runEntry = runtime.FuncForPC(reflect.ValueOf((*core).run).Pointer()).Entry()

// inside reports whether the caller is a handler: ctx derives from a handler's Context, or the
// goroutine's stack contains core.run. The stack shows a handler that passed another context, which
// could otherwise make an actor wait for its own mailbox, or for a cycle of mailboxes. The stack
// walk takes about a microsecond; inside is only called before a wait.
func inside(ctx context.Context) bool {
	if ctx.Value(insideKey{}) != nil {
		return true
	}
	var space [64]uintptr
	for skip := 2; ; skip += len(space) {
		n := runtime.Callers(skip, space[:])
		for _, pc := range space[:n] {
			if f := runtime.FuncForPC(pc - 1); f != nil && f.Entry() == runEntry {
				return true
			}
		}
		if n < len(space) {
			return false
		}
	}
}
