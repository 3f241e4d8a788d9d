package runtime

import "slices"

// A waiter is one wait for a message, a credit, a datagram or a connection. The waits of a connection, a
// PacketConn or a listener form a line, oldest first. A wait whose future was discarded stays in
// the line until it comes first or the line is pruned.
type waiter interface {
	// wanted returns false if the future of the wait was discarded. After false, it
	// always returns false.
	wanted() bool
	// giveUp ends a wait whose future was discarded, and frees the memory of the wait.
	giveUp()
}

// pruneFrom is the smallest length at which a line is pruned. The discarded waits of a shorter line
// take little memory.
const pruneFrom = 64

// served removes the first n waits, which have got their results, and returns the remaining line.
// If the remaining line has reached a limit, served also prunes the line: it ends and removes the
// waits whose future was discarded. The limit is max(pruneFrom, 2m), where m is the shortest length
// of the line since the last pruning. The variable *kept holds m from one call of served to the
// next. Since a line must double before it is pruned again, the average cost of pruning is constant
// per wait. Holder only.
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

// wanted ends the waits whose future was discarded, and returns the line of the
// remaining waits. Holder only.
func wanted[W waiter](line []W) []W {
	return slices.DeleteFunc(line, func(w W) bool {
		if w.wanted() {
			return false
		}
		w.giveUp()
		return true
	})
}
