package runtime

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

var oneSidedOps = []string{"write", "read", "add", "flush"}

// Rule: whatever the way the peer was lost, whatever the device's timeout and
// retries, every operation ends within its bound, the larger of 4 times timeout
// and retries and the peer timeout (an eighth more at most, and what a flush may take); a lone
// receive within KeepAlive more. Everything is given back.
func TestALostPeerEndsEverythingWithinTheBound(t *testing.T) {
	seed := fromEnv(t, "VERBENA_SIM_SEED", uint64(time.Now().UnixNano()))
	t.Logf("VERBENA_SIM_SEED=%d", seed)
	r := newSimRand(seed)
	ways := map[string]func(p *lostPeer){
		"there":    func(p *lostPeer) { p.cut(true, false) },
		"back":     func(p *lostPeer) { p.cut(false, true) },
		"both":     func(p *lostPeer) { p.cut(true, true) },
		"vanished": (*lostPeer).vanish,
	}
	for _, way := range []string{"there", "back", "both", "vanished"} {
		for i := range 12 {
			o := Options{
				Raw: i%2 == 0, PeerTimeout: r.span(10*time.Millisecond, 20*time.Second), KeepAlive: r.span(10*time.Millisecond, 20*time.Second),
			}
			timeout, retries := uint8(r.IntN(20)), uint8(r.IntN(8))
			t.Run(fmt.Sprintf("%s/%d", way, i), func(t *testing.T) {
				p := newLostPeer(t, o)
				p.retry(timeout, retries)
				bound := boundOf(timeout, retries, o.PeerTimeout)
				t.Logf("timeout %d, %d retries, %v, %v: bound %v", timeout, retries, o.PeerTimeout, o.KeepAlive, bound)
				p.start("receive")
				if alone := r.one(3); !alone {
					for range r.between(1, 30) {
						p.start(oneSidedOps[r.IntN(len(oneSidedOps))])
						p.pass(r.span(time.Microsecond, 2*time.Millisecond))
					}
				}
				p.pass(r.span(0, 3*time.Second))
				cut := p.w.now()
				ways[way](p)
				for range r.between(0, 8) {
					p.start(oneSidedOps[r.IntN(len(oneSidedOps))])
				}
				p.pass(o.KeepAlive + anEighth(bound) + flushBound + time.Second)
				p.wantEnded(cut, o.KeepAlive+anEighth(bound)+flushBound)
				var wc *verbs.WCError
				switch err := p.a.Err(); {
				case errors.Is(err, ErrPeerTimeout):
				case errors.As(err, &wc) && wc.Status == verbs.WCRetryExcErr: // the device was faster
				case way == "there" && errors.Is(err, ErrPeerClosed): // the peer lost us, and could say so
				default:
					t.Errorf("the connection failed with %v, want %v or the device's %v", err, ErrPeerTimeout, verbs.WCRetryExcErr)
				}
				p.a.Abort()
				p.pass(2 * flushBound)
				if !isGone(p.a) {
					t.Error("a closed connection is not gone")
				}
			})
		}
	}
}

// Rule: an operation under way ends within its own bound, whether or not anybody
// asks the peer; and the error says who did not answer, and for how long.
func TestThePeerTimeoutEndsWhatTheDeviceDoesNot(t *testing.T) {
	for _, name := range oneSidedOps {
		t.Run(name, func(t *testing.T) {
			const bound = 300 * time.Millisecond
			p := newLostPeer(t, Options{PeerTimeout: bound, KeepAlive: -1})
			p.retry(0, 7) // the device never gives up
			p.cut(true, true)
			cut := p.w.now()
			p.start(name)
			p.pass(anEighth(bound) + flushBound)
			p.wantEnded(cut, anEighth(bound))
			var pt *PeerTimeoutError
			if err := p.ops[0].err; !errors.Is(err, ErrPeerTimeout) || !errors.As(err, &pt) {
				t.Fatalf("the operation ended with %v, want %v", err, ErrPeerTimeout)
			}
			if pt.Peer != p.a.RemoteAddr() || pt.Bound != bound || pt.Out != 1 || pt.Since.UnixNano() < int64(cut) || pt.Since.UnixNano() > int64(cut+bound/8) {
				t.Errorf("it says %+v; cut at %v", *pt, cut)
			}
			if s := p.w.nodes[0].rt.Stats(); s.Late != 1 {
				t.Errorf("Stats.Late is %d, want 1", s.Late)
			}
		})
	}
}

