package runtime

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// inTurn accepts at a raw listener as a program does that waits for one connection after the other: PrepareAccept, then
// Connect. It does not block.
type inTurn struct {
	r       *nthPaced
	ln      *Listener
	seat    futures.Future[*Conn] // of PrepareAccept
	connect futures.Future[*Conn] // of Connect
	got     []*Conn
	failed  []error
}

// until accepts until cond is true.
func (a *inTurn) until(t *testing.T, cond func() bool) {
	t.Helper()
	for !cond() {
		if !a.seat.Valid() && !a.connect.Valid() {
			a.seat = must.Get(a.ln.addWaiter(&a.ln.prepareWaiters, acceptWaiter{}))(t)
		}
		must.Do(t, a.r.pump(func() bool {
			return cond() || a.seat.Valid() && a.seat.Settled() || a.connect.Valid() && a.connect.Settled()
		}))
		if a.seat.Valid() && a.seat.Settled() {
			c, err, _ := a.seat.Poll()
			must.Do(t, err)
			var promise futures.Promise[*Conn]
			promise, a.connect = c.rt.conns.New(nil)
			c.sh.r.Defer(func() { c.goOn(promise) })
		} else if a.connect.Valid() && a.connect.Settled() {
			if c, err, _ := a.connect.Poll(); err != nil {
				a.failed = append(a.failed, err)
			} else {
				a.got = append(a.got, c)
			}
		}
	}
}

// Rule: a program that accepts in turn is delayed by silent peers by 2 s in total and 10 ms each, and a tenth of the
// time that passes: the waits for their answers end while other requests wait.
func TestSilentPeersDelayAProgramThatAcceptsInTurn(t *testing.T) {
	notOnDevice(t, "the test runs in virtual time")
	const silent = 10
	r := newVirtualPair(t)
	raw := Options{Raw: true}
	ln := must.Get(r.server.ListenOptions(":0", raw))(t)
	hello := proto.EncodeHello(proto.Hello{Raw: true})
	for i := range silent {
		newAsker(t, r.fab, fmt.Sprintf("10.0.1.%d", i), ln.Addr(), hello).ask(1)
	}
	if err := r.pump(func() bool { return ln.backlog.len() == silent }); err != nil {
		t.Fatal(err)
	}
	at, a := r.fab.Now(), inTurn{r: r, ln: ln}
	f := must.Get(r.client.DialAsync(testContext(t), ln.Addr().String(), raw))(t)
	a.until(t, f.Settled)
	c, err, _ := f.Poll()
	took := r.fab.Now() - at
	t.Logf("Dial took %v, %d waits have failed: %v", took, len(a.failed), errors.Join(a.failed...))
	if err != nil {
		t.Fatalf("Dial beside %d silent peers failed after %v: %v", silent, took, err)
	}
	if most := 2*time.Second + silent*10*time.Millisecond + took/10; took > most {
		t.Errorf("Dial beside %d silent peers took %v, want at most %v", silent, took, most)
	}
	a.until(t, func() bool { return len(a.got) == 1 })
	r.hangUp(c, a.got[0])
}

// Rule: a slow peer connects while no other request waits, however long silent peers have delayed the program before.
// It is given up for a request that waits, and may come again.
func TestASlowPeerConnectsWhileNobodyWaits(t *testing.T) {
	notOnDevice(t, "the test runs in virtual time")
	r := newVirtualPair(t)
	raw := Options{Raw: true}
	ln := must.Get(r.server.ListenOptions(":0", raw))(t)
	silent := newAsker(t, r.fab, "10.0.1.1", ln.Addr(), proto.EncodeHello(proto.Hello{Raw: true}))
	r.fab.SetAll(fabric.Link{Delay: 5 * slowAfter})
	ln.patience = turnPatience{spent: time.Hour, at: ln.rt.cfg.now()}
	a := inTurn{r: r, ln: ln}
	dial := func() futures.Future[*Conn] {
		return must.Get(r.client.DialAsync(testContext(t), ln.Addr().String(), raw))(t)
	}
	connects := func(when string) {
		t.Helper()
		f, got := dial(), len(a.got)
		a.until(t, func() bool { return f.Settled() && len(a.got) > got })
		c, err, _ := f.Poll()
		if err != nil {
			t.Fatalf("dialing %s: %v", when, err)
		}
		r.hangUp(c, a.got[got])
	}
	connects("while nobody waits")
	if len(a.failed) > 0 {
		t.Errorf("while nobody waited, Connect failed: %v", errors.Join(a.failed...))
	}

	// A request that waits for a moment, until the program calls PrepareAccept beside Connect, ends nothing.
	f := dial()
	a.until(t, func() bool { return len(ln.connecting) == 1 })
	silent.ask(1)
	must.Do(t, r.pump(ln.backlog.waits))
	beside := must.Get(ln.addWaiter(&ln.prepareWaiters, acceptWaiter{}))(t)
	a.until(t, func() bool { return f.Settled() && len(a.got) == 2 })
	r.hangUp(must.Get(reached(r, f, 0))(t), a.got[1], must.Get(reached(r, beside, 0))(t))

	f = dial()
	a.until(t, func() bool { return len(ln.connecting) == 1 })
	silent.ask(1)
	a.until(t, func() bool { return f.Settled() && len(a.failed) == 2 })
	if err := a.failed[0]; !errors.Is(err, ErrConnectTimeout) || RetryOf(err) != RetryLater {
		t.Errorf("beside a request that waited, Connect failed with %v, want %v, to be retried later", err, ErrConnectTimeout)
	}
	if c, _, _ := f.Poll(); c != nil { // the answer of the peer was on its way
		r.hangUp(c)
	}
	connects("again")
}

