package reactor_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the result of a request with SIGNALED does not wait for a later request of its list, which here meets RNR
// NAKs until there is a receive for it.
func TestASignaledRequestWaitsForNoLaterOne(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{RecvDepth: 2})
	defer b.close(t)
	defer a.close(t)
	arrived := make(inbox, 2)
	recv := func() {
		_, sge := b.bytes(0, 8)
		must.Do(t, b.q.PostRecv(&reactor.Recv{Sink: arrived}, []verbs.SGE{sge}, reactor.Block))
	}
	recv()
	ended := make(tally, 2)
	a.do(t, func() { // one list
		for _, flags := range []verbs.SendFlags{verbs.SendSignaled, 0} {
			_, err := a.q.Submit(t.Context(), &reactor.Send{Opcode: verbs.WRSend, Flags: flags, Sink: ended}, &reactor.Payload{Inline: []byte("x")}, reactor.NonBlock)
			must.Do(t, err)
		}
	})
	must.Do(t, comes(t, "the result of the first message, while the second has no receive", ended))
	recv()
	must.Do(t, comes(t, "the result of the second message", ended))
}
