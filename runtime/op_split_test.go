package runtime

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the result of a transfer that is split is that of one request: its opcode, kind and bytes are those of an
// unsplit one.
func TestASplitTransferHasTheResultOfOne(t *testing.T) {
	const bytes = 200
	a, b := connected(t, Config{Conn: Options{SendDepth: 32, RecvCredits: 8}})
	ctx := testContext(t)
	far := must.Get(b.rt.NewRegion(bytes, allAccess))(t)
	near := must.Get(must.Get(a.rt.NewRegion(bytes, verbs.AccessLocalWrite))(t).Slice(0, bytes))(t)
	at := must.Get(far.Remote(0, bytes))(t)
	var want []Result
	port := a.oneWR
	for _, largest := range []int{port, 64} {
		a.oneWR = largest
		var got []Result
		for _, op := range []Op{WriteOp(near, at), ReadOp(near, at), WriteOp(near, at).Imm(7), WriteOp(near, at).Signaled(), ReadOp(near, at).Signaled()} {
			got = append(got, must.Get(a.Do(ctx, &op))(t))
		}
		if largest == port {
			want = got
			continue
		}
		for i := range got {
			if g, w := got[i], want[i]; g.Opcode != w.Opcode || g.Kind != w.Kind || g.Bytes != w.Bytes {
				t.Errorf("operation %d, split: opcode %v, kind %v, %d bytes; want %v, %v and %d", i, g.Opcode, g.Kind, g.Bytes, w.Opcode, w.Kind, w.Bytes)
			}
		}
	}
}
