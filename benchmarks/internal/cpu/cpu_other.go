//go:build !unix

package cpu

import (
	"errors"
	"fmt"
	"time"
)

// Used returns errors.ErrUnsupported: no call here counts a process's time as on the other
// systems.
func Used() (time.Duration, error) {
	return 0, fmt.Errorf("cpu: the time of this process: %w", errors.ErrUnsupported)
}
