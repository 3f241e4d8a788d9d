//go:build unix

package main

import "syscall"

// The signals that report that the peer is gone and that it is back.
const (
	mark = syscall.SIGUSR1
	heal = syscall.SIGUSR2
)
