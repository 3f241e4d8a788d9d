package reactor_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// await waits for f and returns its completion. The argument err is the error of the call that returned
// f. The test fails if err is not nil, or if f does not succeed within 10 s.
func await(t testing.TB, f reactor.Future, err error) reactor.Completion {
	t.Helper()
	must.Do(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := must.Get(f.Await(ctx))(t)
	return c
}

// Rule: every kind of operation moves its data and completes exactly one time. This holds if the
// caller drives, if only the loop runs passes, and if the reactor does not spin.
func TestEveryKindOfOperation(t *testing.T) {
	for name, cfg := range map[string]reactor.Config{"driving": {}, "loop only": {NoCallerDriving: true}, "no spinning": {Spin: -1}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, cfg, reactor.QueueConfig{})
			defer b.close(t)
			defer a.close(t)
			ctx := context.Background()
			src, sge := a.bytes(0, 4096)
			for i := range src {
				src[i] = byte(i * 7)
			}
			addr, key := b.remote(8192)
			got, _ := b.bytes(8192, 4096)
			f, err := a.q.Submit(ctx, &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.Block)
			if c := await(t, f, err); c.Bytes != 4096 || c.Kind != reactor.KindWrite || !bytes.Equal(got, src) {
				t.Fatalf("the WRITE completed with %+v and equal data = %t; want kind WRITE, 4096 bytes and equal data = true", c, bytes.Equal(got, src))
			}
			back, sge2 := a.bytes(16384, 4096)
			f, err = a.q.Submit(ctx, &reactor.Send{Opcode: verbs.WRRDMARead, Remote: addr, RKey: key}, &reactor.Payload{SGEs: []verbs.SGE{sge2}}, reactor.Block)
			if c := await(t, f, err); c.Bytes != 4096 || !bytes.Equal(back, src) {
				t.Fatalf("the READ completed with %+v and equal data = %t; want 4096 bytes and equal data = true", c, bytes.Equal(back, src))
			}
			box := make(inbox, 4)
			_, in := b.bytes(32768, 4096)
			for i := range 3 {
				must.Do(t, b.q.PostRecv(&reactor.Recv{Sink: box, Tag: uint64(i)}, []verbs.SGE{in}, reactor.Block))
			}
			for i, r := range []struct {
				s reactor.Send
				p reactor.Payload
			}{
				{reactor.Send{Opcode: verbs.WRSend}, reactor.Payload{SGEs: []verbs.SGE{sge}}},
				{reactor.Send{Opcode: verbs.WRSend}, reactor.Payload{Inline: []byte("inline"), Header: []byte("head:")}},
				{reactor.Send{Opcode: verbs.WRRDMAWriteWithImm, Imm: 0x01020304, Remote: addr, RKey: key}, reactor.Payload{SGEs: []verbs.SGE{sge}}},
			} {
				f, err := a.q.Submit(ctx, &r.s, &r.p, reactor.Block)
				await(t, f, err)
				c := <-box
				want := []uint32{4096, 11, 4096}[i]
				if c.Bytes != want || c.Tag != uint64(i) || i == 2 && (c.Imm != 0x01020304 || c.Flags&verbs.WCWithImm == 0) {
					t.Fatalf("receive %d completed with %+v, want %d bytes, tag %d and, for receive 2, the immediate 0x01020304", i, c, want, i)
				}
			}
			if got, _ := b.bytes(32768, 11); string(got) != "head:inline" {
				t.Fatalf("header and inline data arrived as %q, want \"head:inline\"", got)
			}
			f, err = a.q.Submit(ctx, &reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Add: 5, Remote: addr, RKey: key}, &reactor.Payload{}, reactor.Block)
			old := await(t, f, err).Value
			f, err = a.q.Submit(ctx, &reactor.Send{Opcode: verbs.WRAtomicCmpAndSwp, Compare: old + 5, Swap: 99, Remote: addr, RKey: key}, &reactor.Payload{}, reactor.Block)
			if c := await(t, f, err); c.Value != old+5 {
				t.Fatalf("the compare-and-swap returned %d, want %d", c.Value, old+5)
			}
			if w, _ := b.arena.Word(addr); *w != 99 {
				t.Fatalf("after the compare-and-swap the word is %d, want 99", *w)
			}
		})
	}
}

