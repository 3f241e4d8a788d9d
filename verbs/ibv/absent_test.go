//go:build !linux || !cgo || portable

package ibv

import (
	"errors"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: in a build without the libraries every call fails with the reason.
func TestAbsentBuildSaysSo(t *testing.T) {
	_, newErr := New(Config{})
	_, devErr := Default().Devices()
	_, openErr := Default().Open("rxe0")
	_, cmErr := Default().CreateCMChannel()
	for call, err := range map[string]error{"New": newErr, "Devices": devErr, "Open": openErr, "CreateCMChannel": cmErr} {
		if !errors.Is(err, verbs.ErrNotSupported) || !strings.Contains(err.Error(), "without cgo") {
			t.Errorf("%s: %v, want ErrNotSupported and the reason", call, err)
		}
	}
}
