//go:build !linux

package netns

import "testing"

// Enter skips the test: this system has no network namespaces.
func Enter(t *testing.T, addrs ...string) bool {
	t.Helper()
	t.Skip("no network namespaces on this system")
	return false
}

// Possible reports that this system has no network namespaces.
func Possible() bool { return false }

// Inside is false: there are no namespaces on this system.
func Inside() bool { return false }
