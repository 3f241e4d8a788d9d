package runtime

import (
	stdruntime "runtime"
	"testing"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// deviceAllocOps is the approximate number of operations that a subtest measures in short mode and on
// kernel devices (VERBENA_TEST_DEVICES), where one operation may take a millisecond. In all other runs
// a subtest measures about allocOps operations.
const deviceAllocOps = 200

// Rule: on a managed connection (a connection with flow control by credits), starting an operation and
// waiting for its result allocate nothing on the Go heap.
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
			t.Fatalf("a measured call failed: %v", err)
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
	texts, messages := make([]Op, len(batch)), make([]Message, len(batch))
	for i := range texts {
		texts[i] = SendBytesOp(word)
	}
	if b.pool != nil {
		flood(t, a, b, 2000) // the window grows, which allocates
	}
	asking, answers := connected(t, Config{})
	go answering(ctx, answers)
	chain := &runner{c: a, ops: [2]Op{WriteOp(local, remote), ReadOp(local, remote)}, over: make(chan struct{}, 1)}
	for name, c := range map[string]struct {
		op  func()
		per int // number of operations that one call of op executes
	}{
		"Write and Await": {func() { end(a.Write(ctx, local, remote)) }, 1},
		"Read and Await":  {func() { end(a.Read(ctx, local, remote)) }, 1},
		"Do of a WRITE":   {func() { _, err := a.Do(ctx, new(WriteOp(local, remote))); fail(err) }, 1},
		"Do of a READ":    {func() { _, err := a.Do(ctx, new(ReadOp(local, remote))); fail(err) }, 1},
		"StartFromSink":   {func() { chain.run(t, len(batch)) }, len(batch)},
		"Do of a SEND": {func() {
			_, err := a.Do(ctx, new(SendOp(local)))
			fail(err)
			m, err := b.RecvWait(ctx)
			fail(err)
			fail(m.Release())
		}, 2},
		"Start of a fetch and add": {func() { end(a.Start(ctx, new(FetchAndAddOp(remote, 1)))) }, 1},
		"SendBytes, inline":        {func() { end(a.SendBytes(ctx, word)); m, err := b.RecvWait(ctx); fail(err); fail(m.Release()) }, 2},
		"SendBytes, not inline":    {func() { end(a.SendBytes(ctx, local.Bytes())); m, err := b.RecvWait(ctx); fail(err); fail(m.Release()) }, 2},
		"Batch.StartAll of WRITEs": {func() {
			_, err := a.Batch().StartAll(ctx, ops, batch)
			fail(err)
			for _, f := range batch {
				_, err := f.Await(ctx)
				fail(err)
			}
		}, len(batch)},
		"Batch.StartAll of SENDs, RecvMany": {func() {
			_, err := a.Batch().StartAll(ctx, texts, batch)
			fail(err)
			for _, f := range batch {
				_, err := f.Await(ctx)
				fail(err)
			}
			for got := 0; got < len(batch); {
				n, err := b.RecvMany(ctx, messages)
				fail(err)
				fail(ReleaseMany(messages[:n]))
				got += n
			}
		}, len(batch)},
		"Call and Reply": {func() {
			m, err := asking.Call(ctx, &texts[0])
			fail(err)
			fail(m.Release())
		}, 2},
		"DoAll of WRITEs": {func() { _, err := a.DoAll(ctx, ops, results); fail(err) }, len(ops)},
		"WRITEs in a futures.Group": {func() {
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
			// MemStats also counts the allocations of all other goroutines. So the limit is not 0, and it is
			// higher if few operations are measured.
			calls, most := allocOps/c.per, 0.001
			if onDevice || testing.Short() {
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
			t.Logf("%.6f allocations per operation, measured over %d operations", per, calls*c.per)
			if per >= most && !raceEnabled {
				t.Errorf("%.6f allocations per operation, want less than %v", per, most)
			}
		})
	}
}
