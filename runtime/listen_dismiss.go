package runtime

import (
	"runtime"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	// dismissMost is how many identifiers may wait to be dismissed before no more
	// connection events are taken: then the device holds requests back, and refuses those
	// beyond its backlog itself.
	dismissMost = 128
	// dismissBatch is how many are dismissed before the turn is asked for: fewer bells, and
	// a turn that takes no longer than one of eventsPerTurn.
	dismissBatch = 32
)

// dismissal is an identifier that nobody keeps, and the last that is said with it.
type dismissal struct {
	id     verbs.CMID
	answer func(verbs.CMID) // may fail: then the peer times out
}

// dismissals are answered and closed by one goroutine of their own while there are any,
// not on the turn: each call waits for the device, and how many there are is the peers'
// to choose. One is enough, because none has a queue pair that the kernel would
// have to destroy first (closingID), and more of them would keep the device from
// others. The holder's.
type dismissals struct {
	dismissed []dismissal // not begun
	saying    bool        // the goroutine runs
	stuck     bool        // takeCM has stopped for them
}

// dismiss answers and closes an identifier, soon. answer is called on any goroutine.
// Holder only.
func (s *shard) dismiss(id verbs.CMID, answer func(verbs.CMID)) {
	delete(s.targets, id)
	if s.rt.cfg.stepped || s.ending {
		answer(id)
		s.closeID(id, nil)
		return
	}
	s.dismissed = append(s.dismissed, dismissal{id, answer})
	s.sayOn()
}

// reject is dismiss for a request that is refused.
func (s *shard) reject(id verbs.CMID, code uint16, text string) {
	s.dismiss(id, func(id verbs.CMID) { _ = id.Reject(proto.EncodeReject(code, text)) })
}

// crowded reports whether no more events are to be taken for now.
func (s *shard) crowded() bool {
	s.stuck = len(s.dismissed) >= dismissMost
	return s.stuck
}

// sayOn starts a goroutine that dismisses the next batch, unless one runs.
func (s *shard) sayOn() {
	if s.saying || len(s.dismissed) == 0 {
		return
	}
	n := min(len(s.dismissed), dismissBatch)
	batch := s.dismissed[:n:n]
	if s.dismissed = s.dismissed[n:]; len(s.dismissed) == 0 {
		s.dismissed = nil
	}
	s.saying = true
	go func() {
		left := batch[:0] // those that the device does not let go yet
		for _, d := range batch {
			d.answer(d.id)
			if d.id.Close() != nil {
				left = append(left, d)
			}
			runtime.Gosched() // a batch is long for a goroutine that waits for a processor
		}
		s.r.Defer(func() { s.said(left) })
	}()
}

// said takes what became of a batch.
func (s *shard) said(left []dismissal) {
	s.saying = false
	for _, d := range left {
		s.closeID(d.id, nil)
	}
	s.sayOn()
	if s.stuck {
		s.stuck = false
		s.cmEvents.take()
	}
	s.tellQuiet()
}
