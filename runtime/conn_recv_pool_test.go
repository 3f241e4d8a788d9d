package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// needsPools skips the test on a device without shared receive queues.
func needsPools(t testing.TB, c *Conn) {
	t.Helper()
	if c.pool == nil {
		if c.rt.srqs >= minDepth {
			t.Fatalf("a default connection has no pool, although the device has shared receive queues of %d receives", c.rt.srqs)
		}
		t.Skipf("the device has shared receive queues of %d receives, fewer than %d", c.rt.srqs, minDepth)
	}
}

// held calls fn with the turn of the connection's reactor held.
func held(t testing.TB, c *Conn, fn func()) {
	t.Helper()
	if err := c.sh.r.Do(testContext(t), fn); err != nil {
		t.Fatal(err)
	}
}

// checkPool checks the counts of a pool whose connections are conns: each receive is in a share or free. No
// message is under way, and the program holds none of ended connections.
func checkPool(t *testing.T, p *recvPool, conns ...*Conn) {
	t.Helper()
	held(t, &Conn{sh: p.sh}, func() {
		shares := 0
		for _, c := range conns {
			shares += int(c.window.Load()) + minShare - 1
		}
		if free, made := int(p.free.Load()), int(p.made.Load()); free+shares != made {
			t.Errorf("%d receives are free and %d in %d shares, want %d in all", free, shares, len(conns), made)
		}
		if n := int(p.members.Load()); n != len(conns) {
			t.Errorf("the pool has %d members, want %d", n, len(conns))
		}
	})
}

// checkWindow checks that no credit from the end b to the peer a is lost. No message is under way, and
// the program holds n.
func checkWindow(t *testing.T, a, b *Conn, n int) {
	t.Helper()
	eventually(t, "the credits to add up to the window", func() (ok bool) {
		held(t, b, func() { ok = a.credits.available()+b.ledger.unreturned()+n == int(b.window.Load()) })
		return ok
	})
}

// Rule: a new connection holds receives for one message, one credit update and one Recall. Its window grows when the
// peer uses its last credit, up to poolWindow while the program takes the messages, and it shrinks to one
// message when the connection is idle. No credit and no receive is lost by that.
func TestWindowsGrowWithTrafficAndShrinkWhenIdle(t *testing.T) {
	a, b := connected(t, Config{})
	needsPools(t, b)
	checkPool(t, b.pool, b)
	if w := b.window.Load(); w != 1 {
		t.Errorf("the window of a new connection is %d, want 1", w)
	}
	for round := range 3 {
		eventually(t, fmt.Sprintf("the window to grow to %d in round %d", poolWindow, round), func() bool {
			flood(t, a, b, 2000)
			return b.window.Load() == poolWindow
		})
		checkWindow(t, a, b, 0)
		checkPool(t, b.pool, b)
		eventually(t, "the window to shrink", func() bool { held(t, b, b.pool.tick); return b.window.Load() == 1 })
		checkWindow(t, a, b, 0)
		checkPool(t, b.pool, b)
	}
	release(t, sendAndTake(t, a, b, 10)...)
	release(t, sendAndTake(t, b, a, 10)...)
}

// flood sends n messages from a to b, as fast as it can, and takes them.
func flood(t testing.TB, a, b *Conn, n int) {
	t.Helper()
	ctx := testContext(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for range n {
			f, err := a.SendBytes(ctx, []byte("flood"))
			if err != nil {
				t.Error(err)
				return
			}
			f.Discard()
		}
	})
	for range n {
		m, err := b.RecvWait(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	}
}

// Rule: a peer whose messages the program does not take, and several peers that flood, leave their part of
// the pool to the others: each of ten modest connections exchanges messages meanwhile, with a window that
// grows as it would alone.
func TestGreedyPeersLeaveTheOthersTheirPart(t *testing.T) {
	const greedy, modest, depth = 6, 10, 256
	ra, rb := mainBed.open(t, Config{}, 0), mainBed.open(t, Config{}, 1)
	rb.srqs = min(rb.srqs, depth) // a small pool, so that six windows would fill it
	ctx := testContext(t)
	ln := must.Get(rb.Listen(":0"))(t)
	as, bs := connections(t, ra, ln, greedy+modest)
	needsPools(t, bs[0])
	p := bs[0].pool
	var wg sync.WaitGroup
	stop, cancel := context.WithCancel(ctx)
	defer wg.Wait()
	defer cancel()
	for k := range greedy {
		wg.Go(func() {
			for {
				f, err := as[k].SendBytes(stop, []byte("greedy"))
				if err != nil {
					return
				}
				f.Discard()
			}
		})
		if k > 0 { // the messages of the first are never taken
			wg.Go(func() {
				for {
					m, err := bs[k].RecvWait(stop)
					if err != nil {
						return
					}
					_ = m.Release() // fails only after the end of the test
				}
			})
		}
	}
	eventually(t, "the greedy peers to fill half of the pool", func() bool { return int(p.made.Load()-p.free.Load()) >= p.usable()/2 })
	for k := greedy; k < greedy+modest; k++ {
		flood(t, as[k], bs[k], fewer(200))
		eventually(t, "the window of a modest connection to be 4 or more", func() bool {
			flood(t, as[k], bs[k], 20)
			return bs[k].window.Load() >= 4
		})
	}
	if w := int(bs[0].window.Load()); w > unreadWindow {
		t.Errorf("the window of a connection whose messages are not taken is %d, want at most %d", w, unreadWindow)
	}
	held(t, bs[0], func() {
		if made, n := p.made.Load(), len(p.wanting); made > depth || n > len(bs) {
			t.Errorf("the pool has %d receives, and %d connections wait for more; want at most %d and %d", made, n, depth, len(bs))
		}
	})
}

