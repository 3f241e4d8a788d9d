package runtime

import (
	"runtime"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	// maxRejections is the number of queued rejections at which the shard (a reactor with its
	// connection events) stops taking connection events. New requests then stay in the device, at
	// most as many as CMID.Listen permits. The device itself refuses further requests.
	maxRejections = 128
	// rejectionBatch is the largest number of rejections in a batch, which one goroutine handles. A
	// batch causes only one wake-up of the loop. Batches are small, so that rejectDone takes no
	// more time in a pass than the handling of eventsPerPass events.
	rejectionBatch = 32
)

// A rejection is a request that gets no connection. To handle it, a goroutine calls answer with id,
// the identifier of the request, and then closes id.
type rejection struct {
	id     verbs.CMID
	answer func(verbs.CMID) // sends the answer; if that fails, the peer times out
}

// The type rejections queues the rejections of a shard. One goroutine at a time handles them,
// without the turn, because each answer waits for the device, and the peers determine the number of
// answers. More goroutines at a time would delay other users of the device. One goroutine is enough,
// because the requests have no queue pairs. (The destruction of a queue pair may take long: see
// closingID.) The holder owns all fields.
type rejections struct {
	queued    []rejection // rejections that are not in a batch yet
	rejecting bool        // a goroutine handles a batch
	stuck     bool        // takeCM takes no events, because maxRejections rejections are queued
}

// rejectLater has another goroutine call the function answer, and then close the identifier id. In
// a stepped runtime (one without goroutines), or while the shard is being closed, rejectLater does
// this work itself, before it returns. Holder only.
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

// The method reject refuses a request with a code and a text for the peer. Holder only.
func (s *shard) reject(id verbs.CMID, code uint8, text string) {
	s.rejectLater(id, func(id verbs.CMID) { _ = id.Reject(proto.Reject{Code: code, Text: text}.Encode()) })
}

// tooManyRejections reports whether takeCM must wait for the end of a batch before it takes events.
// It stores the result in s.stuck, so that rejectDone resumes the taking of events.
func (s *shard) tooManyRejections() bool {
	s.stuck = len(s.queued) >= maxRejections
	return s.stuck
}

// rejectNext starts a goroutine for the next batch, unless a goroutine already handles one.
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
		left := batch[:0] // rejections whose identifier could not be closed
		for _, d := range batch {
			d.answer(d.id)
			if d.id.Close() != nil {
				left = append(left, d)
			}
			runtime.Gosched() // a batch must not delay other goroutines
		}
		s.r.Defer(func() { s.rejectDone(left) })
	}()
}

// rejectDone handles the end of a batch. The argument left has the rejections whose identifier is
// not closed yet; rejectDone closes these identifiers by closeID. Then it starts the next batch. If
// takeCM has stopped taking events, rejectDone takes the next events. Holder only.
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
