package runtime

import (
	"runtime"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	// maxRejections is the number of queued rejections at which the shard stops taking
	// connection events. The device then holds requests back, and refuses those beyond
	// its backlog itself.
	maxRejections = 128
	// rejectionBatch is the number of rejections per goroutine. A batch wakes the loop only
	// once, and handling its end takes no longer than a pass with eventsPerPass events.
	rejectionBatch = 32
)

// rejection is an identifier to answer and close.
type rejection struct {
	id     verbs.CMID
	answer func(verbs.CMID) // may fail: then the peer times out
}

// rejections queues identifiers to answer and close. While there are any, one goroutine
// handles them without the turn, because each call waits for the device, and peers control
// their number. One goroutine is enough, because none of the identifiers has a queue pair that
// the kernel must destroy first (closingID), and more goroutines would delay other users of
// the device. It belongs to the holder.
type rejections struct {
	queued    []rejection // not started
	rejecting bool        // the goroutine runs
	stuck     bool        // takeCM has stopped because the queue is full
}

// rejectLater answers and closes an identifier soon. It may call answer on any goroutine.
// Holder only.
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

// tooManyRejections reports whether takeCM must stop until a batch has ended.
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
		left := batch[:0] // those that the device cannot close yet
		for _, d := range batch {
			d.answer(d.id)
			if d.id.Close() != nil {
				left = append(left, d)
			}
			runtime.Gosched() // a whole batch would delay other goroutines
		}
		s.r.Defer(func() { s.rejectDone(left) })
	}()
}

// rejectDone handles the end of a batch. Identifiers in left are closed by closeID.
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
