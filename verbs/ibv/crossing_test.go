//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule: a DISCONNECTED that comes after our own Disconnect may be the peer's request, which
// crossed ours: only another rdma_disconnect answers it. The library's error is then returned,
// except for EINVAL: the peer has its answer.
func TestDisconnectThatCrossedIsAnswered(t *testing.T) {
	r := newCMRig(t)
	l := r.listener()
	id := r.routed(l.LocalAddr().Port())
	init := func() *verbs.QPInitAttr {
		return &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	}
	must.Do(t, id.CreateQP(r.pd, init()))
	must.Do(t, id.Connect(&verbs.ConnParam{}))
	req := r.event(verbs.CMConnectRequest)
	t.Cleanup(func() { _ = req.ID.Close() })
	must.Do(t, req.ID.CreateQP(r.pd, init()))
	must.Do(t, req.ID.Accept(&verbs.ConnParam{}))
	for range 2 {
		r.event(verbs.CMEstablished)
	}
	must.Do(t, id.Disconnect())
	for r.event(verbs.CMDisconnected).ID != id {
	} // the peer is notified too
	r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "rdma_disconnect", Err: syscall.ENOMEM})
	if err := id.Disconnect(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("a second Disconnect, after DISCONNECTED, answered %v: it did not reach the library", err)
	}
	if err := id.Disconnect(); err != nil {
		t.Errorf("a third Disconnect answered %v", err)
	}
}
