//go:build linux && cgo && !portable

package runtime

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// onProfile selects a profile of the null device for the runtimes that the test opens from now on.
func onProfile(t *testing.T, name string) *nulldev.Control {
	t.Helper()
	null := nullControl(t)
	must.Do(t, null.SetProfile(name))
	return null
}

// Rule: both ends have the ACK timeout of their own options, at least their device's delay, whether the
// path is of RoCE or of InfiniBand, where the kernel would give the accepting end code 19.
func TestBothEndsHaveTheirOwnTimeoutOnEachTransport(t *testing.T) {
	for profile, delay := range map[string]uint8{nulldev.Plain: 12, "mlx5": 16, "mlx5_ib": 16} {
		for peerTimeout, code := range map[time.Duration]uint8{0: 15, -1: 18, time.Second: 13} {
			t.Run(profile+"/"+peerTimeout.String(), func(t *testing.T) {
				onProfile(t, profile)
				a, b := nullBed.connected(t, Config{Conn: Options{PeerTimeout: peerTimeout}})
				for i, c := range []*Conn{a, b} {
					if attr := must.Get(c.q.QP().Query())(t); attr.Timeout != max(code, delay) {
						t.Errorf("end %d has ACK timeout code %d, want %d", i, attr.Timeout, max(code, delay))
					}
				}
			})
		}
	}
}
