//go:build unix

package main

import "syscall"

// What tells that the peer has gone, and that it is there again.
const (
	mark = syscall.SIGUSR1
	heal = syscall.SIGUSR2
)
