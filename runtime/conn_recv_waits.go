package runtime

import "slices"

// A waiter is one wait for a message, a datagram or a connection. Waits stand in a line, oldest
// first. A wait whose future was discarded stays in its line until the line is pruned.
type waiter interface {
	// The method wanted reports whether the result is still wanted. A result that is not wanted
	// never becomes wanted again.
	wanted() bool
	// giveUp ends a wait whose result is not wanted, and frees the memory of the wait.
	giveUp()
}

// pruneFrom is the length from which on a line is pruned.
const pruneFrom = 64

// The function served removes the first n waits of the argument line, which have got their results,
// and returns the remaining line. If the length of this line has reached a limit, served also
// prunes it: it ends and removes the waits whose result is not wanted. The limit is max(pruneFrom,
// 2m), where m is the shortest length of the line since the last pruning. The caller keeps m in
// *kept for the next call. Since a line must double before it is pruned again, the average cost of
// pruning is constant per wait. Holder only.
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

// The function wanted ends the waits whose result is not wanted, and returns the line of the other
// waits. Holder only.
func wanted[W waiter](line []W) []W {
	return slices.DeleteFunc(line, func(w W) bool {
		if w.wanted() {
			return false
		}
		w.giveUp()
		return true
	})
}
