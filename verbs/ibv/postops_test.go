//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a driver may take all send_ops_flags and set the functions that it has; a request without a function
// is refused, and nothing is called.
func TestADriverTakesFlagsWithoutFunctions(t *testing.T) {
	profiled(t, "bnxt_re")
	r := newRig(t, Config{})
	r.qp.ctx.caps |= verbs.CapFlushGlobal | verbs.CapAtomicWrite // so that the flags are requested
	q := r.loop(r.pd)
	for _, op := range []verbs.WROpcode{verbs.WRFlush, verbs.WRAtomicWrite, verbs.WRSendWithInv, verbs.WRLocalInv, verbs.WRBindMW} {
		turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: q, Head: r.writes(2), Count: 2, Extended: true}}}
		r.sends[1].Opcode = op
		r.turn(&turn)
		if g := turn.Sends[0]; g.Accepted != 0 || g.Errno != syscall.EOPNOTSUPP {
			t.Errorf("posting %v returned %d accepted and %v, want 0 and EOPNOTSUPP", op, g.Accepted, g.Errno)
		}
	}
	if q.ops&(opsNew|opsKey) != 0 || q.ops&opsWrite == 0 {
		t.Errorf("the operations of extended posting are %#x, want the writes and none without a function", q.ops)
	}
}

// Rule: what the device's features leave out is not requested.
func TestOperationsFollowTheFeatures(t *testing.T) {
	c := &deviceContext{}
	if ops := c.sendOps(verbs.QPTRC); ops != opsSend|opsWrite|opsRead {
		t.Errorf("a device without features is asked for %#x, want SEND, WRITE and READ", ops)
	}
	c.caps, c.atomics = ^verbs.DeviceCaps(0), true
	if ops := c.sendOps(verbs.QPTRC); ops&(opsNew|opsKey|opsBind|opsAtomic) != opsNew|opsKey|opsBind|opsAtomic {
		t.Errorf("a device with all features is asked for %#x, want all", ops)
	}
}

// Rule: a device on InfiniBand or RoCE that reports no atomics has no opcodes of atomics, and queue pairs are not made
// for them.
func TestADeviceMayHaveNoAtomics(t *testing.T) {
	atomics := verbs.Opcodes(verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd)
	for profile, want := range map[string]bool{"mlx5": true, "mlx5_vf": false} {
		profiled(t, profile)
		r := newRig(t, Config{})
		if ops := must.Get(r.ctx.QueryDevice())(t).Opcodes; (ops&atomics == atomics) != want || (ops&atomics != 0) != want {
			t.Errorf("%s: the opcodes are %v, with atomics: want %t", profile, ops, want)
		}
		if got := r.qp.ops & opsAtomic; (got == opsAtomic) != want || (got != 0) != want {
			t.Errorf("%s: the operations of extended posting are %#x, with atomics: want %t", profile, r.qp.ops, want)
		}
	}
}

// Rule: a creation that returns NULL without errno has refused its arguments (EINVAL); the device is not dying.
func TestNullWithoutErrnoIsInvalid(t *testing.T) {
	profiled(t, "bnxt_re")
	r := newRig(t, Config{})
	_, err := r.pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 7, MaxRecvSGE: 1}})
	if !errors.Is(err, verbs.ErrInvalid) || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("creating a queue pair of 7 elements returned %v, want EINVAL", err)
	}
	if seen := r.ctx.seen.Load(); seen != 0 {
		t.Errorf("the refusal counts as a sign of the device's removal (%#x)", seen)
	}
	must.Do(t, r.loop(r.pd).Close())
}
