//go:build linux && !portable

package mem

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A signal in the middle of a call is no failure of the file; anything else is.
func TestSignalsDoNotFailAFile(t *testing.T) {
	for _, want := range []error{nil, unix.ENOSPC} {
		calls := 0
		err := uninterrupted(func() error {
			if calls++; calls < 4 {
				return unix.EINTR
			}
			return want
		})
		if !errors.Is(err, want) || calls != 4 {
			t.Errorf("interrupted three times: %v after %d calls, want %v after 4", err, calls, want)
		}
	}
}
