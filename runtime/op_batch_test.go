package runtime

import (
	"context"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// strayPosts is a margin. A batch does not wake the loop. But the loop may be awake for another reason, and
// may then post a part of the batch, up to strayPosts times.
const strayPosts = 3

// batchBed returns the dialing end a of a connection, a region own of a's runtime, and a region far of
// the peer's runtime. Both regions have size bytes. The loops of both runtimes sleep: on a slow machine they
// handle the events of the connection for some time, and would post requests as they come.
func batchBed(t *testing.T, size int) (a *Conn, own, far *Region) {
	t.Helper()
	a, b := connected(t, Config{})
	far = must.Get(b.rt.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead))(t)
	own = must.Get(a.rt.NewRegion(size, verbs.AccessLocalWrite))(t)
	t.Cleanup(func() { mustClose(t, own, far) })
	// Twice, because the loop may go to sleep between Stats and Do, and Do wakes it.
	for _, rt := range []*Runtime{a.rt, a.rt, b.rt, b.rt} {
		before := rt.Stats().Sleeps
		must.Do(t, rt.shards[0].r.Do(testContext(t), func() {}))
		eventually(t, "the loop to sleep", func() bool { return rt.Stats().Sleeps > before })
	}
	return a, own, far
}

// Rule: starting a batch does not wake the loop (the reactor's own goroutine). A goroutine that awaits
// an operation of the batch posts the whole batch, in order and with one doorbell.
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
			t.Fatalf("awaiting operation %d: %v", i, err)
		}
	}
	for i := range n { // the READ, the last operation of the batch, has read what the WRITEs wrote
		if got := own.Bytes()[i*size]; got != byte(i+1) {
			t.Fatalf("the READ found %d at the place of WRITE %d, want %d", got, i, i+1)
		}
	}
	if lists := a.rt.Stats().Doorbells - before.Doorbells; lists > strayPosts+1 {
		t.Errorf("%d work requests took %d doorbells, want at most %d", n+1, lists, strayPosts+1)
	}
}

// Rule: if no goroutine awaits an operation of a batch, Batch.Flush makes the loop post the batch. A
// goroutine that waits for a slot also makes the loop post the batch.
func TestABatchThatNobodyAwaitsIsPosted(t *testing.T) {
	a, own, far := batchBed(t, 8)
	ctx := testContext(t)
	local, remote := must.Get(own.Slice(0, 8))(t), must.Get(far.Remote(0, 8))(t)
	batch, done := a.Batch(), make(mailSink, 1)
	op := WriteOp(local, remote)
	if _, err := a.start(ctx, &op, submitOpts{mode: reactor.NoWakeup, sink: done}); err != nil { // as Batch.Start, with a sink
		t.Fatal(err)
	}
	batch.Flush()
	if got := <-done; got.err != nil {
		t.Fatalf("the WRITE of the flushed batch: %v", got.err)
	}
	began := a.rt.Stats().Rechecks
	var last Future
	for range 4 * a.opts.SendDepth { // 4 operations for each slot, so batch.Start waits for slots
		last.Discard()
		last = must.Get(batch.Start(ctx, new(WriteOp(local, remote))))(t)
	}
	if _, err := last.Await(ctx); err != nil {
		t.Fatalf("the last WRITE of the batch: %v", err)
	}
	if rechecks := a.rt.Stats().Rechecks - began; rechecks > 1 {
		t.Errorf("%d rechecks ran while the batch was started, want at most 1; more mean that a wait for a slot did not wake the loop", rechecks)
	}
}

// Rule: starting receives in a batch does not wake the loop. Batch.Flush makes the loop post these
// receives, with one doorbell. The receives take the messages that the peer sends later.
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
		t.Errorf("%d receives of a batch woke the loop %d times, want 0", n, s.Wakeups-before.Wakeups)
	}
	batch.Flush()
	for i := range n {
		own.Bytes()[0] = byte(i + 1)
		if _, err := a.Do(ctx, new(SendOp(must.Get(own.Slice(0, size))(t)))); err != nil {
			t.Fatalf("sending message %d: %v", i, err)
		}
		if r, err := fs[i].Await(ctx); err != nil || r.Bytes != size || far.Bytes()[i*size] != byte(i+1) {
			t.Errorf("receive %d got %d bytes, the first is %d, error %v; want %d bytes, the first %d",
				i, r.Bytes, far.Bytes()[i*size], err, size, i+1)
		}
	}
	if lists := b.rt.Stats().RecvDoorbells - before.RecvDoorbells; lists > strayPosts+1 {
		t.Errorf("%d receives took %d doorbells, want at most %d", n, lists, strayPosts+1)
	}
}

// Rule: if a sender waits for a credit because an unposted batch holds all credits, the sender makes
// the loop post the batch. The peer returns credits only after it has received the batch's messages.
func TestWhoWaitsForACreditPostsTheBatch(t *testing.T) {
	// A recheck (a pass that a timer starts once a second) also posts the batch. By chance, a recheck
	// may run during a round. If the sender did not wake the loop, a recheck would run in half of the rounds.
	const rounds, few = 12, 3
	rechecks := uint64(0)
	for range rounds {
		rechecks += behindABatch(t)
	}
	if rechecks > few {
		t.Errorf("%d rechecks ran in %d rounds, want at most %d; more mean that the sender did not wake the loop", rechecks, rounds, few)
	}
}

// behindABatch starts a batch that uses all credits, and then sends another message. It returns the
// number of rechecks that ran meanwhile.
func behindABatch(t *testing.T) (rechecks uint64) {
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
		t.Errorf("starting the message after the batch: %v", err)
	} else if _, err := f.Await(ctx); err != nil {
		t.Errorf("the message after the batch: %v", err)
	}
	if err := <-received; err != nil {
		t.Errorf("receiving the messages: %v", err)
	}
	return a.rt.Stats().Rechecks - began
}
