package runtime

import (
	"fmt"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
)

// calls are the Calls of a connection that wait for their answers, by the numbers of their questions:
//
//	Call: number ──> match: add, post ──> take: the answer with the number ──> the Call's future
//	                          │
//	                          ├──> the future was discarded: remove, at the answer or when the table is full
//	                          └──> no more messages arrive: end
//
// It is a hash table: the Calls of one place are linked by recvWaiter.next. A number is used again after 2^32
// questions. Holder only.
type calls struct {
	heads []*recvWaiter // the length is a power of two, or 0 before the first Call
	open  int           // Calls in the table. Some may be given up.
}

// minCalls is the smallest length of calls.heads that is not 0.
const minCalls = 16

// at returns the link to the Call with the number, which is a nil link if there is none. The table must not be
// empty.
func (t *calls) at(number uint32) **recvWaiter {
	at := &t.heads[number&uint32(len(t.heads)-1)]
	for *at != nil && (*at).number != number {
		at = &(*at).next
	}
	return at
}

// add adds w. It returns false if a Call with the same number waits.
func (t *calls) add(w *recvWaiter) bool {
	if t.open == len(t.heads) {
		t.prune()
	}
	at := t.at(w.number)
	if old := *at; old != nil {
		if old.wanted() {
			return false
		}
		t.remove(at).giveUp()
	}
	w.next, *at = *at, w // at is the end of the list
	t.open++
	return true
}

// take removes the Call with the number and returns it, or nil if there is none.
func (t *calls) take(number uint32) *recvWaiter {
	if t.open == 0 {
		return nil
	}
	at := t.at(number)
	if *at == nil {
		return nil
	}
	w := t.remove(at)
	if n := len(t.heads); n > minCalls && t.open < n/8 {
		t.resize(n / 2)
	}
	return w
}

// waits reports whether a Call waits for the answer to the question with the number.
func (t *calls) waits(number uint32) bool {
	if t.open == 0 {
		return false
	}
	w := *t.at(number)
	return w != nil && w.wanted()
}

// waiting returns the number of Calls that were not given up.
func (t *calls) waiting() (n int) {
	for _, w := range t.heads {
		for ; w != nil; w = w.next {
			if w.wanted() {
				n++
			}
		}
	}
	return n
}

func (t *calls) remove(at **recvWaiter) *recvWaiter {
	w := *at
	*at, w.next = w.next, nil
	t.open--
	return w
}

// prune removes the Calls that were given up, and makes the table larger if more than half of it is left. So the
// cost of pruning is constant per Call.
func (t *calls) prune() {
	for i := range t.heads {
		for at := &t.heads[i]; *at != nil; {
			if (*at).wanted() {
				at = &(*at).next
			} else {
				t.remove(at).giveUp()
			}
		}
	}
	if n := len(t.heads); t.open >= n/2 {
		t.resize(max(2*n, minCalls))
	}
}

// resize moves the Calls to a table of length n.
func (t *calls) resize(n int) {
	was := t.heads
	t.heads = make([]*recvWaiter, n)
	for _, w := range was {
		for w != nil {
			next := w.next
			at := &t.heads[w.number&uint32(n-1)]
			w.next, *at = *at, w
			w = next
		}
	}
}

// endAll ends all Calls with err.
func (t *calls) endAll(err error) {
	for i := range t.heads {
		for t.heads[i] != nil {
			t.remove(&t.heads[i]).end(Message{}, err)
		}
	}
}

// newQuestion returns the number of a question. Any goroutine may call it.
func (c *Conn) newQuestion() uint32 {
	for {
		if n := c.asked.Add(1); n != 0 { // 0 is no question
			return n
		}
	}
}

// ask posts the question of the Call w, which waits from now on. Holder only.
func (c *Conn) ask(w *recvWaiter) {
	// If no more messages arrive, the queue is sealed: then the request ends with an error, which unheard ignores.
	c.q.PostFilled(w.slot)
	switch {
	case c.drained:
		w.end(Message{}, c.overCause())
	case !c.calls.add(w):
		err := fmt.Errorf("%w: a question waits for its answer since 2^32 later ones", ErrTooMany)
		c.sh.r.Defer(func() { c.fail(err) })
		w.end(Message{}, err)
	case c.uncovered():
		c.sendCreditUpdate()
	}
}

// overCause is the error of a wait for a message when no more messages arrive.
func (c *Conn) overCause() error {
	if err := c.cause.Load(); err != nil {
		return err
	}
	return ErrConnClosed
}

// takeAnswer gives the answer in s to the Call that has asked. Without such a Call it drops the answer. Holder
// only.
func (c *Conn) takeAnswer(s *recvSlot) {
	w := c.calls.take(s.asked)
	if w == nil || !w.wanted() {
		if w != nil {
			w.end(Message{}, futures.ErrDiscarded)
		}
		c.spent++
		c.dropAnswer(s)
		return
	}
	var m Message
	c.handOut(s.i, &m)
	m.answer = true
	w.end(m, nil)
}

// dropAnswer ends an answer that no Call waits for. Any goroutine may call it.
func (c *Conn) dropAnswer(s *recvSlot) {
	c.rt.staleAnswers.Add(1)
	s.giveUp(c)
}

// decline ends a large answer that no Call waits for without reading it. Holder only.
func (c *Conn) decline(s *recvSlot) {
	fs, f := c.fetches, s.large
	s.large = nil
	fs.unsent = append(fs.unsent, f.from.Key)
	c.answerFetched()
	c.spent++
	c.dropAnswer(s)
}

// CallStats are counters of [Conn.Call].
type CallStats struct {
	// StaleAnswers is the number of answers that were dropped because no Call waited for them: the Call has ended
	// with its context, or the peer has answered twice or has answered what was not asked.
	StaleAnswers uint64
}

// CallStats returns the counters of all connections together. Any goroutine may call it; it does not block.
func (rt *Runtime) CallStats() CallStats { return CallStats{StaleAnswers: rt.staleAnswers.Load()} }

// frameOf returns the frame of a message of the given kind. w says whether it asks or answers.
func (c *Conn) frameOf(k proto.Kind, length int, w *submitOpts) proto.Frame {
	f := c.frame(k, length)
	f.Number, f.Answer = w.number, w.answers
	return f
}
