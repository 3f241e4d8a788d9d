//go:build unix

package main

import "syscall"

// The signals that report that the other peer is gone (mark) and back (heal).
const (
	mark = syscall.SIGUSR1
	heal = syscall.SIGUSR2
)
