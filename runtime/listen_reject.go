package runtime

import (
	"runtime"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	// maxRejections is the number of queued rejections at which the shard (a reactor with its
	// connection events) stops taking connection events. The device then queues new requests,
	// up to its backlog, and refuses further ones itself.
	maxRejections = 128
	// rejectionBatch is the number of rejections per goroutine. A batch causes only one
	// wake-up of the loop. Batches are small, so that rejectDone takes no more time in a pass
	// than the handling of eventsPerPass events.
	rejectionBatch = 32
)

// rejection is the identifier of a request to answer and close.
type rejection struct {
	id     verbs.CMID
	answer func(verbs.CMID) // if it fails, the peer times out
}

// rejections queues the identifiers of requests to answer and close. One goroutine does this work
// without the turn: each answer waits for the device, and the peers determine how many there are.
// More goroutines would delay other users of the device. One is enough, because the identifiers
// have no queue pairs, whose destruction may take long (closingID). The holder owns rejections.
type rejections struct {
	queued    []rejection // not in the goroutine's batch yet
	rejecting bool        // the goroutine runs
	stuck     bool        // takeCM takes no events because queued is full
}

// rejectLater has another goroutine answer and close an identifier. In a stepped runtime (one
// without goroutines), or while the shard is being closed, it does this itself before it returns.
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

// tooManyRejections reports whether takeCM must wait for the end of a batch before it takes events.
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
		left := batch[:0] // rejections whose Close failed
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

// rejectDone handles the end of a batch. It closes the identifiers in left with closeID, starts the
// next batch, and takes events again if takeCM has stopped. Holder only.
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
