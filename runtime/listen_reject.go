package runtime

import (
	"runtime"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	// maxRejections is the number of queued rejections at which the shard stops taking
	// connection events. The device then queues new requests, up to its backlog, and itself
	// refuses the others.
	maxRejections = 128
	// rejectionBatch is the number of rejections per goroutine. The whole batch causes one
	// wake-up of the loop, and rejectDone takes no longer than eventsPerPass events.
	rejectionBatch = 32
)

// rejection is an identifier to answer and close.
type rejection struct {
	id     verbs.CMID
	answer func(verbs.CMID) // if it fails, the peer times out
}

// rejections queues identifiers to answer and close. While there are any, one goroutine handles
// them without the turn: each waits for the device, and peers determine how many there are. More
// goroutines would delay other users of the device. One is enough, because no identifier has a
// queue pair, whose destruction may take long (closingID). It belongs to the holder.
type rejections struct {
	queued    []rejection // those not in the goroutine's batch
	rejecting bool        // the goroutine runs
	stuck     bool        // takeCM takes no events because queued is full
}

// rejectLater answers and closes an identifier soon, usually on another goroutine. In a stepped
// runtime, or while the shard is being closed, it does so before it returns. Holder only.
func (s *shard) rejectLater(id verbs.CMID, answer func(verbs.CMID)) {
	delete(s.targets, id)
	if s.rt.cfg.stepped || s.ending {
		answer(id)
		s.closeID(id, nil)
		return
	}
	s.queued = append(s.queued, rejection{id, answer})
	s.rejectNext()
}

// reject refuses a request with a code and a text for the peer. Holder only.
func (s *shard) reject(id verbs.CMID, code uint16, text string) {
	s.rejectLater(id, func(id verbs.CMID) { _ = id.Reject(proto.EncodeReject(code, text)) })
}

// tooManyRejections reports whether takeCM must take no events until a batch has ended.
func (s *shard) tooManyRejections() bool {
	s.stuck = len(s.queued) >= maxRejections
	return s.stuck
}

// rejectNext starts a goroutine for the next batch, unless one runs.
func (s *shard) rejectNext() {
	if s.rejecting || len(s.queued) == 0 {
		return
	}
	n := min(len(s.queued), rejectionBatch)
	batch := s.queued[:n:n]
	if s.queued = s.queued[n:]; len(s.queued) == 0 {
		s.queued = nil
	}
	s.rejecting = true
	go func() {
		left := batch[:0] // those whose Close failed
		for _, d := range batch {
			d.answer(d.id)
			if d.id.Close() != nil {
				left = append(left, d)
			}
			runtime.Gosched() // without it, a batch delays other goroutines
		}
		s.r.Defer(func() { s.rejectDone(left) })
	}()
}

// rejectDone handles the end of a batch: closeID closes the identifiers in left, takeCM continues,
// and the next batch starts. Holder only.
func (s *shard) rejectDone(left []rejection) {
	s.rejecting = false
	for _, d := range left {
		s.closeID(d.id, nil)
	}
	s.rejectNext()
	if s.stuck {
		s.stuck = false
		s.cmEvents.take()
	}
	s.notifyIfQuiet()
}
