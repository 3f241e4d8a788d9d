package runtime

import (
	"runtime"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	// maxRejections is the number of queued rejections at which the shard (a reactor with its
	// connection events) stops taking connection events. New requests then wait in the device. The
	// device keeps at most as many requests as CMID.Listen permits, and refuses further requests
	// itself.
	maxRejections = 128
	// rejectionBatch is the largest number of rejections in a batch, which one goroutine handles.
	// Each batch causes only one wake-up of the loop. Batches are small, so that rejectDone takes
	// no more of the holder's time than the handling of eventsPerPass events.
	rejectionBatch = 32
)

// A rejection is a request that gets no connection. A goroutine handles the rejection: it calls
// answer with id, the identifier of the request, and then closes id.
type rejection struct {
	id     verbs.CMID
	answer func(verbs.CMID) // sends the answer; if sending fails, the peer's attempt times out
}

// rejections queues the rejections of a shard. One goroutine at a time handles the rejections. It
// does not hold the turn, because each answer waits for the device, and the peers determine the
// number of answers. Several goroutines would delay other users of the device. One goroutine is
// fast enough, because the requests have no queue pairs. (Only the destruction of a queue pair may
// take long: see closingID.) Only the holder uses the fields.
type rejections struct {
	queued    []rejection // rejections that are not in a batch yet
	rejecting bool        // a goroutine is handling a batch
	stuck     bool        // takeCM has stopped taking events, because maxRejections rejections are queued
}

// rejectLater queues a rejection: another goroutine calls the function answer, and then closes the
// identifier id. In a stepped runtime (which has no goroutines), or while the shard is being
// closed, rejectLater calls answer itself and closes id by closeID. Holder only.
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
func (s *shard) reject(id verbs.CMID, code uint8, text string) {
	s.rejectLater(id, func(id verbs.CMID) { _ = id.Reject(proto.Reject{Code: code, Text: text}.Encode()) })
}

// tooManyRejections reports whether takeCM must take no events until a batch has ended. It stores
// the result in s.stuck. If s.stuck is set, rejectDone takes events again at the end of the batch.
func (s *shard) tooManyRejections() bool {
	s.stuck = len(s.queued) >= maxRejections
	return s.stuck
}

// rejectNext starts a goroutine for the next batch, unless no rejection is queued or a goroutine is
// handling a batch already.
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
			runtime.Gosched() // so that a batch does not delay other goroutines
		}
		s.r.Defer(func() { s.rejectDone(left) })
	}()
}

// rejectDone handles the end of a batch. The argument is the list of the rejections whose
// identifier could not be closed; rejectDone closes these identifiers by closeID, which tries
// again. Then it starts the next batch. If takeCM has stopped taking events, rejectDone takes the
// next events. Holder only.
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
