//go:build linux && cgo && !portable

package ibv

import (
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Soft-RoCE's library accepts any opcode, and the kernel uses it as an index without a bound
// check (semantics 22: a list is split at the first bad request).
func TestOpcodesThatAreNoneStayOutOfTheKernel(t *testing.T) {
	const n = 3
	r := newRig(t, Config{})
	r.ctx.look = lookOpcodes
	for _, op := range []verbs.WROpcode{12, verbs.WRFlush, verbs.WRAtomicWrite, 31, 32, 200, ^verbs.WROpcode(0)} {
		for at := range n {
			turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(n), Count: n}}}
			r.sends[at].Opcode = op
			if at == 0 { // the library must not even be called
				r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_post_send", Err: syscall.ENOMEM})
			}
			r.turn(&turn)
			if g := turn.Sends[0]; g.Accepted != at || g.Errno != syscall.EINVAL {
				t.Errorf("opcode %d at %d: %d accepted, errno %v; want %d, EINVAL", uint32(op), at, g.Accepted, g.Errno, at)
			}
			want := []uint64{1, 2, 3}[:at]
			if ids := r.poll(at); !slices.Equal(ids, want) {
				t.Errorf("opcode %d at %d: completions of %v, want %v", uint32(op), at, ids, want)
			}
			if at > 0 && r.sends[at-1].Next != addr(&r.sends[at]) {
				t.Errorf("opcode %d at %d: the poster's list was left cut", uint32(op), at)
			}
			r.null.Clear()
		}
	}
	// The library's own error has precedence.
	r.fault(nulldev.Fault{Kind: nulldev.BadWR, Call: "ibv_post_send", Err: syscall.ENOMEM, At: 1})
	turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(n), Count: n}}}
	r.sends[2].Opcode = 12
	r.turn(&turn)
	if g := turn.Sends[0]; g.Accepted != 1 || g.Errno != syscall.ENOMEM {
		t.Errorf("refused at 1, wrong at 2: %d accepted, errno %v", g.Accepted, g.Errno)
	}
	r.poll(1)
}
