package rxevm

import (
	"errors"
	"fmt"
)

// Errors for errors.Is.
var (
	// ErrNotHere means that this system cannot run a machine; the text names the missing tools
	// and how to get them.
	ErrNotHere = errors.New("no test machine here")
	// ErrLost means that a machine ended, or stopped answering, by itself.
	ErrLost = errors.New("rxevm: the machine is lost")
	// ErrTimeout means that a command was killed at its limit.
	ErrTimeout = errors.New("rxevm: killed at its time limit")
	// ErrStuck means that a command was killed and did not end: it is blocked in the kernel. The
	// kernel's log then lists its blocked tasks.
	ErrStuck = errors.New("rxevm: killed, and did not end")
	// ErrOutput means that a command was killed because its output was not read.
	ErrOutput = errors.New("rxevm: killed because its output was not taken")
	// ErrClosed means that the machine is closed.
	ErrClosed = errors.New("rxevm: the machine is closed")
)

// ExitError is a command that ended with a code other than 0.
type ExitError struct {
	Code   int    // exit code; 128 and the number after a signal; 127 if it could not be started
	Signal string // the signal's name; empty without one
	Reason string // why it could not be started; empty if it could
}

// Error describes how the command ended.
func (e *ExitError) Error() string {
	switch {
	case e.Reason != "":
		return "rxevm: not started: " + e.Reason
	case e.Signal != "":
		return "rxevm: ended by a signal: " + e.Signal
	}
	return fmt.Sprintf("rxevm: exit code %d", e.Code)
}

// KernelError is a fault that the machine's kernel logged: the run has failed, whatever the
// results of the tests.
type KernelError struct {
	Line string // the first line of the fault
	Log  string // the end of the kernel's log
}

// Error returns the fault's line; the log is too long for a message.
func (e *KernelError) Error() string { return "rxevm: the kernel logged: " + e.Line }
