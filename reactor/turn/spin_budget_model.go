//go:build verbena_model

package turn

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Budget is empty in the model build, which counts rounds instead of time (see spin_budget.go).
type Budget struct{}

// NewBudget returns an empty budget. It exists because package reactor calls it, and package reactor
// is also built with this tag.
func NewBudget(time.Duration) *Budget { return new(Budget) }

// Time returns zero.
func (*Budget) Time() time.Duration { return 0 }

type spinRun struct{ rounds int }

func (s *spinRun) local() int { return s.rounds }

// stirs(driver) reports whether the spinning driver would find something to do. stirs(nil) reports the
// same for the spinning loop. The model test sets the variable stirs. A goroutine that spins with
// SpinAlways blocks until the result is true, because the model has no busy waiting.
var stirs = func(driver Parker) bool { return true }

func (t *Token) loopPause(s *spinRun) (over bool) {
	if t.cfg.SpinMode == SpinAlways {
		model.Block("watch.stirs", func() bool { return stirs(nil) })
		return false
	}
	s.rounds++
	return s.rounds > t.cfg.Spin
}

func (t *Token) pollChannels(*spinRun) WakeReason { return t.sleep.Poll() }

func (t *Token) noteInVain() {}

func (t *Token) noteArmed()            {}
func (t *Token) noteWakeup(WakeReason) {}

func (t *Token) driverExpired(idle int, _ *spinRun) bool {
	return t.cfg.SpinMode != SpinAlways && idle > t.cfg.Spin
}

func (t *Token) driverPause(_ int, w Parker) {
	if t.cfg.SpinMode == SpinAlways {
		model.Block("drive.stirs", func() bool { return stirs(w) })
	}
}