// Rule: silent peers do not keep such a program from honest ones whose round trip is longer than what the next silent peer
// may cost: who is given up after slowAfter is not charged.
func TestSlowPeersConnectAfterSilentOnes(t *testing.T) {
	notOnDevice(t, "the test runs in virtual time")
	const silent, honest, within, pause = 4, 10, time.Minute, 100 * time.Millisecond
	r := newVirtualPair(t)
	ln := must.Get(r.server.ListenOptions(":0", Options{Raw: true}))(t)
	r.fab.SetAll(fabric.Link{Delay: 100 * time.Millisecond}) // a round trip of 200 ms
	hello := proto.EncodeHello(proto.Hello{Raw: true})
	for i := range silent {
		newAsker(t, r.fab, fmt.Sprintf("10.0.1.%d", i), ln.Addr(), hello).ask(1)
	}
	must.Do(t, r.pump(func() bool { return ln.backlog.len() == silent }))
	a := &inTurn{r: r, ln: ln}
	dial := func() futures.Future[*Conn] {
		return must.Get(r.client.DialAsync(testContext(t), ln.Addr().String(), Options{Raw: true}))(t)
	}
	var dialing [honest]futures.Future[*Conn]
	var conns [honest]*Conn
	var again [honest]time.Duration // when a peer that was given up dials again
	for i := range dialing {
		dialing[i] = dial()
	}
	live := func() (n int) {
		for _, c := range a.got {
			if c.Err() == nil {
				n++
			}
		}
		return n
	}
	for start, next := r.fab.Now(), r.fab.Now(); live() < honest; {
		if r.fab.Now() > start+within {
			t.Fatalf("%d of %d honest peers are connected within %v, %d calls of Connect gave up, and %v are charged", live(), honest, within, len(a.failed), ln.patience.spent)
		}
		next += slowAfter
		r.client.shards[0].r.After(slowAfter, func() {})
		a.until(t, func() bool { return r.fab.Now() >= next })
		for i := range conns {
			switch {
			case dialing[i].Valid() && dialing[i].Settled():
				if conns[i], _, _ = dialing[i].Poll(); conns[i] == nil {
					again[i] = r.fab.Now() + pause
				}
			case conns[i] != nil && conns[i].Err() != nil:
				conns[i].end(true)
				conns[i], again[i] = nil, r.fab.Now()+pause
			case again[i] > 0 && r.fab.Now() >= again[i]:
				dialing[i], again[i] = dial(), 0
			}
		}
	}
	if len(a.failed) < silent {
		t.Errorf("%d calls of Connect gave up, want at least %d", len(a.failed), silent)
	}
}

// Rule: what an attack has cost is bounded, so that silent peers have their time again soon after it.
func TestTheCostOfAnAttackIsBounded(t *testing.T) {
	var p turnPatience
	now := time.Unix(1, 0)
	var left [1000]time.Duration
	for i := range left { // beside each other: all begin before the first is given up
		left[i] = p.left(now)
	}
	for _, d := range left {
		p.gaveUp(d)
	}
	if now = now.Add(12 * handshakePatience); p.left(now) != handshakePatience {
		t.Errorf("12 s after an attack %v are charged, and a peer has %v", p.spent, p.left(now))
	}
}
