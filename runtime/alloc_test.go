package runtime

import (
	stdruntime "runtime"
	"testing"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// deviceAllocOps is about how many operations a subtest measures in short mode and on devices of the
// system, where an operation may take a millisecond. In all other runs the number is allocOps.
const deviceAllocOps = 200

// Rule: on a managed connection (one with flow control), an operation allocates nothing from its
// submission until its result is awaited.
func TestOperationsAllocateNothing(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := t.Context()
	region := must.Get(b.rt.NewRegion(1<<16, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, region.Len()))(t)
	buf := must.Get(a.rt.Alloc(512))(t)
	defer buf.Release()
	local := buf.Slice()
	word := make([]byte, 16)
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	end := func(f Future, err error) {
		fail(err)
		_, err = f.Await(ctx)
		fail(err)
	}
	var g futures.Group
	batch := make([]Future, 32)
	ops, results := make([]Op, len(batch)), make([]Result, len(batch))
	for i := range ops {
		ops[i] = WriteOp(local, remote)
	}
	chain := &runner{c: a, ops: [2]Op{WriteOp(local, remote), ReadOp(local, remote)}, over: make(chan struct{}, 1)}
	for name, c := range map[string]struct {
		op  func()
		per int // number of operations that one call of op executes
	}{
		"write":                   {func() { end(a.Write(ctx, local, remote)) }, 1},
		"read":                    {func() { end(a.Read(ctx, local, remote)) }, 1},
		"write, waited":           {func() { _, err := a.Do(ctx, new(WriteOp(local, remote))); fail(err) }, 1},
		"read, waited":            {func() { _, err := a.Do(ctx, new(ReadOp(local, remote))); fail(err) }, 1},
		"writes that sinks start": {func() { chain.run(t, len(batch)) }, len(batch)},
		"message, waited": {func() {
			_, err := a.Do(ctx, new(SendOp(local)))
			fail(err)
			m, err := b.RecvWait(ctx)
			fail(err)
			fail(m.Release())
		}, 2},
		"fetch and add":   {func() { end(a.Start(ctx, new(FetchAndAddOp(remote, 1)))) }, 1},
		"message":         {func() { end(a.SendBytes(ctx, word)); m, err := b.RecvWait(ctx); fail(err); fail(m.Release()) }, 2},
		"message, copied": {func() { end(a.SendBytes(ctx, local.Bytes())); m, err := b.RecvWait(ctx); fail(err); fail(m.Release()) }, 2},
		"writes started as one": {func() {
			_, err := a.Batch().StartAll(ctx, ops, batch)
			fail(err)
			for _, f := range batch {
				_, err := f.Await(ctx)
				fail(err)
			}
		}, len(batch)},
		"writes, all waited for": {func() { _, err := a.DoAll(ctx, ops, results); fail(err) }, len(ops)},
		"batch of writes": {func() {
			for i := range batch {
				f, err := a.Write(ctx, local, remote)
				fail(err)
				batch[i] = f
				fail(futures.Add(&g, f))
			}
			fail(g.Wait(ctx))
			for _, f := range batch {
				_, err, _ := f.Poll()
				fail(err)
			}
		}, len(batch)},
	} {
		t.Run(name, func(t *testing.T) {
			calls, most := allocOps/c.per, 0.001
			if onDevice || testing.Short() { // with few operations, the allocations of other goroutines count more
				calls, most = deviceAllocOps/c.per+1, 0.5
			}
			for range calls / 10 {
				c.op()
			}
			var before, after stdruntime.MemStats
			stdruntime.ReadMemStats(&before)
			for range calls {
				c.op()
			}
			stdruntime.ReadMemStats(&after)
			per := float64(after.Mallocs-before.Mallocs) / float64(calls*c.per)
			t.Logf("%.6f allocations per operation over %d", per, calls*c.per)
			if per >= most && !raceEnabled {
				t.Errorf("%.6f allocations per operation, want below %v", per, most)
			}
		})
	}
}
