//go:build !linux

package rxevm

import (
	"context"
	"fmt"
	"runtime"
)

// Machine is a running test machine; not available on this system.
type Machine struct{}

// Missing returns an error: only Linux is supported.
func Missing() error {
	return fmt.Errorf("%w: it takes Linux, and this is %s", ErrNotHere, runtime.GOOS)
}

// Kill does nothing: there is no machine.
func (m *Machine) Kill() {}

// Boot fails with [ErrNotHere].
func Boot(context.Context, Config) (*Machine, error) { return nil, Missing() }
