//go:build !unix

package main

import "syscall"

// The signals that report that the other peer is gone (mark) and back (heal). On systems without
// user signals they cannot be sent.
const (
	mark = syscall.SIGHUP
	heal = syscall.SIGQUIT
)