// Rule: each end's own options bound its own waits. An end that gives a peer up
// after a second does so whoever dials and however patient the other end is.
func TestEachEndIsBoundByItsOwnOptions(t *testing.T) {
	for _, timeouts := range [][2]time.Duration{{time.Hour, time.Second}, {time.Second, time.Hour}, {-1, time.Second}, {time.Second, -1}} {
		t.Run(fmt.Sprintf("dials with %v, listens with %v", timeouts[0], timeouts[1]), func(t *testing.T) {
			p := newLostEnds(t, Options{PeerTimeout: timeouts[0], KeepAlive: -1}, Options{PeerTimeout: timeouts[1], KeepAlive: -1})
			p.cut(true, true)
			cut := p.w.now()
			for i, c := range []*Conn{p.a, p.b} {
				attr, err := c.q.QP().Query()
				if err != nil {
					t.Fatal(err)
				}
				if want := max(ackTimeoutFor(timeouts[i]), softDelay); attr.Timeout != want || attr.RetryCnt != retryCount {
					t.Errorf("with PeerTimeout %v the queue pair has code %d and %d retries, want %d and %d",
						timeouts[i], attr.Timeout, attr.RetryCnt, want, retryCount)
				}
				f, err := c.SendBytes(p.w.ended, []byte("is anybody there?"))
				if err != nil {
					t.Fatal(err)
				}
				p.ops = append(p.ops, &boundedOp{name: "send", from: cut, poll: func() (error, bool) { _, err, ok := f.Poll(); return err, ok }})
			}
			p.pass(5 * time.Second) // more than 4 times 67 ms, 8 times
			for i, o := range p.ops {
				if ended := o.ended != 0; ended == (timeouts[i] == time.Hour) {
					t.Errorf("with PeerTimeout %v the send ended (%t) after %v: %v", timeouts[i], ended, o.ended-cut, o.err)
				}
			}
			p.pass(time.Minute) // the patient device gives up, too
			p.wantEnded(cut, time.Minute)
		})
	}
}

// softDelay is what the software RNIC says of its delay (verbs.DeviceAttr.AckDelay).
const softDelay = 14

// Rule: a raw peer that posts no receives does not answer: the send ends within
// the bound, though its retries have no end. The peer hears of it.
func TestAPeerWithoutReceivesTimesOut(t *testing.T) {
	const bound = 3 * time.Second // more than four times the device's
	p := newLostPeer(t, Options{Raw: true, PeerTimeout: bound})
	from := p.w.now()
	o := p.start("send")
	p.pass(bound - time.Nanosecond)
	if o.ended != 0 {
		t.Fatalf("ended after %v with %v, the bound is %v", o.ended-from, o.err, bound)
	}
	p.pass(2 * bound)
	p.wantEnded(from, anEighth(bound))
	if !errors.Is(o.err, ErrPeerTimeout) {
		t.Errorf("ended with %v, want %v", o.err, ErrPeerTimeout)
	}
	if err := p.b.Err(); !errors.Is(err, ErrPeerClosed) {
		t.Errorf("the peer ended with %v, want %v", err, ErrPeerClosed)
	}
}

// Rule: a peer that is slow, over a link that loses, is no lost peer, however
// long it takes altogether; nor is one that has nothing to say.
func TestASlowPeerIsNotLost(t *testing.T) {
	const bound = 100 * time.Millisecond
	for name, l := range map[string]fabric.Link{"slow": {Delay: 30 * time.Millisecond}, "lossy": {Delay: time.Millisecond, Loss: 0.1}} {
		t.Run(name, func(t *testing.T) {
			p := newLostPeer(t, Options{PeerTimeout: bound, KeepAlive: bound})
			p.w.fab.SetAll(l)
			limit := boundOf(14, 7, bound) // of the simulation's connections
			done := 0
			for end := p.w.now() + 10*limit; p.w.now() < end && p.a.Err() == nil; {
				for p.start("write") != nil { // until the queue is full
				}
				p.pass(10 * time.Millisecond)
				for len(p.ops) > 0 && p.ops[0].ended != 0 {
					p.ops, done = p.ops[1:], done+1
				}
			}
			p.pass(20 * limit) // idle
			if err := p.a.Err(); err != nil {
				t.Errorf("failed after %d writes: %v", done, err)
			}
			if done < 100 {
				t.Errorf("%d writes: the run does not show what it should", done)
			}
		})
	}
}

// Rule: an idle connection lives, at the price of one question in KeepAlive from
// each side; without one nobody asks, and a lost peer is not noticed.
func TestKeepAliveIsOneQuestionInItsTime(t *testing.T) {
	const every, times = 500 * time.Millisecond, 100
	p := newLostPeer(t, Options{KeepAlive: every})
	p.pass(times * every)
	for _, n := range p.w.nodes[:2] {
		if s := n.rt.Stats(); s.KeepAlives < times-2 || s.KeepAlives > times+2 {
			t.Errorf("%s asked %d times in %d intervals", n.name, s.KeepAlives, times)
		}
	}
	if p.a.Err() != nil || p.b.Err() != nil {
		t.Errorf("idle connections failed: %v, %v", p.a.Err(), p.b.Err())
	}
	q := newLostPeer(t, Options{KeepAlive: -1})
	got := q.start("receive")
	q.vanish()
	q.pass(time.Hour)
	if got.ended != 0 || q.w.nodes[0].rt.Stats().KeepAlives != 0 {
		t.Errorf("the receive ended (%v), though nobody should ask", got.err)
	}
}

// Rule: Close without a limit of its own ends too when the peer is lost: what it
// waits for is bounded.
func TestClosingToALostPeerEnds(t *testing.T) {
	const bound = 300 * time.Millisecond
	p := newLostPeer(t, Options{PeerTimeout: bound})
	p.retry(0, 7)
	p.cut(true, true)
	o := p.start("write")
	p.a.end(false) // Close, waiting for the write
	from := p.w.now()
	p.pass(anEighth(bound) + flushBound)
	p.wantEnded(from, anEighth(bound))
	if !errors.Is(o.err, ErrConnClosed) {
		t.Errorf("the write ended with %v, want %v", o.err, ErrConnClosed)
	}
	if !isGone(p.a) {
		t.Error("the connection is not gone")
	}
}
