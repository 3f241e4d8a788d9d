package reactor

import (
	"context"
)

// BatchSubmitter submits up to MaxSubmitBatch requests to one queue together, with no other
// request between them. Submitters share a free list, a submission stack and a ready list. A change
// of one of these costs a locked instruction and, with submitters on several processors, a cache
// miss. A BatchSubmitter changes each of the three one time for all its requests.
//
//	        Transfer, Send: acquires slots for this and the following requests
//	nothing ────────────────────────────────────────────────────> some filled, some cached
//	   ^                                                                │
//	   └── Submit: pushes the filled slots, frees the cached ones ──────┘
//
// Only one goroutine at a time may use a BatchSubmitter. Between Transfer and Submit this goroutine
// must not block elsewhere, because the BatchSubmitter holds slots for which other goroutines may
// wait. A zero BatchSubmitter is ready for use after Reset.
type BatchSubmitter struct {
	q           *Queue
	free        [MaxSubmitBatch]uint32
	have, used  int    // free[used:have] are the cached slots
	first, last uint32 // the oldest and the newest filled slot
	filled      int
}

// MaxSubmitBatch is the largest number of transfers that a BatchSubmitter submits together. With
// 32, the changes of shared words are a small part of the cost; a larger batch would only take
// slots from other submitters.
const MaxSubmitBatch = 32

// Reset makes s submit to q. Call Submit for earlier transfers before Reset.
func (s *BatchSubmitter) Reset(q *Queue) { s.q = q }

// Transfer is like Queue.Transfer, but a later call of Submit submits the transfer. If no cached
// slot is left, Transfer submits the earlier transfers before it acquires further slots. Set more to
// the number of transfers that follow this one. The caller may reuse *t when Transfer returns. After
// an error the caller must still call Submit for the earlier transfers.
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
	i, ch, err := s.take(ctx)
	if err != nil {
		return f, err
	}
	if t.Sink == nil {
		_, f = q.r.futures.NewIn(&ch.slots[i%chunkSlots].seat, q.r.driver)
	}
	q.fillTransfer(i, ch, t, k)
	s.chain(i)
	return f, nil
}

// Send is Transfer for a request of any kind. The caller may reuse *r and *p when Send returns.
func (s *BatchSubmitter) Send(ctx context.Context, r *Send, p *Payload, more int, m SubmitMode) (f Future, err error) {
	if ctx == nil {
		return f, ErrNilContext
	}
	q := s.q
	n, err := q.check(r, p)
	if err != nil {
		return f, err
	}
	if s.used == s.have {
		if err := s.acquireSlot(ctx, more+1, m); err != nil {
			return f, err
		}
	}
	i, ch, err := s.take(ctx)
	if err != nil {
		return f, err
	}
	f = q.fill(i, ch, n, r, p)
	s.chain(i)
	return f, nil
}

// take takes a cached slot and makes it. If there is no memory for it, take frees the cached slots, and takes a
// slot that was made, if one is free.
func (s *BatchSubmitter) take(ctx context.Context) (i uint32, ch *chunk, err error) {
	i = s.free[s.used]
	if ch, err = s.q.tab.make(i); err != nil {
		s.release()
		return s.q.acquireSlot(ctx, NonBlock)
	}
	s.used++
	return i, ch, nil
}

// chain appends slot i to the filled slots.
func (s *BatchSubmitter) chain(i uint32) {
	if s.filled == 0 {
		s.first = i
	} else {
		s.q.sendStack.Over(i, s.last)
	}
	s.last = i
	s.filled++
}

// acquireSlot acquires free slots and caches them. The arguments and MaxSubmitBatch limit their number:
// it acquires at most min(want, MaxSubmitBatch) slots. If no slot is free, it waits for a single slot
// as Queue.acquireSlot does. The cache must be empty.
func (s *BatchSubmitter) acquireSlot(ctx context.Context, want int, m SubmitMode) error {
	q := s.q
	s.push(m) // before the wait for a slot, because the filled slots become free only if their transfers are submitted
	s.used, s.have = 0, q.sendFree.GetN(s.free[:min(want, MaxSubmitBatch)])
	if s.have == 0 {
		i, err := q.waitSlot(ctx, m)
		if err != nil {
			return err
		}
		s.free[0], s.have = i, 1
	}
	if q.failed.err.Load() != nil { // loaded after the slots were acquired, as in Queue.acquireSlot
		return q.failed.get()
	}
	return nil
}

// Submit submits the filled slots and frees the cached slots.
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
