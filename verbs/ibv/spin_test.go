//go:build linux && cgo && !portable

package ibv

import (
	"math"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// spun executes one batch that polls repeatedly, and returns the number of polls in the library.
func (r *rig) spun(spin int) (g verbs.PollGroup, polls uint64) {
	r.t.Helper()
	before := r.null.Stats().Polls
	t := verbs.IOBatch{Spin: spin, Polls: []verbs.PollGroup{{CQ: r.cq, WC: r.wc}}}
	r.turn(&t)
	return t.Polls[0], r.null.Stats().Polls - before
}

// Rule: a batch that spins polls up to Spin times more while there is nothing, in one cgo call,
// takes later completions into all its room, and stops there or at an error.
func TestATurnSpins(t *testing.T) {
	for name, cfg := range map[string]Config{"plain": {}, "extended": {ExtendedCQ: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cfg)
			for spin, want := range map[int]uint64{math.MinInt: 1, -1: 1, 0: 1, 1: 2, 16: 17, math.MaxInt: mostSpin + 1} {
				if g, polls := r.spun(spin); g.N != 0 || g.Errno != 0 || polls != want {
					t.Errorf("an empty queue with Spin %d: %d completions, errno %v, asked %d times, want %d", spin, g.N, g.Errno, polls, want)
				}
			}
			r.turn(&verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(3), Count: 3}}})
			if g, polls := r.spun(16); g.N != 3 || polls != 1 {
				t.Errorf("three completions wait: took %d, asked %d times, want 3 and once", g.N, polls)
			}
			// The completions that come while the batch spins: flushes that the device delays.
			const late = 8
			r.fault(nulldev.Fault{Kind: nulldev.LateFlush, At: late})
			r.turn(&verbs.IOBatch{Recvs: []verbs.RecvGroup{{QP: r.qp, Head: r.receives(2), Count: 2}}})
			must.Do(t, r.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
			g, polls := r.spun(64)
			if g.N != 2 || g.Errno != 0 || polls < 2 || polls > late+1 {
				t.Errorf("two completions that come at poll %d: took %d, errno %v, asked %d times", late, g.N, g.Errno, polls)
			}
		})
	}
}

// Rule: spinning ends with the first error.
func TestASpinningTurnStopsAtAnError(t *testing.T) {
	r := newRig(t, Config{})
	const at = 5
	r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_poll_cq", Nth: at, Err: syscall.EIO, How: nulldev.Negative})
	if g, _ := r.spun(64); g.N != 0 || g.Errno != syscall.EIO {
		t.Errorf("poll %d fails: %d completions, errno %v, want EIO", at, g.N, g.Errno)
	}
}
