//go:build !linux || portable

package soft_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/sys/netns"
)

// captured calls run in a network namespace that has the addresses. This build does not check the packets.
func captured(t *testing.T, _ bool, addrs []string, run func()) {
	if netns.Enter(t, addrs...) {
		run()
	}
}
