package reactor_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: if the device refuses a receive of a SharedRecv, the receive ends with an error that names the
// shared receive queue. After Release, the reactor gives back the memory of the SharedRecv.
func TestASharedReceiveIsRefused(t *testing.T) {
	h := &hooked{}
	l := newLone(t, reactor.Config{Stepped: true}, func(c verbs.Context) verbs.Context { h.Context = c; return h })
	h.set(func(inner verbs.Context, turn *verbs.IOBatch) error {
		recvs := turn.Recvs
		turn.Recvs = nil
		for i := range recvs {
			recvs[i].Accepted, recvs[i].Errno = 0, syscall.EIO
		}
		err := inner.Execute(turn)
		turn.Recvs = recvs
		return err
	})
	s := must.Get(l.r.PrepareShared(l.pd, 4, 1))(t)
	l.do(t, func() {
		must.Do(t, s.Admit())
		s.Bind(must.Get(l.pd.CreateSRQ(s.Attr()))(t))
	})
	ended := make(tally, 1)
	must.Do(t, s.PostRecv(&reactor.Recv{Sink: ended}, nil, reactor.Block))
	l.r.Step()
	var op *verbs.OpError
	if err := comes(t, "the receive", ended); !errors.As(err, &op) || op.Object != s.SRQ().String() {
		t.Errorf("the receive ended with %v, want a verbs.OpError with the object %v", err, s.SRQ())
	}
	l.do(t, func() {
		must.Do(t, s.SRQ().Close())
		must.Do(t, s.Release(errOver))
	})
	l.close(t) // not deferred, because l.close would wait forever if Step panicked: the turn would stay held
}
