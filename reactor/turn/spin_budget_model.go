//go:build verbena_model

package turn

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Budget has no clock in the model build: rounds are counted instead of time (spin_budget.go).
type Budget struct{}

// NewBudget is for the reactor, which is built with this too.
func NewBudget(time.Duration) *Budget { return new(Budget) }

// Time is none.
func (*Budget) Time() time.Duration { return 0 }

type spinRun struct{ rounds int }

func (s *spinRun) local() int { return s.rounds }

// stirs tells whether whoever spins would find something, the loop or a driver for its
// result; set by the model test. Who spins for ever waits for it: under the model waiting
// is never busy.
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

func (t *Token) noteFound()  {}
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
