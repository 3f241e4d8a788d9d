package runtime

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/reactor"
)

// Question is the right to answer a question of the peer; see [Message.Question]. Any goroutine may use it. It
// holds neither a receive nor a credit, and may be dropped: then the peer's Call waits until its context ends.
type Question struct {
	c      *Conn
	number uint32
	// claimed is set by the Reply that answers. A Reply that fails clears it. It publishes nothing.
	claimed atomic.Bool
}

// IsQuestion reports whether the message is the question of a [Conn.Call] of the peer, which waits for an answer.
func (m Message) IsQuestion() bool { return m.asked != 0 }

// Question takes the right to answer out of the message, which can then be released before it is answered: a slow
// answer need not hold the receive. After that, Reply of the message returns ErrAnswered. Question does not
// block. It allocates the result.
//
// Errors: ErrInvalid if the message is no question, ErrMessage if it was released, ErrAnswered if it was answered
// or Question was called before.
func (m Message) Question() (*Question, error) {
	if m.slot != nil && !m.IsQuestion() {
		return nil, fmt.Errorf("%w: the message is no question", ErrInvalid)
	}
	c, err := m.claim()
	if err != nil {
		return nil, err
	}
	return &Question{c: c, number: m.asked}, nil
}

// Reply answers the question as [Message.Reply] does. A question is answered once: of several Replies, one goes
// on, and the others return ErrAnswered at once and send nothing.
//
// Errors: ErrAnswered, ErrInvalid for another operation, those of Start. If Reply returns an error, nothing was
// sent. After an error of Start the question can be answered again.
func (q *Question) Reply(ctx context.Context, op *Op) error {
	if !q.claimed.CompareAndSwap(false, true) {
		return ErrAnswered
	}
	if err := q.c.reply(ctx, op, q.number); err != nil {
		q.claimed.Store(false)
		return err
	}
	q.c.posted()
	return nil
}

// reply sends the answer to the question with the number.
func (c *Conn) reply(ctx context.Context, op *Op, number uint32) error {
	if op.kind != startSend && op.kind != startSendBytes {
		return fmt.Errorf("%w: Reply with an operation that is not a message", ErrInvalid)
	}
	_, err := c.start(ctx, op, submitOpts{mode: reactor.NoWakeup, sink: (*unheard)(c), number: number, answers: number != 0})
	return err
}

// posted posts the answer that was submitted.
func (c *Conn) posted() {
	if !c.sh.r.TryPass() {
		c.sh.r.Wake()
	}
}

// claim takes the right to answer the message, and returns its connection. unclaim gives the right back.
func (m Message) claim() (*Conn, error) {
	s := m.slot
	if s == nil || s.released.Load() != m.number {
		return nil, ErrMessage
	}
	c := s.c.Load()
	for {
		was := s.claimed.Load()
		switch {
		case s.released.Load() != m.number: // c may be the connection of a later message
			return nil, ErrMessage
		case was == m.number+1:
			return nil, ErrAnswered
		case s.claimed.CompareAndSwap(was, m.number+1):
			return c, nil
		} // otherwise the claim of an earlier message was given back, or another call has claimed this one
	}
}

func (m Message) unclaim() { m.slot.claimed.CompareAndSwap(m.number+1, m.number) }
