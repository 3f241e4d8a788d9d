//go:build linux && cgo && !portable

package nulldev

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: every profile can be selected by its name, and the first is the null device by itself.
func TestProfilesAreSelectedByName(t *testing.T) {
	k := must.Get(Open(built(t)))(t)
	defer k.Close()
	names := k.Profiles()
	if len(names) < 2 || names[0] != Plain {
		t.Errorf("the profiles are %q, want %q first and others", names, Plain)
	}
	for _, name := range names {
		must.Do(t, k.SetProfile(name))
	}
	if slices.Sort(names); len(slices.Compact(names)) != len(k.Profiles()) {
		t.Errorf("the profiles are %q, want different names", k.Profiles())
	}
	if err := k.SetProfile("none"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("selecting the profile none returned %v, want ENOENT", err)
	}
}
