package soft

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"pgregory.net/rapid"
)

// Rule: before the first measurement the timeout is firstProbeTime. Afterwards it is above each of a constant
// round trip's, at least minProbeTime, and doubles with each probe until the next measurement. A packet that
// was sent again is not measured.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m roundTrip
		now := time.Duration(rapid.IntRange(0, 1000).Draw(t, "start"))
		m.begin(7, now)
		m.forget()
		m.took(7, now+time.Hour)
		if got := m.timeout(); got != firstProbeTime {
			t.Fatalf("without a measurement the timeout is %v", got)
		}
		trip := time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "round trip"))
		for psn := uint64(10); psn < 100; psn += 10 {
			m.probes = uint8(rapid.IntRange(0, maxDoubled).Draw(t, "probes"))
			m.begin(psn, now)
			m.begin(psn+5, now+time.Hour) // one runs
			m.took(psn-1, now+time.Hour)  // an earlier packet
			now += trip
			m.took(psn+3, now)
			if got := m.timeout(); got < minProbeTime || got < trip || got > max(minProbeTime, 3*trip) {
				t.Fatalf("the timeout of a round trip of %v is %v", trip, got)
			}
		}
		once := m.timeout()
		m.probes = uint8(rapid.IntRange(0, maxDoubled).Draw(t, "probes"))
		if got, want := m.timeout(), once<<m.probes; got != want {
			t.Fatalf("after %d probes the timeout is %v, want %v", m.probes, got, want)
		}
	})
}

// The paths of the following tests have a round trip of 100 µs, and a queue pair's own timeout is 67 ms.
const (
	oneWay      = 50 * time.Microsecond
	longTimeout = 14
)

func lossyWorld(t *testing.T, retries uint8) *world {
	w := newWorld(t, options{lossy: true, mtu: verbs.MTU1024, attr: func(a *verbs.QPAttr) {
		a.Timeout, a.RetryCnt, a.MinRNRTimer = longTimeout, retries, 20 // 10 ms
	}})
	w.fab.SetAll(fabric.Link{Delay: oneWay})
	return w
}

// write posts a WRITE of n bytes.
func (w *world) write(id uint64, n int) {
	wr := w.a.send(id, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, n))
	wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
	w.a.mustPost(wr)
}

// took runs the world until a WRITE of n bytes has completed with a status, and returns how long that took.
func (w *world) took(id uint64, n int, want verbs.WCStatus) time.Duration {
	w.t.Helper()
	began := w.fab.Now()
	w.write(id, n)
	if wcs := w.first(w.a.scq); len(wcs) != 1 || wcs[0].WRID != id || wcs[0].Status != want {
		w.t.Fatalf("completions %+v, want id %d %v", wcs, id, want)
	}
	return w.fab.Now() - began
}

// Rule: on a link with a socket a lost packet, or a lost acknowledgement, costs a few round trips or
// minProbeTime, not the queue pair's timeout; and no retry.
func TestALossIsNoticedByTheRoundTrip(t *testing.T) {
	for name, c := range map[string]struct {
		rule  fabric.Rule
		back  bool // for the acknowledgements
		bytes int
	}{
		"a request of one packet":      {rule: fabric.Rule{From: 1, To: 1, Drop: true}, bytes: 8},
		"the last packet of a request": {rule: fabric.Rule{From: 8, To: 8, Drop: true}, bytes: 8 << 10},
		"all packets of a request":     {rule: fabric.Rule{From: 1, To: 8, Drop: true}, bytes: 8 << 10},
		"an acknowledgement":           {rule: fabric.Rule{From: 1, To: 1, Drop: true}, back: true, bytes: 8 << 10},
		"a packet, and its probe":      {rule: fabric.Rule{From: 1, To: 2, Drop: true}, bytes: 8},
	} {
		t.Run(name, func(t *testing.T) {
			w := lossyWorld(t, 0) // without a retry
			w.took(1, 8, verbs.WCSuccess)
			if got := must.Get(w.p.LinkStats("a"))(t); got != (LinkStats{}) {
				t.Errorf("counted %+v without a loss", got)
			}
			bad := fabric.Link{Delay: oneWay, Rules: []fabric.Rule{c.rule}}
			if c.back {
				w.fab.SetLink(w.b.gid, w.a.gid, bad)
			} else {
				w.fab.SetLink(w.a.gid, w.b.gid, bad)
			}
			if got := w.took(2, c.bytes, verbs.WCSuccess); got < minProbeTime || got > 4*minProbeTime {
				t.Fatalf("it took %v", got)
			}
			if got := must.Get(w.p.LinkStats("a"))(t).Again; got.Probes == 0 || got.Resent < got.Probes {
				t.Errorf("counted %+v", got)
			}
			// An answer to a packet that was sent twice measures nothing.
			if got := w.a.qp.req.trip.smoothed; got != 2*oneWay {
				t.Fatalf("the round trip is measured as %v, want %v", got, 2*oneWay)
			}
		})
	}
}

// Rule: on a link with a socket where nothing arrives, a request fails after exactly its timeouts, as if
// there were no probes, and little is sent.
func TestALinkThatIsDownFailsOnTime(t *testing.T) {
	const retries = 3
	for name, measured := range map[string]bool{"measured": true, "not measured": false} {
		t.Run(name, func(t *testing.T) {
			w := lossyWorld(t, retries)
			probes := 0
			if measured {
				w.took(1, 8, verbs.WCSuccess)
				probes = 8 // one at most for each doubling of their time
			}
			w.fab.SetAll(fabric.Link{Down: true})
			sent := w.a.sent()
			timeout := verbs.AckTimeout(longTimeout)
			if got := w.took(2, 64<<10, verbs.WCRetryExcErr); got != (retries+1)*timeout {
				t.Fatalf("it failed after %v, want %v", got, (retries+1)*timeout)
			}
			if n := int(w.a.sent() - sent); n > firstWindow+probes+retries {
				t.Fatalf("%d packets were sent", n)
			}
		})
	}
}