// Rule: requests that were submitted together share a doorbell. The completion of a signaled request
// retires the unsignaled requests before it.
func TestPipelinedWorkSharesDoorbells(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 64})
	defer b.close(t)
	defer a.close(t)
	addr, key := b.remote(0)
	_, sge := a.bytes(0, 8)
	var g futures.Group
	fs := make([]reactor.Future, 64)
	s, p := reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, reactor.Payload{SGEs: []verbs.SGE{sge}}
	for range 200 {
		a.do(t, func() { // with the turn held, so all requests are submitted before any is posted
			for i := range fs {
				f := must.Get(a.q.Submit(context.Background(), &s, &p, reactor.NonBlock))(t)
				fs[i] = f
				must.Do(t, futures.Add(&g, f))
			}
			if _, err := a.q.Submit(context.Background(), &s, &p, reactor.NonBlock); !errors.Is(err, reactor.ErrQueueFull) {
				t.Fatalf("Submit with all 64 slots taken returned %v, want ErrQueueFull", err)
			}
		})
		must.Do(t, g.Wait(context.Background()))
		for _, f := range fs {
			if _, err, ok := f.Poll(); !ok || err != nil {
				t.Fatalf("after Group.Wait, Poll of a future returned settled = %t and the error %v, want true and nil", ok, err)
			}
		}
	}
	st := a.r.Stats()
	if st.WRsPerDoorbell() < 32 || st.Retired < st.WorkRequests/2 {
		t.Fatalf("%.1f work requests per doorbell, and %d of %d were retired by a later completion; want at least 32, and at least half", st.WRsPerDoorbell(), st.Retired, st.WorkRequests)
	}
	if want := st.WorkRequests - st.Polled; st.Retired != want {
		t.Errorf("%d of %d work requests were retired by a later completion and %d completions were polled, want %d retired", st.Retired, st.WorkRequests, st.Polled, want)
	}
}

// deviceAllocOps and deviceAllocLimit are the number of operations, and the limit of allocations per
// operation, for a device. The number is small, because an operation takes system calls and packets,
// which take 2 ms on an emulated machine. The limit is higher than for the software RNIC, because the
// Config.Recheck timer and the Go runtime may allocate during these 2 ms.
const (
	deviceAllocOps   = 500
	deviceAllocLimit = 0.1
)

// Rule: an operation allocates nothing from its submission until Await returns, with or without a
// recorder.
func TestSubmitToAwaitAllocatesNothing(t *testing.T) {
	t.Run("plain", func(t *testing.T) { allocatesNothing(t, reactor.QueueConfig{}) })
	t.Run("recorded", func(t *testing.T) { allocatesNothing(t, reactor.QueueConfig{Recorder: 64}) })
}

func allocatesNothing(t *testing.T, qc reactor.QueueConfig) {
	a, b := pair(t, reactor.Config{}, qc)
	defer b.close(t)
	defer a.close(t)
	ctx := context.Background()
	addr, key := b.remote(0)
	_, sge := a.bytes(0, 8)
	s, p := reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, reactor.Payload{SGEs: []verbs.SGE{sge}}
	one := func() {
		f, err := a.q.Submit(ctx, &s, &p, reactor.NoWakeup)
		if err == nil {
			_, err = f.Await(ctx)
		}
		must.Do(t, err)
	}
	n, limit := allocOps, 0.001
	if onDevice() {
		n, limit = deviceAllocOps, deviceAllocLimit
	}
	for range n / 10 {
		one()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		one()
	}
	runtime.ReadMemStats(&after)
	per := float64(after.Mallocs-before.Mallocs) / float64(n)
	t.Logf("%.6f allocations per operation over %d", per, n)
	if per >= limit && !raceEnabled {
		t.Fatalf("%.6f allocations per operation, want below %v", per, limit)
	}
}