// connections makes n connections from the runtime to the listener.
func connections(t testing.TB, rt *Runtime, ln *Listener, n int) (as, bs []*Conn) {
	t.Helper()
	ctx := testContext(t)
	for range n {
		seat := must.Get(ln.AcceptAsync())(t)
		as = append(as, must.Get(rt.Dial(ctx, ln.Addr().String()))(t))
		bs = append(bs, must.Get(seat.Await(ctx))(t))
	}
	return as, bs
}

// Rule: a pool that is full is followed by another, so the number of connections has no limit.
func TestManyConnectionsHaveSeveralPools(t *testing.T) {
	const n, depth = 40, 32
	ra, rb := mainBed.open(t, Config{}, 0), mainBed.open(t, Config{}, 1)
	ra.srqs, rb.srqs = min(ra.srqs, depth), min(rb.srqs, depth)
	as, bs := connections(t, ra, must.Get(rb.Listen(":0"))(t), n)
	needsPools(t, bs[0])
	for k := range bs {
		flood(t, as[k], bs[k], 3)
	}
	if pools := len(bs[0].sh.pools[frameSize+bs[0].opts.MessageSize]); pools < n*minShare/depth {
		t.Errorf("%d connections have %d pools of %d receives, want %d or more", n, pools, depth, n*minShare/depth)
	}
}

// Rule: whatever becomes of its connections, a pool has each receive back at the end: of connections
// that are closed, aborted or canceled while messages are under way, of messages that the program holds
// longer than the connection lives, and of those in discarded futures.
func TestPoolsGetEachReceiveBack(t *testing.T) {
	seed := fromEnv(t, "VERBENA_POOL_SEED", uint64(time.Now().UnixNano()))
	t.Logf("VERBENA_POOL_SEED=%d", seed)
	ra, rb := mainBed.open(t, Config{}, 0), mainBed.open(t, Config{}, 1)
	ctx := testContext(t)
	ln := must.Get(rb.Listen(":0"))(t)
	as, bs := connections(t, ra, ln, 1) // one stays, so that the pool does
	needsPools(t, bs[0])
	rounds := fewer(40)
	if testing.Short() {
		rounds = 8
	}
	for round := range rounds {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		var wg sync.WaitGroup
		for k := range 3 {
			a, b := connections(t, ra, ln, 1)
			r := rand.New(rand.NewPCG(rng.Uint64(), uint64(k)))
			wg.Go(func() { misuse(ctx, t, r, a[0], b[0]) })
		}
		wg.Wait()
	}
	flood(t, as[0], bs[0], 500)
	checkWindow(t, as[0], bs[0], 0)
	for _, c := range []*Conn{as[0], bs[0]} {
		eventually(t, "the connections to leave the pool", func() bool { return c.pool.members.Load() == 1 })
		checkPool(t, c.pool, c)
	}
}

