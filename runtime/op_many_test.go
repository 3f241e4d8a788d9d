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
		return nil, fmt.Errorf("%d of %d started: %w", n, len(ops), err)
	}
	for i, f := range fs {
		if rs[i], err = f.Await(ctx); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return rs, nil
}

// doAll executes ops with Conn.DoAll.
func doAll(ctx context.Context, c *Conn, ops []Op) ([]Result, error) {
	rs := make([]Result, len(ops))
	n, err := c.DoAll(ctx, ops, rs)
	if err != nil || n != len(ops) {
		return nil, fmt.Errorf("%d of %d: %w", n, len(ops), err)
	}
	return rs, nil
}

// Rule: StartAll and DoAll have the same effect as one Start for each operation, in order. They
// accept operations of all kinds, and more operations than the send queue has slots. Each operation
// gets its own result.
func TestSeveralAreEachOfThem(t *testing.T) {
	for name, do := range map[string]func(context.Context, *Conn, []Op) ([]Result, error){"StartAll": startAll, "DoAll": doAll} {
		t.Run(name, func(t *testing.T) { severalAreEach(t, do) })
	}
}

// Rule: several operations without memory succeed, also if their completions come together.
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
	a.oneWR = 64 // bytes: longer transfers are split
	ctx := testContext(t)
	far := must.Get(b.rt.NewRegion(8*words, allAccess))(t)
	var own [2]*Region
	for i := range own {
		own[i] = must.Get(a.rt.NewRegion(8*words, verbs.AccessLocalWrite))(t)
	}
	received := make(chan int)
	go func() { // counts the messages until an empty one arrives
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
			case 0: // a FETCH_ADD of 1, which must find the value that the earlier operations left
				had := want[k]
				want[k]++
				ops = append(ops, FetchAndAddOp(at, 1))
				check = append(check, func(r Result) {
					if got := byte(r.Value); got != had {
						t.Errorf("round %d: word %d was %d when it was added to, want %d", round, k, got, had)
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
				// An earlier WRITE may not have read this byte yet, so the byte must never get
				// another value. All WRITEs of word k from the two regions store the value k.
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
				t.Fatalf("round %d: word %d is %d, want %d", round, k, got, w)
			}
		}
	}
	if _, err := a.Do(ctx, new(SendOp(Slice{}))); err != nil { // the empty message, after all others
		t.Fatal(err)
	}
	if n := <-received; n != sends {
		t.Errorf("%d of %d messages arrived", n, sends)
	}
	mustClose(t, own[0], own[1], far) // fails if an operation still has a lease
}

// Rule: StartAll stops at the first operation that is refused, and returns the index and the error
// of that operation. Earlier operations complete. Later operations do not start, and leave no
// lease.
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
		"memory that was given back":     {WriteOp(stale, good.remote), ErrReleased},
		"memory of another runtime":      {WriteOp(strange.Slice(), good.remote), verbs.ErrInvalid},
		"more than there is":             {WriteOp(must.Get(own.Slice(0, 16))(t), good.remote), ErrRemoteRange},
		"a READ into memory to be read":  {ReadOp(must.Get(other.Slice(0, 8))(t), good.remote), ErrPermission},
		"no operation":                   {Op{}, reactor.ErrRequest},
		"an operation of another kind":   {FetchAndAddOp(good.remote, 1), ErrPermission},
		"a WRITE that is not understood": {Op{kind: startTransfer, opcode: verbs.WRSend, one: good.one, remote: good.remote}, reactor.ErrRequest},
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
				t.Errorf("%d started, then %v; want %d and %v", got, err, at, c.want)
			}
			for i, f := range fs {
				if f.Valid() != (i < at) {
					t.Errorf("operation %d has a future: %v", i, f.Valid())
				} else if i < at {
					if _, err := f.Await(ctx); err != nil {
						t.Errorf("operation %d: %v", i, err)
					}
				}
			}
			for _, r := range []*Region{own, other} {
				if n := r.lease.word.Load() & leaseCountMask; n != 0 {
					t.Errorf("%d operations are in flight on the memory", n)
				}
			}
		})
	}
	mustClose(t, other)
	if n, err := a.Batch().StartAll(t.Context(), make([]Op, 2), make([]Future, 1)); n != 0 || !errors.Is(err, reactor.ErrRequest) {
		t.Errorf("too few futures: %d started, %v", n, err)
	}
}

// Rule: if the context is canceled while StartAll waits for a slot, StartAll returns how many
// operations it has started, and these operations continue. If the connection ends while StartAll
// waits, StartAll returns the connection's cause, and no operation stays in flight.
func TestDoAllGivesUp(t *testing.T) {
	const n = 200
	a, b := connected(t, Config{Conn: Options{SendDepth: 8, Raw: true}})
	own := must.Get(a.rt.NewRegion(8, verbs.AccessLocalWrite))(t)
	far := must.Get(b.rt.NewRegion(8, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
	local := must.Get(own.Slice(0, 8))(t)
	// The peer has posted no receive. So this message does not complete, and no later operation
	// does.
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
			t.Errorf("without room: %v", err)
		}
		started <- n
	}()
	for len(a.rt.Stuck(0)) == 0 || a.rt.Stuck(0)[0].Waiting == 0 {
		stdruntime.Gosched()
	}
	cancel()
	if got := <-started; got != a.opts.SendDepth-1 {
		t.Errorf("%d started beside one, of a depth of %d", got, a.opts.SendDepth)
	}
	over := make(chan error, 1)
	go func() {
		_, err := a.Batch().StartAll(testContext(t), ops, make([]Future, n))
		over <- err
	}()
	a.Abort()
	if err := <-over; !errors.Is(err, ErrConnClosed) {
		t.Errorf("on a connection that ends: %v, want %v", err, ErrConnClosed)
	}
	for i, f := range append(fs[:a.opts.SendDepth-1:a.opts.SendDepth-1], stuck) {
		if _, err := f.Await(testContext(t)); err == nil && f == stuck {
			t.Errorf("operation %d succeeded without a receive", i)
		}
	}
	if err := a.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	mustClose(t, own, far)
}
