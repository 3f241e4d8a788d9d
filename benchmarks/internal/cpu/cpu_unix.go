//go:build unix

package cpu

import (
	"fmt"
	"syscall"
	"time"
)

// Used returns the user plus system time of all threads of this process since it began. It does
// not block; any goroutine may call it.
//
// Implements: getrusage(RUSAGE_SELF).
func Used() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("cpu: getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
