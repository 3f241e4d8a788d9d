package actor

import (
	"context"
	"reflect"
	"runtime"
)

// insideKey is the context key of the system of the handler's actor.
type insideKey struct{}

// runEntry is the entry of core.run; handlers run above it on the stack.
var runEntry = runtime.FuncForPC(reflect.ValueOf((*core).run).Pointer()).Entry()

// inside reports whether a handler calls on its own goroutine. It checks ctx first, and then the
// stack, which finds a handler that passed another context. So a forgotten context cannot make an
// actor wait for its own mailbox, or for a cycle of mailboxes. The stack walk takes about a
// microsecond; only callers about to wait use it.
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
