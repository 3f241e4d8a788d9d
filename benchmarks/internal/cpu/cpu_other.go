//go:build !unix

package cpu

import (
	"errors"
	"fmt"
	"time"
)

// Used answers errors.ErrUnsupported: nothing here counts the time of a process as
// the other systems do.
func Used() (time.Duration, error) {
	return 0, fmt.Errorf("cpu: the time of this process: %w", errors.ErrUnsupported)
}
