package reactor

import (
	"context"
)

// BatchSubmitter submits transfers of one queue as one: what submitters share, the free list,
// the submission stack and the ready list, it touches once for up to MaxSubmitBatch of them,
// and nobody's are between them. On one processor each of those is a locked instruction;
// on two it is a line of the cache that must come from the other.
//
//	             Transfer: takes slots, as many as are to come
//	nothing ───────────────────────────────────────────────────> some filled, some in stock
//	   ^                                                                │
//	   └── Submit: the filled to the stack, the others back ────────────┘
//
// It is one goroutine's. Between Transfer and Submit it has slots that others may wait
// for, and the goroutine must not wait for anything else. The zero Several, given Of, is
// ready for use.
type BatchSubmitter struct {
	q           *Queue
	free        [MaxSubmitBatch]uint32
	have, used  int    // free[used:have] are in stock
	first, last uint32 // of those that are filled, the oldest and the newest
	filled      int
}

// MaxSubmitBatch is how many transfers Several submits at once, at most: the shared words are
// a small part of the cost of so many already, and others want slots, too.
const MaxSubmitBatch = 32

// Reset has s submit to q.
func (s *BatchSubmitter) Reset(q *Queue) { s.q = q }

// Transfer is Queue.Transfer of one that Submit submits; it submits those before it if it
// has to wait for room. more is how many are to come behind this one. What t points to is
// the caller's again when it returns. With an error the others are as before: Submit them.
func (s *BatchSubmitter) Transfer(ctx context.Context, t *Transfer, more int, m SubmitMode) (f Future, err error) {
	if ctx == nil {
		return f, ErrNilContext
	}
	q := s.q
	k := kindOf(t.Opcode)
	if !q.isTransfer(t, k) {
		return f, q.whyNoTransfer(t, k)
	}
	if s.used == s.have {
		if err := s.acquireSlot(ctx, more+1, m); err != nil {
			return f, err
		}
	}
	i := s.free[s.used]
	s.used++
	if t.Sink == nil {
		_, f = q.r.futures.NewIn(&q.tab.slots[i].seat, q.r.driver)
	}
	q.fillTransfer(i, t, k)
	if s.filled == 0 {
		s.first = i
	} else {
		q.sendStack.Over(i, s.last)
	}
	s.last = i
	s.filled++
	return f, nil
}

// acquireSlot takes slots, as Queue.acquireSlot. There are none in stock.
func (s *BatchSubmitter) acquireSlot(ctx context.Context, want int, m SubmitMode) error {
	q := s.q
	s.push(m) // a full stock at most, and it does not wait for its own room
	s.used, s.have = 0, q.sendFree.GetN(s.free[:min(want, MaxSubmitBatch)])
	if s.have == 0 {
		i, err := q.waitSlot(ctx, m)
		if err != nil {
			return err
		}
		s.free[0], s.have = i, 1
	}
	if q.failed.err.Load() != nil { // after taking, as in Queue.acquireSlot
		return q.failed.get()
	}
	return nil
}

// Submit submits what is filled, and gives back what is in stock.
func (s *BatchSubmitter) Submit(m SubmitMode) {
	s.push(m)
	s.release()
}

func (s *BatchSubmitter) push(m SubmitMode) {
	if s.filled > 0 {
		s.q.sendStack.PushAll(s.first, s.last)
		s.filled = 0
		s.q.submit(m)
	}
}

func (s *BatchSubmitter) release() {
	if s.used < s.have {
		s.q.sendFree.PutN(s.free[s.used:s.have])
		s.used, s.have = 0, 0
		if s.q.failed.err.Load() != nil {
			s.q.scheduleReclaim()
		}
	}
}
