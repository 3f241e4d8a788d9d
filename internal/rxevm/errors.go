package rxevm

import (
	"errors"
	"fmt"
)

// Errors to be asked for with errors.Is.
var (
	// ErrNotHere is a machine that cannot be had on this system; what is
	// missing is in the text, and how to get it.
	ErrNotHere = errors.New("no test machine here")
	// ErrLost is a machine that ended, or stopped answering, by itself.
	ErrLost = errors.New("rxevm: the machine is lost")
	// ErrTimeout is a command that was killed at its limit.
	ErrTimeout = errors.New("rxevm: killed at its time limit")
	// ErrStuck is a command that was killed and did not end: the kernel holds
	// it. The kernel's log then has what its tasks wait for.
	ErrStuck = errors.New("rxevm: killed, and did not end")
	// ErrOutput is a command that was killed because nobody took its output.
	ErrOutput = errors.New("rxevm: killed because its output was not taken")
	// ErrClosed is a machine that was closed.
	ErrClosed = errors.New("rxevm: the machine is closed")
)

// ExitError is a command that ended otherwise than with 0.
type ExitError struct {
	Code   int    // exit code; 128 and the number after a signal; 127 if it could not be started
	Signal string // the signal's name; empty without one
	Reason string // why it could not be started; empty if it could
}

// Error says how the command ended.
func (e *ExitError) Error() string {
	switch {
	case e.Reason != "":
		return "rxevm: not started: " + e.Reason
	case e.Signal != "":
		return "rxevm: ended by a signal: " + e.Signal
	}
	return fmt.Sprintf("rxevm: exit code %d", e.Code)
}

// KernelError is a fault that the machine's kernel logged: whatever the tests
// say, the run has failed.
type KernelError struct {
	Line string // the first line of the fault
	Log  string // the end of the kernel's log
}

// Error is the fault's line; the log is too long for a message.
func (e *KernelError) Error() string { return "rxevm: the kernel logged: " + e.Line }
