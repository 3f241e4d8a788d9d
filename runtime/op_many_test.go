package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	stdruntime "runtime"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// startAll starts ops with Batch.StartAll and awaits their futures.
func startAll(ctx context.Context, c *Conn, ops []Op) ([]Result, error) {
	fs, rs := make([]Future, len(ops)), make([]Result, len(ops))
	n, err := c.Batch().StartAll(ctx, ops, fs)
	if err != nil || n != len(ops) {
		return nil, fmt.Errorf("StartAll started %d of %d operations: %w", n, len(ops), err)
	}
	for i, f := range fs {
		if rs[i], err = f.Await(ctx); err != nil {
			return nil, fmt.Errorf("awaiting operation %d: %w", i, err)
		}
	}
	return rs, nil
}

// doAll executes ops with Conn.DoAll.
func doAll(ctx context.Context, c *Conn, ops []Op) ([]Result, error) {
	rs := make([]Result, len(ops))
	n, err := c.DoAll(ctx, ops, rs)
	if err != nil || n != len(ops) {
		return nil, fmt.Errorf("DoAll of %d operations returned %d: %w", len(ops), n, err)
	}
	return rs, nil
}

// Rule: if StartAll or DoAll gets a list of operations, the effect is that of one Start for each operation,
// in order. The list may have operations of all kinds, and more operations than the send queue has slots.
// Each operation gets its own result.
func TestSeveralAreEachOfThem(t *testing.T) {
	for name, do := range map[string]func(context.Context, *Conn, []Op) ([]Result, error){"StartAll": startAll, "DoAll": doAll} {
		t.Run(name, func(t *testing.T) { severalAreEach(t, do) })
	}
}

// Rule: if StartAll starts several SENDs without memory, all succeed, even if one poll returns their
// completions together.
func TestSeveralWithoutMemory(t *testing.T) {
	a, b := connected(t, Config{})
	ops := []Op{SendOp(Slice{}), SendOp(Slice{}), SendOp(Slice{})}
	if _, err := startAll(testContext(t), a, ops); err != nil {
		t.Fatal(err)
	}
	for range ops {
		receive(t, b, "")
	}
}

func severalAreEach(t *testing.T, do func(context.Context, *Conn, []Op) ([]Result, error)) {
	const words, depth, rounds = 40, 24, 30
	a, b := connected(t, Config{Conn: Options{SendDepth: depth}})
	a.oneWR = 64 // transfers of more than 64 bytes are split into several work requests
	ctx := testContext(t)
	far := must.Get(b.rt.NewRegion(8*words, allAccess))(t)
	var own [2]*Region
	for i := range own {
		own[i] = must.Get(a.rt.NewRegion(8*words, verbs.AccessLocalWrite))(t)
	}
	received := make(chan int)
	go func() { // counts the messages until an empty message arrives
		for n := 0; ; n++ {
			m, err := b.RecvWait(ctx)
			empty := len(m.Data) == 0
			if err == nil {
				err = m.Release()
			}
			if empty || err != nil {
				received <- n
				return
			}
		}
	}()
	sends := 0
	rnd := rand.New(rand.NewPCG(1, 2))
	var want [words]byte // the expected first byte of each word of far
	for round := range rounds {
		var ops []Op
		var check []func(Result)
		for range rnd.IntN(3 * depth) {
			k := rnd.IntN(words)
			at := must.Get(far.Remote(8*k, 8))(t)
			switch rnd.IntN(8) {
			case 0: // a FETCH_ADD of 1, which must find the value that the earlier operations stored
				had := want[k]
				want[k]++
				ops = append(ops, FetchAndAddOp(at, 1))
				check = append(check, func(r Result) {
					if got := byte(r.Value); got != had {
						t.Errorf("round %d: a FETCH_ADD found the first byte %d in word %d, want %d", round, got, k, had)
					}
				})
			case 1:
				b := rnd.Uint32()
				want[k] = byte(b)
				buf := bufferOf(t, a.rt, []byte{byte(b), 0, 0, 0, 0, 0, 0, 0})
				ops, check = append(ops, WriteVOp([]Slice{buf.Slice()}, at)), append(check, nil)
			case 3: // a split WRITE of all words
				for k := range words {
					own[1].Bytes()[8*k] = byte(k)
					want[k] = byte(k)
				}
				ops, check = append(ops, WriteOp(must.Get(own[1].Slice(0, 8*words))(t), must.Get(far.Remote(0, 8*words))(t))), append(check, nil)
			case 2: // a SEND between the transfers
				sends++
				ops, check = append(ops, SendOp(must.Get(own[0].Slice(0, 8))(t))), append(check, nil)
			default:
				mine := own[rnd.IntN(2)]
				// An earlier WRITE of this list may read this byte later, when the device executes the
				// WRITE. So the byte must keep its value: each WRITE of word k from own[0] or own[1]
				// stores the value k.
				mine.Bytes()[8*k] = byte(k)
				want[k] = byte(k)
				ops, check = append(ops, WriteOp(must.Get(mine.Slice(8*k, 8))(t), at)), append(check, nil)
			}
		}
		rs, err := do(ctx, a, ops)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for i, r := range rs {
			if check[i] != nil {
				check[i](r)
			}
		}
		for k, w := range want {
			if got := far.Bytes()[8*k]; got != w {
				t.Fatalf("round %d: the first byte of word %d is %d, want %d", round, k, got, w)
			}
		}
	}
	if _, err := a.Do(ctx, new(SendOp(Slice{}))); err != nil { // the empty message ends the count
		t.Fatal(err)
	}
	if n := <-received; n != sends {
		t.Errorf("%d messages arrived, want %d", n, sends)
	}
	mustClose(t, own[0], own[1], far) // fails if an operation still has a lease
}

