//go:build !unix

package main

import "syscall"

// What tells that the peer has gone, and that it is there again: nobody can send
// these where there are no signals of the user's.
const (
	mark = syscall.SIGHUP
	heal = syscall.SIGQUIT
)
