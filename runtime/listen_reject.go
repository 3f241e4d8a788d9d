package runtime

import (
	"runtime"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	// maxRejections is how many identifiers may wait to be dismissed before no more
	// connection events are taken: then the device holds requests back, and refuses those
	// beyond its backlog itself.
	maxRejections = 128
	// rejectionBatch is how many are dismissed before the turn is asked for: fewer bells, and
	// a turn that takes no longer than one of eventsPerTurn.
	rejectionBatch = 32
)

// rejection is an identifier that nobody keeps, and the last that is said with it.
type rejection struct {
	id     verbs.CMID
	answer func(verbs.CMID) // may fail: then the peer times out
}

// rejections are answered and closed by one goroutine of their own while there are any,
// not on the turn: each call waits for the device, and how many there are is the peers'
// to choose. One is enough, because none has a queue pair that the kernel would
// have to destroy first (closingID), and more of them would keep the device from
// others. The holder's.
type rejections struct {
	queued    []rejection // not begun
	rejecting bool        // the goroutine runs
	stuck     bool        // takeCM has stopped for them
}

// rejectLater answers and closes an identifier, soon. answer is called on any goroutine.
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

// reject is dismiss for a request that is refused.
func (s *shard) reject(id verbs.CMID, code uint16, text string) {
	s.rejectLater(id, func(id verbs.CMID) { _ = id.Reject(proto.EncodeReject(code, text)) })
}

// tooManyRejections reports whether no more events are to be taken for now.
func (s *shard) tooManyRejections() bool {
	s.stuck = len(s.queued) >= maxRejections
	return s.stuck
}

// rejectNext starts a goroutine that dismisses the next batch, unless one runs.
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
		left := batch[:0] // those that the device does not let go yet
		for _, d := range batch {
			d.answer(d.id)
			if d.id.Close() != nil {
				left = append(left, d)
			}
			runtime.Gosched() // a batch is long for a goroutine that waits for a processor
		}
		s.r.Defer(func() { s.rejectDone(left) })
	}()
}

// rejectDone takes what became of a batch.
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
	s.tellQuiet()
}
