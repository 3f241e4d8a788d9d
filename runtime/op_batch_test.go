package runtime

import (
	"context"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// While a batch is being started, the loop may run for another reason and post a part of the batch,
// because the connection was made just before and the machine may be slow. strayLooks is how often
// this may happen.
const strayLooks = 3

// batchBed returns the dialing end a of a connection, a region of size bytes on that end (own), and
// one on the other end (far).
func batchBed(t *testing.T, size int) (a *Conn, own, far *Region) {
	t.Helper()
	a, b := connected(t, Config{})
	far = must.Get(b.rt.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead))(t)
	own = must.Get(a.rt.NewRegion(size, verbs.AccessLocalWrite))(t)
	t.Cleanup(func() { mustClose(t, own, far) })
	return a, own, far
}

// Rule: a batch does not wake the loop (the reactor's own goroutine). A goroutine that awaits an
// operation of the batch posts the whole batch, in order and with one doorbell.
func TestABatchIsPostedByWhoAwaitsIt(t *testing.T) {
	const n, size = 64, 8
	a, own, far := batchBed(t, n*size)
	ctx := testContext(t)
	batch, before := a.Batch(), a.rt.Stats()
	var fs []Future
	for i := range n {
		own.Bytes()[i*size] = byte(i + 1)
		fs = append(fs, must.Get(batch.Start(ctx, new(WriteOp(must.Get(own.Slice(i*size, size))(t), must.Get(far.Remote(i*size, size))(t)))))(t))
	}
	op := ReadOp(must.Get(own.Slice(0, n*size))(t), must.Get(far.Remote(0, n*size))(t))
	fs = append(fs, must.Get(batch.Start(ctx, &op))(t))
	for i, f := range fs {
		if _, err := f.Await(ctx); err != nil {
			t.Fatalf("operation %d: %v", i, err)
		}
	}
	for i := range n { // the READ was executed after the WRITEs
		if got := own.Bytes()[i*size]; got != byte(i+1) {
			t.Fatalf("piece %d came back as %d, want %d", i, got, i+1)
		}
	}
	if lists := a.rt.Stats().Doorbells - before.Doorbells; lists > strayLooks+1 {
		t.Errorf("%d work requests took %d doorbells, want one", n+1, lists)
	}
}

// Rule: no operation of a batch stays unposted. Batch.Flush makes the loop post the batch, and so
// does a submitter that waits for a slot.
func TestABatchThatNobodyAwaitsIsPosted(t *testing.T) {
	a, own, far := batchBed(t, 8)
	ctx := testContext(t)
	local, remote := must.Get(own.Slice(0, 8))(t), must.Get(far.Remote(0, 8))(t)
	batch, done := a.Batch(), make(mailSink, 1)
	op := WriteOp(local, remote)
	if _, err := a.start(ctx, &op, submitOpts{mode: reactor.NoWakeup, sink: done}); err != nil {
		t.Fatal(err)
	}
	batch.Flush()
	if got := <-done; got.err != nil {
		t.Fatal(got.err)
	}
	began := a.rt.Stats().Rechecks
	var last Future
	for range 4 * a.opts.SendDepth { // many more operations than slots
		last.Discard()
		last = must.Get(batch.Start(ctx, new(WriteOp(local, remote))))(t)
	}
	if _, err := last.Await(ctx); err != nil {
		t.Fatal(err)
	}
	if looks := a.rt.Stats().Rechecks - began; looks > 1 {
		t.Errorf("%d rounds of the watch passed: it was they who had the batch posted", looks)
	}
}

// Rule: receives of a batch do not wake the loop. Batch.Flush makes the loop post these receives,
// with one doorbell. The receives take the messages that the peer sends after that.
func TestReceivesOfABatchGoWithWhatIsAwaited(t *testing.T) {
	const n, size = 32, 8
	a, b := connected(t, Config{Conn: Options{Raw: true}})
	ctx := testContext(t)
	far := must.Get(b.rt.NewRegion(n*size, verbs.AccessLocalWrite))(t)
	own := must.Get(a.rt.NewRegion(size, verbs.AccessLocalWrite))(t)
	defer mustClose(t, own, far)
	batch, before := b.Batch(), b.rt.Stats()
	var fs []Future
	for i := range n {
		fs = append(fs, must.Get(batch.Start(context.Background(), new(PostRecvOp(must.Get(far.Slice(i*size, size))(t)))))(t))
	}
	if s := b.rt.Stats(); s.Wakeups != before.Wakeups {
		t.Errorf("%d receives of a batch rang %d times", n, s.Wakeups-before.Wakeups)
	}
	batch.Flush()
	for i := range n {
		own.Bytes()[0] = byte(i + 1)
		if _, err := a.Do(ctx, new(SendOp(must.Get(own.Slice(0, size))(t)))); err != nil {
			t.Fatal(err)
		}
		if r, err := fs[i].Await(ctx); err != nil || r.Bytes != size || far.Bytes()[i*size] != byte(i+1) {
			t.Errorf("receive %d: %d bytes, the first is %d, error %v", i, r.Bytes, far.Bytes()[i*size], err)
		}
	}
	if lists := b.rt.Stats().RecvDoorbells - before.RecvDoorbells; lists > strayLooks+1 {
		t.Errorf("%d receives took %d doorbells, want one", n, lists)
	}
}

// Rule: a sender that waits for a credit makes the loop post the earlier batch. The peer can return
// credits only for the messages of this batch.
func TestWhoWaitsForACreditPostsTheBatch(t *testing.T) {
	// A recheck (the reactor's poll once a second) also posts the batch. By chance, a few rounds
	// may have a recheck. Without the wake-up under test, half of the rounds would have one.
	const rounds, few = 12, 3
	looks := uint64(0)
	for range rounds {
		looks += behindABatch(t)
	}
	if looks > few {
		t.Errorf("%d rounds of the watch passed in %d: it was he who had the batch posted", looks, rounds)
	}
}

// behindABatch starts a batch that uses all credits, and sends one more message. It returns the
// number of rechecks during this time.
func behindABatch(t *testing.T) (looks uint64) {
	t.Helper()
	const credits = 4
	a, b := connected(t, Config{Conn: Options{RecvCredits: credits}})
	ctx := testContext(t)
	received := make(chan error, 1)
	go func() {
		for range credits + 1 {
			m, err := b.RecvWait(ctx)
			if err == nil {
				err = m.Release()
			}
			if err != nil {
				received <- err
				return
			}
		}
		received <- nil
	}()
	began := a.rt.Stats().Rechecks
	batch, op := a.Batch(), SendBytesOp([]byte("x"))
	for range credits {
		f := must.Get(batch.Start(ctx, &op))(t)
		f.Discard()
	}
	if f, err := a.SendBytes(ctx, []byte("behind them")); err != nil {
		t.Error(err)
	} else if _, err := f.Await(ctx); err != nil {
		t.Error(err)
	}
	if err := <-received; err != nil {
		t.Error(err)
	}
	return a.rt.Stats().Rechecks - began
}
