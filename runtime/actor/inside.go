package actor

import (
	"context"
	"reflect"
	"runtime"
)

// insideKey is the key under which a handler's context has its actor's system.
type insideKey struct{}

// runEntry is where core.run begins; handlers run above it on the stack.
var runEntry = runtime.FuncForPC(reflect.ValueOf((*core).run).Pointer()).Entry()

// inside tells whether a handler is what calls, on its own goroutine. ctx shows most,
// at once; a handler that has brought another context shows by its stack. Nobody is
// stuck in its own mailbox, or in a circle of them, because a context was forgotten.
// It takes a microsecond or so, and is for those who are about to wait.
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
