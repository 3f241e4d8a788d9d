package soft

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
)

// Rule: the device explains requests without an answer by a receive buffer that was too small, with the numbers that
// its owner needs; without lost datagrams, or for another failure, it explains nothing.
func TestExplain(t *testing.T) {
	const want = "17 datagrams found the receive buffer of 212992 bytes full: a larger net.core.rmem_max may help"
	if got := blame(roce.Stats{Dropped: 17, Buffer: 212992}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	x := newPeerProcess(t)
	c := must.Get(x.p.Open("soft0"))(t)
	defer func() { must.Do(t, c.Close()) }()
	for _, s := range []verbs.WCStatus{verbs.WCRetryExcErr, verbs.WCRemAccessErr} {
		if got := c.(verbs.Explainer).Explain(s); got != "" {
			t.Errorf("%v is explained by %q", s, got)
		}
	}
}
