package runtime

import "slices"

// waiter is somebody in a line of those who wait for something to arrive.
type waiter interface {
	// wanted reports whether the wait was not given up. False is final.
	wanted() bool
	// giveUp ends a wait that nobody wants: its memory goes back.
	giveUp()
}

// pruneFrom is how many waits are worth looking through.
const pruneFrom = 64

// served is line without its first n, which were served, and without waits that
// were given up behind one that was not. It looks for those only when the line has
// at least pruneFrom places and twice kept, the shortest it was since the last look:
// so a wait costs a constant, and those given up are never more than the others were
// or pruneFrom. Holder only.
func served[W waiter](line []W, n int, kept *int) []W {
	line = slices.Delete(line, 0, n)
	*kept = min(*kept, len(line))
	if len(line) < max(pruneFrom, 2**kept) {
		return line
	}
	line = wanted(line)
	*kept = len(line)
	return line
}

// wanted is line without the waits that were given up. Holder only.
func wanted[W waiter](line []W) []W {
	return slices.DeleteFunc(line, func(w W) bool {
		if w.wanted() {
			return false
		}
		w.giveUp()
		return true
	})
}