// Rule: a peer that answers after less than (retry + 1) timeouts is not dead, and what it has got is not
// sent again, except for the probes. Once it answers in time, probes come as early as before.
func TestALatePeerIsNotDead(t *testing.T) {
	const retries, half = 2, 8
	w := lossyWorld(t, retries)
	w.took(1, 8, verbs.WCSuccess)
	late := (retries+1)*verbs.AckTimeout(longTimeout) - 10*time.Millisecond
	w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Delay: late, Rules: []fabric.Rule{
		{From: half + 1, To: 2 * half, Delay: 4 * oneWay}, // these are answered by themselves
	}})
	sent := w.a.sent()
	for id := range uint64(2 * half) {
		w.write(2+id, 8)
	}
	w.settle()
	w.a.ok(w.a.poll(w.a.scq), 2)
	if n := w.a.sent() - sent; n > 2*half+8+retries {
		t.Fatalf("%d packets were sent for %d requests", n, 2*half)
	}
	if got := w.a.qp.req.window.psns; got < firstWindow/(1<<retries) { // half for each retry
		t.Fatalf("the window is %d", got)
	}
	w.fab.SetAll(fabric.Link{Delay: oneWay})
	w.took(49, 8, verbs.WCSuccess)
	w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Delay: oneWay, Rules: []fabric.Rule{{From: 1, To: 1, Drop: true}}})
	if got := w.took(50, 8, verbs.WCSuccess); got > 2*minProbeTime {
		t.Fatalf("a loss afterwards cost %v", got)
	}
}

// Rule: a round trip that has grown is learned: soon no packet is sent twice any more.
func TestGrownRoundTripIsLearned(t *testing.T) {
	w := lossyWorld(t, 7)
	w.took(1, 8, verbs.WCSuccess)
	w.fab.SetAll(fabric.Link{Delay: 10 * time.Millisecond})
	for id := range uint64(10) {
		w.took(2+id, 8, verbs.WCSuccess)
	}
	sent := w.a.sent()
	for id := range uint64(10) {
		w.took(12+id, 8, verbs.WCSuccess)
	}
	if n := w.a.sent() - sent; n != 10 {
		t.Errorf("%d packets were sent for 10 requests", n)
	}
}

// Rule: on a link with a socket the loss of the first flight of a queue pair without an acknowledgement
// timeout is noticed.
func TestLossOfTheFirstFlightWithoutATimeout(t *testing.T) {
	w := newWorld(t, options{lossy: true, attr: func(a *verbs.QPAttr) { a.Timeout = 0 }})
	w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Rules: []fabric.Rule{{From: 1, To: 1, Drop: true}}})
	if got := w.took(1, 8, verbs.WCSuccess); got > firstProbeTime {
		t.Errorf("it took %v", got)
	}
}

// Rule: if the peer had no receive while a probe was out, what it dropped is sent again after the delay, and
// no retry is used up. The answer to the probe does not mean that the rest has arrived.
func TestProbeBeforeARNRNak(t *testing.T) {
	w := lossyWorld(t, 0)
	w.took(1, 8, verbs.WCSuccess)
	w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Delay: minProbeTime + oneWay}) // a probe is sent meanwhile
	const n = firstWindow + 8                                                  // the RNR NAK of the first one is still obeyed when the probe's answer comes
	for id := range uint64(n) {
		w.a.mustPost(w.a.send(10+id, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	}
	w.step()
	w.fab.AdvanceTo(w.fab.Now() + minProbeTime + oneWay) // the first SEND has arrived, the probe has not
	w.step()
	for id := range uint64(n) {
		w.b.recv(100+id, w.b.sge(0, 8))
	}
	w.settle()
	w.a.ok(w.a.poll(w.a.scq), 10)
	w.b.ok(w.b.poll(w.b.rcq), 100)
}

// Rule: a request that fails locally ends the queue pair, also if the answer to a probe acknowledges requests
// before it, and a later request fails, too.
func TestProbeBesideALocalFailure(t *testing.T) {
	w := lossyWorld(t, 7)
	w.took(1, 8, verbs.WCSuccess)
	other := w.a.register(allAccess)
	post := func(id uint64, m verbs.MR) {
		s := w.a.sge(0, 100) // by reference
		s.LKey = m.LKey()
		wr := w.a.send(id, verbs.WRRDMAWrite, verbs.SendSignaled, s)
		wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		w.a.mustPost(wr)
	}
	w.fab.SetLink(w.b.gid, w.a.gid, fabric.Link{Delay: 2 * minProbeTime}) // the answers
	w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Down: true})
	for id := range uint64(10) {
		if id < 4 {
			post(10+id, w.a.mr)
		} else {
			post(10+id, other)
		}
	}
	w.step()
	// All were lost. Closing the region sends the first four again, which are answered in two parts.
	w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Delay: oneWay, Rules: []fabric.Rule{{From: 3, To: 4, Delay: 4 * oneWay}}})
	must.Do(t, other.Close())
	post(20, w.a.mr)
	post(21, other) // fails, too
	w.settle()
	wcs := w.a.poll(w.a.scq)
	if len(wcs) != 12 {
		t.Fatalf("%d completions, want 12: %s", len(wcs), statuses(wcs))
	}
	for i, c := range wcs {
		want := verbs.WCWRFlushErr
		switch {
		case i < 4:
			want = verbs.WCSuccess
		case i == 4:
			want = verbs.WCLocProtErr
		}
		if c.Status != want {
			t.Fatalf("completions %s", statuses(wcs))
		}
	}
}
