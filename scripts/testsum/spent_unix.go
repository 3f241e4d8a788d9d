//go:build unix

package main

import (
	"syscall"
	"time"
)

// spent returns the processor time of this process's ended children, and of theirs.
func spent() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
