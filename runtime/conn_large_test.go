package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// onLargeBeds runs test on all beds, with connections that share receives and with connections that have
// their own.
func onLargeBeds(t *testing.T, cfg Config, test func(t *testing.T, a, b *Conn)) {
	t.Helper()
	largeOn(t, onBeds, cfg, test)
}

// largeOn is onLargeBeds on the beds that on chooses.
func largeOn(t *testing.T, on func(*testing.T, func(*testing.T, bed)), cfg Config, test func(t *testing.T, a, b *Conn)) {
	t.Helper()
	on(t, func(t *testing.T, d bed) {
		for name, credits := range map[string]int{"shared receives": 0, "own receives": 4} {
			t.Run(name, func(t *testing.T) {
				cfg := cfg
				cfg.Conn.RecvCredits = credits
				a, b := d.connected(t, cfg)
				needsLarge(t, a)
				test(t, a, b)
			})
		}
	})
}

// needsLarge skips the test on a device without the windows that large messages need.
func needsLarge(t testing.TB, c *Conn) {
	t.Helper()
	attr := must.Get(c.rt.dev.QueryDevice())(t)
	if windowed(&attr) != (c.MaxMessage() > c.eager) {
		t.Fatalf("MaxMessage is %d and the peer's receives have %d bytes, with %d windows of the device", c.MaxMessage(), c.eager, attr.MaxMW)
	}
	if c.MaxMessage() == c.eager {
		t.Skipf("the device has no memory windows of type 2 (%d windows, %v)", attr.MaxMW, attr.Caps)
	}
}

