package soft

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
)

// CMConfig sets the times of the connection manager. Zero members are
// defaults. Timeout codes mean 4.096 µs × 2^code.
type CMConfig struct {
	// ResponseTimeout is the code of how long a message waits for its answer
	// before it is repeated: 15, 134 ms.
	ResponseTimeout uint8
	// MaxRetries is how often it is repeated, at most 15: 7, so that a peer is
	// unreachable after 1.07 s.
	MaxRetries uint8
	// ServiceTimeout is the code of how long a peer waits for a listener that
	// takes its time, before it asks again: 20, 4.3 s.
	ServiceTimeout uint8
	// TimeWait is how long a finished connection keeps its numbers: 134 ms.
	TimeWait time.Duration
}

func (c *CMConfig) validate() error {
	// The machine has the bounds; it is asked with callbacks that do nothing.
	_, err := cm.New(c.machine(cm.Config{
		Send:  func(verbs.GID, *cm.MAD) {},
		Event: func(cm.Event) {},
		Rand:  func() uint64 { return 0 },
	}))
	if err != nil {
		return fmt.Errorf("%w: %w", verbs.ErrInvalid, err)
	}
	return nil
}

// machine fills the times into a machine's configuration.
func (c *CMConfig) machine(m cm.Config) cm.Config {
	m.ResponseTimeout, m.MaxRetries = c.ResponseTimeout, c.MaxRetries
	m.ServiceTimeout, m.TimeWait = c.ServiceTimeout, c.TimeWait
	return m
}