// Rule: the errors of flushed operations and of later requests wrap the first failure of the queue.
func TestFirstFailureIsTheCause(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	ctx := context.Background()
	addr, key := b.remote(0)
	_, sge := a.bytes(0, 8)
	var fs []reactor.Future
	a.do(t, func() {
		for i := range 4 {
			s, p := reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, reactor.Payload{SGEs: []verbs.SGE{sge}}
			if i == 1 {
				s.RKey ^= 0xffff // a wrong key
			}
			f := must.Get(a.q.Submit(context.Background(), &s, &p, reactor.NonBlock))(t)
			fs = append(fs, f)
		}
	})
	want := []verbs.WCStatus{verbs.WCSuccess, verbs.WCRemAccessErr, verbs.WCWRFlushErr, verbs.WCWRFlushErr}
	for i, f := range fs {
		_, err := f.Await(ctx)
		if want[i] == verbs.WCSuccess && err == nil {
			continue
		}
		if !errors.Is(err, verbs.StatusError(want[i])) || !errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr)) {
			t.Fatalf("operation %d ended with %v, want status %v with REM_ACCESS_ERR as the cause", i, err, want[i])
		}
	}
	_, err := a.q.Submit(ctx, &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.Block)
	if !errors.Is(err, reactor.ErrQueueFailed) || !errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr)) {
		t.Fatalf("Submit after the failure returned %v, want ErrQueueFailed that wraps REM_ACCESS_ERR", err)
	}
}

// crossing is a device that counts the calls of Execute.
type crossing struct {
	verbs.Context
	n *atomic.Int64
}

func (c crossing) Execute(t *verbs.IOBatch) error {
	c.n.Add(1)
	return c.Context.Execute(t)
}

// Rule: a synchronous operation that completes at once takes one call of Execute. If nothing is
// outstanding and all needed completion queues are armed, the holder leaves without another poll.
// (The software RNIC completes an operation within the Execute that posts it.)
func TestASynchronousOperationCrossesOnce(t *testing.T) {
	onlySoft(t, "a device completes an operation later than the pass that posts it")
	var n atomic.Int64
	b := newEnd(t, softBed.open(t, 1), reactor.Config{}, reactor.QueueConfig{}, nil)
	defer b.close(t)
	a := newEnd(t, softBed.open(t, 0), reactor.Config{Recheck: -1}, reactor.QueueConfig{}, func(c verbs.Context) verbs.Context { return crossing{c, &n} })
	defer a.close(t)
	a.ready(t, b)
	b.ready(t, a)
	s, p := a.write(b)
	ctx := context.Background()
	const ops = 1000
	for i := range 2 * ops {
		if i == ops { // by now the loop has armed the completion queues and sleeps
			n.Store(0)
		}
		f, err := a.q.Submit(ctx, s, &p, reactor.NoWakeup)
		await(t, f, err)
	}
	if got := n.Load(); got > ops+ops/10 {
		t.Errorf("%d operations took %d calls of Execute, want at most %d", ops, got, ops+ops/10)
	}
}

// silent is a device. While silent.mute is set, it completes the atomics of the queue silent.q without
// writing their results. Only the holder of the turn uses these two fields.
type silent struct {
	verbs.Context
	q    *reactor.Queue
	mute bool
}

func (c *silent) Execute(t *verbs.IOBatch) error {
	err := c.Context.Execute(t)
	if c.mute && c.q != nil {
		c.q.ForgetAnswers()
	}
	return err
}

// Rule: if the device completes an atomic without writing the result, the operation fails with
// ErrUnanswered, and does not return the result of an earlier atomic. The queue does not fail.
func TestAtomicWithoutItsAnswerFails(t *testing.T) {
	var ends []*silent
	a, b := pairOf(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 4}, func(c verbs.Context) verbs.Context {
		ends = append(ends, &silent{Context: c})
		return ends[len(ends)-1]
	})
	defer b.close(t)
	defer a.close(t)
	s := ends[0] // the device of a
	addr, key := b.remote(0)
	add := func() (reactor.Completion, error) {
		f := must.Get(a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Remote: addr, RKey: key, Add: 5}, &reactor.Payload{}, reactor.Block))(t)
		return f.Await(context.Background())
	}
	if c, err := add(); err != nil || c.Value != 0 {
		t.Fatalf("the first fetch-and-add returned %d, %v; want 0, nil", c.Value, err)
	}
	a.do(t, func() { s.q, s.mute = a.q, true })
	if c, err := add(); !errors.Is(err, reactor.ErrUnanswered) || c.Value != 0 {
		t.Errorf("a fetch-and-add without a stored result returned %d, %v; want 0, ErrUnanswered", c.Value, err)
	}
	a.do(t, func() { s.mute = false })
	if c, err := add(); err != nil || c.Value != 10 {
		t.Errorf("the third fetch-and-add returned %d, %v; want 10, nil", c.Value, err)
	}
	if n := a.r.Stats().Unanswered; n != 1 {
		t.Errorf("Stats.Unanswered is %d, want 1", n)
	}
}