// randomBytes returns n bytes, which depend on n only.
func randomBytes(n int) []byte {
	b, r := make([]byte, n), rand.New(rand.NewPCG(uint64(n), 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// wantMessage receives a message and checks its data.
func wantMessage(t *testing.T, c *Conn, want []byte) Message {
	t.Helper()
	m := must.Get(c.RecvWait(testContext(t)))(t)
	if !bytes.Equal(m.Data, want) {
		t.Fatalf("received a message of %d bytes that begins with %x; want %d bytes that begin with %x", len(m.Data), m.Data[:min(8, len(m.Data))], len(want), want[:min(8, len(want))])
	}
	return m
}

// Rule: a message of any size up to MaxMessage arrives whole, from any kind of memory, with its immediate
// data. One of more bytes is refused.
func TestLargeMessagesArriveWhole(t *testing.T) {
	onLargeBeds(t, Config{Conn: Options{MessageSize: 4096, MaxMessage: 3 << 20}}, largeMessagesArriveWhole)
}

func largeMessagesArriveWhole(t *testing.T, a, b *Conn) {
	ctx := testContext(t)
	if got, want := a.MaxMessage(), 4<<20; got != want {
		t.Fatalf("MaxMessage is %d, want %d: Options.MaxMessage rounded up to a power of two", got, want)
	}
	for _, n := range []int{4097, 100_000, MaxPooled, MaxPooled + 1, 4 << 20} {
		data := randomBytes(n)
		buf := bufferOf(t, a.rt, data)
		half := must.Get(buf.Slice().Sub(0, n/2))(t)
		rest := must.Get(buf.Slice().Sub(n/2, n-n/2))(t)
		region := must.Get(a.rt.NewRegion(n, 0))(t)
		copy(region.Bytes(), data)
		whole := must.Get(region.Slice(0, n))(t)
		for what, op := range map[string]Op{
			"a buffer": SendOp(buf.Slice()), "two slices": SendVOp([]Slice{half, rest}), "bytes": SendBytesOp(data), "a region": SendOp(whole),
		} {
			op = op.Imm(uint32(n))
			f := must.Get(a.Start(ctx, &op))(t)
			m := wantMessage(t, b, data)
			if !m.HasImm || m.Imm != uint32(n) {
				t.Errorf("the message from %s has immediate data %v, %d; want %d", what, m.HasImm, m.Imm, n)
			}
			if r := must.Get(f.Await(ctx))(t); r.Bytes != uint32(n) || r.Opcode != verbs.WCSend {
				t.Errorf("the result of %d bytes from %s is %+v, want %v of %d bytes", n, what, r, verbs.WCSend, n)
			}
			release(t, m)
			if err := m.Release(); !errors.Is(err, ErrMessage) {
				t.Errorf("a second Release returned %v, want %v", err, ErrMessage)
			}
		}
		must.Do(t, region.Close()) // no window is bound to it
	}
	_, err := a.SendBytes(ctx, make([]byte, 4<<20+1))
	mistake(t, "a message of one byte more", err, ErrTooLarge, "4194305", "4194304")
	buf := bufferOf(t, a.rt, make([]byte, 5000))
	op := SendVOp([]Slice{buf.Slice(), buf.Slice()}).Fence()
	_, err = a.Start(ctx, &op)
	mistake(t, "a fenced large message of two pieces", err, ErrInvalid, "10000")
	op = SendBytesOp(make([]byte, 5000))
	if err := a.TryStartTo(&op, nothing{}, 0); !errors.Is(err, ErrPieces) {
		t.Errorf("TryStartTo of a large message returned %v, want %v", err, ErrPieces)
	}
	if s := b.rt.MemoryStats(); s.InUse > 1<<20 {
		t.Errorf("%d bytes are in use after all messages were released, want less than 1 MiB", s.InUse)
	}
}

// Rule: messages arrive in the order in which they were sent, small ones behind large ones.
func TestLargeMessagesKeepTheirOrder(t *testing.T) {
	onLargeBeds(t, Config{Conn: Options{MessageSize: 256}}, func(t *testing.T, a, b *Conn) {
		ctx := testContext(t)
		const n = 300
		r := rand.New(rand.NewPCG(1, 2))
		sizes := make([]int, n)
		for i := range sizes {
			sizes[i] = 8
			if r.IntN(3) == 0 {
				sizes[i] = 257 + r.IntN(100_000)
			}
		}
		sent := make(chan error, 1)
		go func() {
			for i, size := range sizes {
				p := bytes.Repeat([]byte{byte(i)}, size)
				f, err := a.SendBytes(ctx, p)
				if err != nil {
					sent <- fmt.Errorf("message %d: %w", i, err)
					return
				}
				f.Discard()
			}
			sent <- nil
		}()
		ms := make([]Message, 16)
		for i := 0; i < n; {
			k, err := b.RecvMany(ctx, ms)
			if err != nil {
				t.Fatalf("message %d: %v; the sender's connection: %v", i, err, a.Err())
			}
			for _, m := range ms[:k] {
				if len(m.Data) != sizes[i] || m.Data[0] != byte(i) || m.Data[len(m.Data)-1] != byte(i) {
					t.Fatalf("message %d has %d bytes of %d, want %d bytes of %d", i, len(m.Data), m.Data[0], sizes[i], byte(i))
				}
				i++
			}
			must.Do(t, ReleaseMany(ms[:k]))
		}
		must.Do(t, <-sent)
	})
}

// Rule: the memory of a large message belongs to the device until the peer has read it, which it does when its
// program receives. Then the future is settled.
func TestALargeMessageIsFetchedWhenTheProgramReceives(t *testing.T) {
	onLargeBeds(t, Config{}, func(t *testing.T, a, b *Conn) {
		ctx := testContext(t)
		region := must.Get(a.rt.NewRegion(100_000, verbs.AccessLocalWrite))(t)
		f := must.Get(a.Send(ctx, must.Get(region.Slice(0, 100_000))(t)))(t)
		small := must.Get(a.SendBytes(ctx, []byte("small")))(t)
		must.Get(small.Await(ctx))(t) // it is behind the large one, so the peer has both
		held(t, b, b.sh.r.Drain)
		if f.Settled() {
			t.Error("the future of a large message was settled before the peer received it")
		}
		if err := region.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("closing the region of a message that the peer has not read: %v, want %v", err, ErrBusy)
		}
		release(t, wantMessage(t, b, make([]byte, 100_000)), wantMessage(t, b, []byte("small")))
		must.Get(f.Await(ctx))(t)
		must.Do(t, region.Close())
	})
}

// Rule: what a peer can make this end allocate is bounded by RecvBudget, and nothing before the program
// receives. Messages that the program holds count. A message that waits is read when others were released.
func TestTheBudgetBoundsLargeMessages(t *testing.T) {
	const size = 1 << 20
	onLargeBeds(t, Config{Conn: Options{MaxMessage: size, RecvBudget: 2 * size}}, func(t *testing.T, a, b *Conn) {
		ctx := testContext(t)
		before := b.rt.MemoryStats().InUse
		allocated := func() int64 { return b.rt.MemoryStats().InUse - before }
		var fs []Future
		for range maxLarge {
			fs = append(fs, must.Get(a.SendBytes(ctx, make([]byte, size)))(t))
		}
		held(t, b, b.sh.r.Drain)
		if n := allocated(); n >= size {
			t.Errorf("%d bytes were allocated for a program that does not receive", n)
		}
		m1, m2 := wantMessage(t, b, make([]byte, size)), wantMessage(t, b, make([]byte, size))
		third := b.Recv()
		held(t, b, b.match)
		if n := allocated(); third.Settled() || n >= 3*size {
			t.Errorf("with two messages held, a third was read beyond the budget: %v, %d bytes", third.Settled(), n)
		}
		release(t, m1)
		m3 := must.Get(third.Await(ctx))(t)
		release(t, m2, m3)
		release(t, wantMessage(t, b, make([]byte, size)))
		for _, f := range fs {
			must.Get(f.Await(ctx))(t)
		}
	})
}

// Rule: two programs that each wait for the end of their large message, and then receive, do not wait for each
// other, not even with the first messages of the connection.
func TestBothEndsMayWaitForTheirLargeMessagesFirst(t *testing.T) {
	onLargeBeds(t, Config{}, func(t *testing.T, a, b *Conn) {
		ctx := testContext(t)
		data := randomBytes(50_000)
		ended := make(chan error, 2)
		for _, c := range []*Conn{a, b} {
			go func() {
				op := SendBytesOp(data)
				_, err := c.Do(ctx, &op)
				ended <- err
			}()
		}
		must.Do(t, <-ended)
		must.Do(t, <-ended)
		release(t, wantMessage(t, a, data), wantMessage(t, b, data))
	})
}

// Rule: each connection can send large messages, also if its pool has no other receive left.
func TestAFullPoolHasReceivesForAnswers(t *testing.T) {
	ra, rb := mainBed.open(t, Config{}, 0), mainBed.open(t, Config{}, 1)
	ra.srqs, rb.srqs = min(ra.srqs, minDepth), min(rb.srqs, minDepth)
	as, bs := connections(t, ra, must.Get(rb.Listen(":0"))(t), 20)
	needsLarge(t, as[0])
	needsPools(t, as[0])
	ctx := testContext(t)
	p := as[0].pool
	for { // as large windows do
		if made := must.Get(p.provision(nil, 1))(t); made == 0 && !p.reserve(1) {
			break
		}
	}
	data := randomBytes(20_000)
	for i, a := range as {
		if a.pool != p {
			continue
		}
		f := must.Get(a.SendBytes(ctx, data))(t)
		release(t, wantMessage(t, bs[i], data))
		must.Get(f.Await(ctx))(t)
	}
}

// Rule: two ends that send as many large messages as they may, and receive only afterwards, do not wait for
// each other.
func TestBothEndsMaySendLargeMessagesFirst(t *testing.T) {
	onLargeBeds(t, Config{}, func(t *testing.T, a, b *Conn) {
		ctx := testContext(t)
		fs := map[*Conn][]Future{}
		data := randomBytes(50_000)
		for _, c := range []*Conn{a, b} {
			for range 3 {
				fs[c] = append(fs[c], must.Get(c.SendBytes(ctx, data))(t))
			}
		}
		for _, c := range []*Conn{a, b} {
			for range 3 {
				release(t, wantMessage(t, c, data))
			}
		}
		for _, c := range []*Conn{a, b} {
			for _, f := range fs[c] {
				must.Get(f.Await(ctx))(t)
			}
		}
	})
}

// Rule: questions and answers may be large, and sinks get the results of large messages with their tags.
func TestLargeCallsAndSinks(t *testing.T) {
	onLargeBeds(t, Config{}, func(t *testing.T, a, b *Conn) {
		ctx := testContext(t)
		ended := make(chan error, 1)
		go func() { ended <- answering(ctx, b) }()
		for _, n := range []int{20_000, 8, 200_000} {
			data := randomBytes(n)
			op := SendBytesOp(data)
			m := must.Get(a.Call(ctx, &op))(t)
			if !bytes.Equal(m.Data, data) {
				t.Errorf("the answer to %d bytes has %d, or other bytes", n, len(m.Data))
			}
			release(t, m)
		}
		got := make(chan Result, 1)
		op := SendBytesOp(randomBytes(30_000))
		must.Do(t, a.StartTo(ctx, &op, chanSink(got), 77))
		release(t, wantMessage(t, a, randomBytes(30_000)))
		if r := <-got; r.Tag != 77 || r.Bytes != 30_000 {
			t.Errorf("the sink got %+v, want tag 77 and 30,000 bytes", r)
		}
		must.Do(t, a.Close(ctx))
		if err := <-ended; !errors.Is(err, ErrPeerClosed) {
			t.Errorf("the answering end stopped with %v, want %v", err, ErrPeerClosed)
		}
	})
}

// chanSink sends results to a channel.
type chanSink chan Result

func (s chanSink) Complete(_ SinkContext, r Result, err error) {
	if err != nil {
		r.Tag = 0
	}
	s <- r
}

// Rule: if no memory is left for a large message, it waits in the peer's memory, and arrives when memory is free.
func TestLargeMessagesWaitForMemory(t *testing.T) {
	server := mustOpen(t, Config{Device: second.name, Memory: MemoryConfig{MaxBytes: 8 << 20}})
	client := mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	ctx := testContext(t)
	a := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
	b := must.Get(seat.Await(ctx))(t)
	needsLarge(t, a)
	taken := must.Get(server.Alloc(3 << 20))(t)
	data := randomBytes(3<<20 + 1)
	f := must.Get(a.SendBytes(ctx, data))(t)
	got := b.Recv()
	eventually(t, "the allocation to fail", func() (failed bool) {
		held(t, b, func() { failed = b.fetches != nil && b.fetches.timer != nil })
		return failed
	})
	must.Do(t, taken.Release())
	m := must.Get(got.Await(ctx))(t)
	if !bytes.Equal(m.Data, data) {
		t.Errorf("the message has %d bytes, or other bytes than were sent", len(m.Data))
	}
	release(t, m)
	must.Get(f.Await(ctx))(t)
}
