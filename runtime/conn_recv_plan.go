package runtime

// The rules by which the windows of a pool grow and shrink. They are functions of counts, without a clock and
// without the reactor, so that a model of a pool can test them.

// windowPart is the window that each connection of a pool may have, however large the others are: an equal part
// of half of the receives that shares can have. It is at least 1.
func windowPart(usable, members int) int {
	return max(usable/2/max(members, 1)-(minShare-1), 1)
}

// windowGrowth is by how many receives a window of w messages may grow, of most at most. inUse is the number of
// receives in shares. Windows take half of the usable receives as they come. Beyond that, and while a connection
// is denied its part, each may only grow to its part.
func windowGrowth(w, most, inUse, usable, members int, denied bool) int {
	n := windowPart(usable, members) - w
	if !denied {
		n = max(n, usable/2-inUse)
	}
	return max(min((poolGrowth-1)*w, most-w, n), 0)
}

// windowLook is the state of a window when the holder looks at it, every recallEvery.
type windowLook struct {
	window, part int
	denied       bool // a connection has less than its part, and wants more, and there are no receives for it
	used         int  // messages that have arrived since the last look
	unreturned   int  // credits at this end
	peers        int  // credits of the peer, with those that its messages under way have used
	asked        bool // a Recall was not answered
}

// windowPlan is the change that the holder makes to the window.
type windowPlan struct {
	withdraw int // unreturned credits that are taken away
	keep     int // credits that are not granted again when messages return them, until the next look
	recall   int // credits that the peer is asked for, with the one that its answer uses; 0 for no Recall
}

// plan returns what makes an idle window one message, and a window that is above its part, while a
// connection is denied its part, this part: at once if it is little used, and otherwise as it is used.
func (l windowLook) plan() (p windowPlan) {
	target := l.window
	switch {
	case l.used == 0:
		target = 1
	case l.denied:
		target = min(l.window, l.part)
	}
	spare := l.unreturned
	if l.peers == 0 {
		spare-- // the peer gets one
	}
	p.withdraw = max(min(l.window-target, spare), 0)
	over := l.window - target - p.withdraw
	if over == 0 {
		return p
	}
	if l.used > 0 {
		p.keep = over
	}
	if n := min(over+1, l.peers); n > 1 && !l.asked && l.used < max(l.window/4, 1) {
		p.recall = n
	}
	return p
}
