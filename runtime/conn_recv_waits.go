package runtime

import "slices"

// waiter is one wait for a message, or for a connection to accept. Waits stand in a line, oldest
// first. A wait whose future was discarded stays in its line until the line is pruned.
type waiter interface {
	// wanted reports whether the result is still wanted. False is final.
	wanted() bool
	// giveUp ends a wait whose result is not wanted, and frees its memory.
	giveUp()
}

// pruneFrom is the shortest line to prune.
const pruneFrom = 64

// The function served removes the first n waits of line, which have got their results, and returns
// the others. If len(line) >= max(pruneFrom, 2 * *kept) after that, it also prunes the line: it
// ends and removes the waits whose result is not wanted. *kept is the shortest length of the line
// since the last pruning. So the average cost of pruning is constant per wait, and the line does
// not grow above max(pruneFrom, twice its length after the last pruning). Holder only.
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

// The function wanted ends the waits whose result is not wanted, and returns line without them.
// Holder only.
func wanted[W waiter](line []W) []W {
	return slices.DeleteFunc(line, func(w W) bool {
		if w.wanted() {
			return false
		}
		w.giveUp()
		return true
	})
}
