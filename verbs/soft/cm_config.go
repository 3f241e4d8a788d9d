package soft

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// CMConfig sets the times of the connection manager. Zero members select the defaults. A timeout
// code means 4.096 µs × 2^code.
type CMConfig struct {
	// ResponseTimeout is the code of the time after which an unanswered message is repeated.
	// Default 15, 134 ms.
	ResponseTimeout uint8
	// MaxRetries is the number of repetitions, at most 15. Default 7, so that a peer is reported
	// unreachable after 1.07 s.
	MaxRetries uint8
	// ServiceTimeout is the code of the time that a peer waits for a slow listener before it asks
	// again. Default 20, 4.3 s.
	ServiceTimeout uint8
	// TimeWait is how long a finished connection keeps its numbers. Default 134 ms.
	TimeWait time.Duration
}

func (c *CMConfig) validate() error {
	// cm.New checks the bounds; the callbacks do nothing.
	_, err := cm.New(c.machine(cm.Config{
		Send:  func(wire.Path, *cm.MAD, bool) {},
		Event: func(cm.Event) {},
		Rand:  func() uint64 { return 0 },
	}))
	if err != nil {
		return fmt.Errorf("%w: %w", verbs.ErrInvalid, err)
	}
	return nil
}

// machine copies the times into a machine's configuration.
func (c *CMConfig) machine(m cm.Config) cm.Config {
	m.ResponseTimeout, m.MaxRetries = c.ResponseTimeout, c.MaxRetries
	m.ServiceTimeout, m.TimeWait = c.ServiceTimeout, c.TimeWait
	return m
}
