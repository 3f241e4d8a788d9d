package actor

import (
	"context"
	"reflect"
	"runtime"
	"runtime/debug"
)

// insideKey is the key for which a handler's Context has the actor's System as value.
type insideKey struct{}

// runEntry is the entry address of core.run, which is on the stack of every running handler.
var runEntry = runtime.FuncForPC(reflect.ValueOf((*core).run).Pointer()).Entry()

// faultsPanic reports whether a fault on this goroutine is a panic (debug.SetPanicOnFault). core.run
// sets this for its goroutine. So without it the caller is no handler, unless the handler has cleared
// it. Go has no other mark of a goroutine that can be read in less time than the stack.
func faultsPanic() bool {
	is := debug.SetPanicOnFault(false)
	if is {
		debug.SetPanicOnFault(true)
	}
	return is
}

// inside reports whether a handler is the caller: ctx derives from a handler's Context, or core.run
// is on the goroutine's stack. The search of the stack recognizes a handler that passes another
// context. Without the search, such a handler could wait for room in its own mailbox, or several
// handlers could wait for one another. The search takes about a microsecond, so it is only made on
// goroutines that may be a handler's, before a wait.
func inside(ctx context.Context) bool {
	if ctx.Value(insideKey{}) != nil {
		return true
	}
	if !faultsPanic() {
		return false
	}
	return onStack(runEntry, 3)
}

// onStack reports whether the function with this entry address, which is not inlined, is on the
// goroutine's stack. It skips the innermost frames, as runtime.Callers does.
func onStack(entry uintptr, skip int) bool {
	var space [64]uintptr
	for ; ; skip += len(space) {
		n := runtime.Callers(skip, space[:])
		for _, pc := range space[:n] {
			if f := runtime.FuncForPC(pc - 1); f != nil && f.Entry() == entry {
				return true
			}
		}
		if n < len(space) {
			return false
		}
	}
}