// Rule: if StartAll cannot start an operation, it returns the operation's index and error. The operations
// before this operation complete. StartAll does not start the operations after it, and leaves no lease on
// their memory.
func TestDoAllStopsAtAMistake(t *testing.T) {
	const n, at = 20, 11
	a, own, far := batchBed(t, 64)
	other := must.Get(a.rt.NewRegion(64, 0))(t)
	good := WriteOp(must.Get(own.Slice(0, 8))(t), must.Get(far.Remote(0, 8))(t))
	gone := must.Get(a.rt.Alloc(8))(t)
	stale := gone.Slice()
	if err := gone.Release(); err != nil {
		t.Fatal(err)
	}
	foreign, _ := connected(t, Config{})
	strange := bufferOf(t, foreign.rt, make([]byte, 8))
	for name, c := range map[string]struct {
		op   Op
		want error
	}{
		"a WRITE of a released buffer":                {WriteOp(stale, good.remote), ErrReleased},
		"a WRITE of memory of another runtime":        {WriteOp(strange.Slice(), good.remote), verbs.ErrInvalid},
		"a WRITE longer than the remote memory":       {WriteOp(must.Get(own.Slice(0, 16))(t), good.remote), ErrRemoteRange},
		"a READ into memory without LOCAL_WRITE":      {ReadOp(must.Get(other.Slice(0, 8))(t), good.remote), ErrPermission},
		"the zero Op":                                 {Op{}, reactor.ErrRequest},
		"an atomic on memory without REMOTE_ATOMIC":   {FetchAndAddOp(good.remote, 1), ErrPermission},
		"a transfer whose opcode is no WRITE or READ": {Op{kind: startTransfer, opcode: verbs.WRSend, one: good.one, remote: good.remote}, reactor.ErrRequest},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			ops, fs := make([]Op, n), make([]Future, n)
			for i := range ops {
				ops[i] = good
			}
			ops[at] = c.op
			got, err := a.Batch().StartAll(ctx, ops, fs)
			if got != at || !errors.Is(err, c.want) {
				t.Errorf("StartAll returned %d, %v; want %d, %v", got, err, at, c.want)
			}
			for i, f := range fs {
				if f.Valid() != (i < at) {
					t.Errorf("operation %d has a future: %v, want %v", i, f.Valid(), i < at)
				} else if i < at {
					if _, err := f.Await(ctx); err != nil {
						t.Errorf("operation %d: %v", i, err)
					}
				}
			}
			for _, r := range []*Region{own, other} {
				if n := r.lease.word.Load() & leaseCountMask; n != 0 {
					t.Errorf("%d operations have a lease on the memory, want 0", n)
				}
			}
		})
	}
	mustClose(t, other)
	if n, err := a.Batch().StartAll(t.Context(), make([]Op, 2), make([]Future, 1)); n != 0 || !errors.Is(err, reactor.ErrRequest) {
		t.Errorf("StartAll of 2 operations with room for 1 future returned %d, %v; want 0, %v", n, err, reactor.ErrRequest)
	}
}

// Rule: if the context is canceled while StartAll waits for a slot, StartAll returns the number of
// operations that it has started, and these operations continue. If the connection ends while StartAll
// waits for a slot, StartAll returns the connection's cause, and all started operations end.
func TestDoAllGivesUp(t *testing.T) {
	const n = 200
	a, b := connected(t, Config{Conn: Options{SendDepth: 8, Raw: true}})
	own := must.Get(a.rt.NewRegion(8, verbs.AccessLocalWrite))(t)
	far := must.Get(b.rt.NewRegion(8, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
	local := must.Get(own.Slice(0, 8))(t)
	// The peer has posted no receive. So neither this SEND nor any later operation completes.
	stuck := must.Get(a.Send(t.Context(), local))(t)
	ops, fs := make([]Op, n), make([]Future, n)
	for i := range ops {
		ops[i] = WriteOp(local, must.Get(far.Remote(0, 8))(t))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := make(chan int, 1)
	go func() {
		n, err := a.Batch().StartAll(ctx, ops, fs)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("StartAll whose context was canceled returned %v, want context.Canceled", err)
		}
		started <- n
	}()
	for len(a.rt.Stuck(0)) == 0 || a.rt.Stuck(0)[0].Waiting == 0 {
		stdruntime.Gosched()
	}
	cancel()
	if got := <-started; got != a.opts.SendDepth-1 {
		t.Errorf("StartAll started %d operations, want %d, because SendDepth is %d and the SEND holds one slot", got, a.opts.SendDepth-1, a.opts.SendDepth)
	}
	over := make(chan error, 1)
	go func() {
		_, err := a.Batch().StartAll(testContext(t), ops, make([]Future, n))
		over <- err
	}()
	a.Abort()
	if err := <-over; !errors.Is(err, ErrConnClosed) {
		t.Errorf("StartAll on a connection that was aborted returned %v, want %v", err, ErrConnClosed)
	}
	for i, f := range append(fs[:a.opts.SendDepth-1:a.opts.SendDepth-1], stuck) {
		if _, err := f.Await(testContext(t)); err == nil && f == stuck {
			t.Errorf("the SEND (future %d) ended without an error, although the peer posted no receive; want an error", i)
		}
	}
	if err := a.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	mustClose(t, own, far)
}
