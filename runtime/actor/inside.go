package actor

import (
	"context"
	"reflect"
	"runtime"
)

// insideKey is the key for which a handler's Context has the actor's System as value.
type insideKey struct{}

// runEntry is the entry address of core.run, which is on the stack of every running handler.
var runEntry = runtime.FuncForPC(reflect.ValueOf((*core).run).Pointer()).Entry()

// inside reports whether a handler is the caller: ctx derives from a handler's Context, or core.run
// is on the goroutine's stack. The search of the stack recognizes a handler that passes another
// context. Without the search, such a handler could wait for room in its own mailbox, or several
// handlers could wait for one another. The search takes about a microsecond, so inside is only called
// before a wait.
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
