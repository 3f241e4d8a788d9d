//go:build verbena_model

package turn

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Pace has no clock in the model build: rounds are counted instead of time (pace.go).
type Pace struct{}

// NewPace is for the reactor, which is built with this too.
func NewPace(time.Duration) *Pace { return new(Pace) }

// Budget is none.
func (*Pace) Budget() time.Duration { return 0 }

type spell struct{ rounds int }

func (s *spell) local() int { return s.rounds }

// stirs tells whether whoever spins would find something, the loop or a driver for its
// result; set by the model test. Who spins for ever waits for it: under the model waiting
// is never busy.
var stirs = func(driver Parker) bool { return true }

func (t *Token) breathe(s *spell) (over bool) {
	if t.cfg.Spinning == SpinAlways {
		model.Block("watch.stirs", func() bool { return stirs(nil) })
		return false
	}
	s.rounds++
	return s.rounds > t.cfg.Spin
}

func (t *Token) look(*spell) Wake { return t.sleep.Look() }

func (t *Token) met()  {}
func (t *Token) vain() {}

func (t *Token) slept()     {}
func (t *Token) awoke(Wake) {}

func (t *Token) tires(idle int, _ *spell) bool {
	return t.cfg.Spinning != SpinAlways && idle > t.cfg.Spin
}

func (t *Token) rest(_ int, w Parker) {
	if t.cfg.Spinning == SpinAlways {
		model.Block("drive.stirs", func() bool { return stirs(w) })
	}
}
