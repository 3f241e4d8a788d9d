package soft

import "time"

// habit is whether the program of a queue pair answers messages at once. The engine's.
//
// A goroutine that waits for messages arms its completion queues when it has got one, and also before it sleeps: the
// device sees no difference. In the first case the acknowledgement should wait for the answer, which comes within
// microseconds. In the second it should leave. So the device learns from what the program did before. An answer is any
// new request of the queue pair: the acknowledgement can leave with it.
//
//	      a late answer, or no answer before the next message
//	    ┌────────────────────────────────────────────────────┐
//	    v                                                    │
//	not known ───── habitAnswers << broken answers ─────> answers
//
// If the program then neither answers a message nor polls, the acknowledgement is late: by owedTime, or until a
// processor is free for Go's timers. Each time broken is incremented: after maxBroken times, this happens to at most one
// message in 4,096.
//
// In alternating runs a ping-pong of two processes took 8.5 µs of time and 9.2 µs of each processor a message
// without habits, and takes 5.9 and 6.4.
type habit struct {
	psn    uint64        // of the last message whose acknowledgement was owed
	at     time.Duration // when it was received
	open   bool          // no request was sent since
	broken uint8         // habits that ended with a message without an answer in owedTime, at most maxBroken
	soon   uint16        // messages in a row that were answered within answerTime, up to a habit
}

const (
	// habitAnswers is how many answers in a row make the first habit.
	habitAnswers = 16
	// maxBroken bounds a habit to 4,096 answers, which a steady program gives within some 50 ms.
	maxBroken = 8
	// answerTime is far more than a program takes that answers at once, even if it had to be woken up.
	answerTime = 100 * time.Microsecond
)

// received notes that the acknowledgement of the message psn is owed at now. It may be called again for that message.
func (h *habit) received(psn uint64, now time.Duration) {
	if psn == h.psn {
		return
	}
	if h.open {
		h.breaks()
	}
	h.psn, h.at, h.open = psn, now, true
}

// answered notes that a new request was sent at now.
func (h *habit) answered(now time.Duration) {
	switch {
	case !h.open:
	case now-h.at >= owedTime:
		h.breaks()
	case now-h.at > answerTime:
		h.soon = 0
	case !h.answers():
		h.soon++
	}
	h.open = false
}

// breaks ends the habit because of a message that was not answered before its acknowledgement left.
func (h *habit) breaks() {
	if h.answers() && h.broken < maxBroken {
		h.broken++
	}
	h.soon = 0
}

// answers reports whether the program is known to answer at once.
func (h *habit) answers() bool { return h.soon >= habitAnswers<<h.broken }
