package reactor

import (
	"context"
)

// BatchSubmitter submits up to MaxSubmitBatch transfers of one queue together. It changes each word
// that submitters share (in the free list, submission stack and ready list) once for all of them,
// and no other request comes between them. Each change of a shared word costs a locked instruction,
// and with submitters on several processors also a cache line transfer.
//
//	        Transfer: acquires slots for this and the following transfers
//	nothing ────────────────────────────────────────────────────> some filled, some cached
//	   ^                                                                │
//	   └── Submit: pushes the filled slots, frees the cached ones ──────┘
//
// One goroutine at a time uses a BatchSubmitter. Between Transfer and Submit the BatchSubmitter
// holds slots for which other goroutines may wait, so its own goroutine must not wait for anything
// else. A zero BatchSubmitter is ready for use after Reset.
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

// Reset makes s submit to q. All earlier transfers must have been submitted.
func (s *BatchSubmitter) Reset(q *Queue) { s.q = q }

// Transfer is Queue.Transfer, except that the transfer is submitted later, by Submit. If Transfer
// has to wait for a slot, it submits the earlier transfers first. The argument more is how many
// transfers follow this one. The caller may reuse *t when Transfer returns. After an error the
// earlier transfers are still good: call Submit for them.
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

// acquireSlot acquires up to want slots and caches them. It waits for the first one as
// Queue.acquireSlot does. The cache must be empty.
func (s *BatchSubmitter) acquireSlot(ctx context.Context, want int, m SubmitMode) error {
	q := s.q
	s.push(m) // so that it never waits for slots of transfers that s has not submitted
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

// Submit submits the filled slots and frees the cached ones.
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
