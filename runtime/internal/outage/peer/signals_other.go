//go:build !unix

package main

import "syscall"

// The signals that report that the peer is gone and that it is back; they cannot be sent on systems
// without user signals.
const (
	mark = syscall.SIGHUP
	heal = syscall.SIGQUIT
)
