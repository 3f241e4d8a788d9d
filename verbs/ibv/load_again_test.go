//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"testing"
)

// Rule: a library that could not be loaded, for example because the process had no descriptor left, is loaded by a later
// call; one that was loaded is not loaded again.
func TestALibraryIsLoadedAfterAFailure(t *testing.T) {
	without := errors.New("too many open files")
	calls := 0
	load := onSuccess(func() (*int, error) {
		if calls++; calls == 1 {
			return nil, without
		}
		n := calls
		return &n, nil
	})
	if _, err := load(); !errors.Is(err, without) {
		t.Errorf("the first call: %v, want %v", err, without)
	}
	for range 2 {
		if n, err := load(); err != nil || *n != 2 {
			t.Errorf("a later call: %v, want what the second one loaded", err)
		}
	}
}