// misuse sends messages both ways, takes some, and ends the connection in the middle of it.
func misuse(ctx context.Context, t *testing.T, r *rand.Rand, a, b *Conn) {
	var held []Message
	var waits []futures.Future[Message]
	for range r.IntN(200) {
		from, to := a, b
		if r.IntN(3) == 0 {
			from, to = b, a
		}
		switch r.IntN(6) {
		case 0:
			waits = append(waits, to.Recv())
		case 1:
			if n := len(waits); n > 0 {
				waits[n-1].Discard()
				waits = waits[:n-1]
			}
		case 2:
			var ms [4]Message
			held = append(held, ms[:to.takeArrived(ms[:])]...)
		default:
			short, cancel := context.WithTimeout(ctx, 100*time.Microsecond) // a wait for a credit may never end here
			if f, err := from.SendBytes(short, []byte("some message")); err == nil {
				f.Discard()
			}
			cancel()
		}
		if n := len(held); n > 0 && r.IntN(2) == 0 {
			if err := held[n-1].Release(); err != nil {
				t.Error(err)
			}
			held = held[:n-1]
		}
	}
	switch r.IntN(4) {
	case 0:
		a.Abort()
	case 1:
		if err := b.Cancel(ctx); err != nil {
			t.Errorf("Cancel: %v", err)
		}
	case 2:
		ms := make([]Message, poolWindow)
		held = append(held, ms[:a.takeArrived(ms)]...)
	}
	for _, w := range waits {
		w.Discard()
	}
	for _, c := range []*Conn{a, b} {
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := ReleaseMany(held); err != nil {
		t.Errorf("releasing messages of a closed connection: %v", err)
	}
}

// impatient is a provider whose dialing ends tell the peer not to send again what found no receive. So a
// message of the peer that finds none ends the connection.
type impatient struct{ verbs.Provider }

type impatientChannel struct {
	verbs.CMChannel
	mu  sync.Mutex
	ids map[verbs.CMID]impatientID // the key is the wrapped identifier
}

type impatientID struct{ verbs.CMID }

func (p impatient) CreateCMChannel() (verbs.CMChannel, error) {
	ch, err := p.Provider.CreateCMChannel()
	return &impatientChannel{CMChannel: ch, ids: map[verbs.CMID]impatientID{}}, err
}

func (ch *impatientChannel) CreateID(ps verbs.PortSpace, userData uint64) (verbs.CMID, error) {
	id, err := ch.CMChannel.CreateID(ps, userData)
	if err != nil {
		return nil, err
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ids[id] = impatientID{id}
	return ch.ids[id], nil
}

func (ch *impatientChannel) GetEvent() (verbs.CMEvent, bool, error) {
	ev, ok, err := ch.CMChannel.GetEvent()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if id, ours := ch.ids[ev.ID]; ours {
		ev.ID = id
	}
	return ev, ok, err
}

func (ch *impatientChannel) Ack(ev verbs.CMEvent) {
	if id, ours := ev.ID.(impatientID); ours {
		ev.ID = id.CMID
	}
	ch.CMChannel.Ack(ev)
}

func (id impatientID) Connect(p *verbs.ConnParam) error {
	q := *p
	q.RNRRetryCount = 0
	return id.CMID.Connect(&q)
}

// Rule: a message always finds a posted receive: at first, while windows grow, when credits are recalled,
// and beside other connections that hold messages. The dialing end receives, and its peers do not try again.
func TestMessagesAlwaysFindAReceive(t *testing.T) {
	p, _ := smallPorts(t, 1<<20)
	ra, rb := mainBed.open(t, Config{Provider: impatient{p}}, 0), mainBed.open(t, Config{Provider: p}, 1)
	ctx := testContext(t)
	ln := must.Get(rb.Listen(":0"))(t)
	as, bs := connections(t, ra, ln, 4)
	needsPools(t, as[0])
	var wg sync.WaitGroup
	for k := range as {
		wg.Go(func() {
			for round := range fewer(30) {
				flood(t, bs[k], as[k], 1+37*round)
				release(t, sendAndTake(t, as[k], bs[k], 2)...) // and updates the other way
				if k > 0 {
					continue
				}
				for range 3 {
					if err := as[0].sh.r.Do(ctx, as[0].pool.tick); err != nil {
						t.Error(err)
					}
				}
				a, b := connections(t, ra, ln, 1) // its receives may be those that others have given up
				flood(t, b[0], a[0], 1)
				if err := errors.Join(a[0].Close(ctx), b[0].Close(ctx)); err != nil {
					t.Errorf("a new connection: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for k := range as {
		if err := errors.Join(as[k].Err(), bs[k].Err()); err != nil {
			t.Errorf("connection %d: %v, want no error: a message found no receive", k, err)
		}
	}
}

// Rule: messages that have arrived before the peer's end of the connection are received, however soon
// after them the peer closes.
func TestMessagesBeforeTheEndAreReceived(t *testing.T) {
	const messages = 40
	ra, rb := mainBed.open(t, Config{}, 0), mainBed.open(t, Config{}, 1)
	ctx := testContext(t)
	ln := must.Get(rb.Listen(":0"))(t)
	for range fewer(60) {
		as, bs := connections(t, ra, ln, 1)
		a, b := as[0], bs[0]
		for range messages {
			f := must.Get(a.SendBytes(ctx, []byte("last words")))(t)
			f.Discard()
		}
		if err := a.Close(ctx); err != nil {
			t.Fatal(err)
		}
		for n := range messages + 1 {
			m, err := b.RecvWait(ctx)
			if n < messages && err != nil || n == messages && !errors.Is(err, ErrPeerClosed) {
				t.Fatalf("message %d of %d: %v", n, messages, err)
			}
			if err == nil {
				release(t, m)
			}
		}
		if err := b.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
