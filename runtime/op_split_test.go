package runtime

import (
	"slices"
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

// Rule: of a signaled transfer that is split, the last request alone is signaled, so that its result does not wait for a
// later request of its list.
func TestTheLastRequestOfASplitTransferIsSignaled(t *testing.T) {
	const bytes, largest = 200, 64
	a, b := connected(t, Config{Conn: Options{SendDepth: 32, Recorder: 8}})
	far := must.Get(b.rt.NewRegion(bytes, allAccess))(t)
	near := must.Get(must.Get(a.rt.NewRegion(bytes, verbs.AccessLocalWrite))(t).Slice(0, bytes))(t)
	at := must.Get(far.Remote(0, bytes))(t)
	a.oneWR = largest
	for _, c := range []struct {
		first Op
		want  []bool // of the four requests of the first operation, and of the four of the last, which ends the list
	}{
		{WriteOp(near, at), []bool{false, false, false, false, false, false, false, true}},
		{WriteOp(near, at).Signaled(), []bool{false, false, false, true, false, false, false, true}},
		{ReadOp(near, at).Signaled(), []bool{false, false, false, true, false, false, false, true}},
	} {
		var fs []Future
		held(t, a, func() { // so that no pass is between the two
			for _, op := range []Op{c.first, WriteOp(near, at)} {
				f, err := a.Start(testContext(t), &op)
				if err != nil {
					t.Error(err)
					return
				}
				fs = append(fs, f)
			}
		})
		for _, f := range fs {
			done(t, f, nil)
		}
		var got []bool
		all := a.Recorded()
		for _, r := range all[max(0, len(all)-len(c.want)):] {
			got = append(got, r.Signaled)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: signaled are %v, want %v", c.first.opcode, got, c.want)
		}
	}
}
