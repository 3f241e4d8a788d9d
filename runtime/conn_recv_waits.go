package runtime

import "slices"

// waiter is one wait in a line: for a message, or for a connection to accept.
type waiter interface {
	// wanted reports whether the result is still wanted. False is final.
	wanted() bool
	// giveUp ends a wait that was given up and frees its memory.
	giveUp()
}

// pruneFrom is the shortest line to prune.
const pruneFrom = 64

// The function served returns line without its first n waits, which were served. If then
// len(line) >= max(pruneFrom, 2 * *kept), it also removes waits that were given up. *kept is the
// shortest length since the last such pruning. So the cost per wait is constant, and the line
// stays shorter than pruneFrom or than twice its length after the last pruning. Holder only.
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

// The function wanted ends the waits that were given up, and returns line without them. Holder
// only.
func wanted[W waiter](line []W) []W {
	return slices.DeleteFunc(line, func(w W) bool {
		if w.wanted() {
			return false
		}
		w.giveUp()
		return true
	})
}
