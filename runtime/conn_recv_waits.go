package runtime

import "slices"

// waiter is one wait for an arrival, in a line of waiters.
type waiter interface {
	// wanted reports whether the wait was not given up. False is final.
	wanted() bool
	// giveUp ends a wait that was given up and frees its memory.
	giveUp()
}

// pruneFrom is the shortest line to prune.
const pruneFrom = 64

// served returns line without its first n waits, which were served. It also prunes waits that
// were given up, if the line is at least pruneFrom and twice *kept long. *kept is the shortest
// length since the last pruning. So the cost per wait is constant, and at most as many waits
// were given up as there were others, or pruneFrom if that is more. Holder only.
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

// wanted returns line without the waits that were given up, and ends those. Holder only.
func wanted[W waiter](line []W) []W {
	return slices.DeleteFunc(line, func(w W) bool {
		if w.wanted() {
			return false
		}
		w.giveUp()
		return true
	})
}
