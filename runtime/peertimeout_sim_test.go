package runtime

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// oneSidedOps are the names of the operations that need no receive of the peer (see lostPeer.start).
var oneSidedOps = []string{"write", "read", "add", "flush"}

// Rule: if the peer is lost, every operation ends within a limit, and all memory is released. This holds
// for each way in which the peer can be lost, and for each ACK timeout and retry count. The limit is
// KeepAlive + bound + bound/8 + flushBound:
//   - KeepAlive: if no send is outstanding, the connection sends a probe only after KeepAlive.
//   - bound: the result of boundOf.
//   - bound/8: the watchdog may notice up to bound/8 late that the bound has passed.
//   - flushBound: the device may need this time to flush the queue pair.
func TestALostPeerEndsEverythingWithinTheBound(t *testing.T) {
	seed := fromEnv(t, "VERBENA_SIM_SEED", uint64(time.Now().UnixNano()))
	t.Logf("VERBENA_SIM_SEED=%d", seed)
	r := newSimRand(seed)
	ways := map[string]func(p *lostPeer){
		"link to the peer cut":   func(p *lostPeer) { p.cut(true, false) },
		"link from the peer cut": func(p *lostPeer) { p.cut(false, true) },
		"both links cut":         func(p *lostPeer) { p.cut(true, true) },
		"peer vanished":          (*lostPeer).vanish,
	}
	for _, way := range []string{"link to the peer cut", "link from the peer cut", "both links cut", "peer vanished"} {
		for i := range 12 {
			o := Options{
				Raw: i%2 == 0, PeerTimeout: r.span(10*time.Millisecond, 20*time.Second), KeepAlive: r.span(10*time.Millisecond, 20*time.Second),
			}
			timeout, retries := uint8(r.IntN(20)), uint8(r.IntN(8))
			t.Run(fmt.Sprintf("%s/%d", way, i), func(t *testing.T) {
				p := newLostPeer(t, o)
				p.retry(timeout, retries)
				bound := boundOf(timeout, retries, o.PeerTimeout)
				t.Logf("ACK timeout code %d, %d retries, PeerTimeout %v, KeepAlive %v: the bound is %v", timeout, retries, o.PeerTimeout, o.KeepAlive, bound)
				p.start("receive")
				if alone := r.one(3); !alone { // alone: the receive is the only operation
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
				case errors.As(err, &wc) && wc.Status == verbs.WCRetryExcErr: // the device's retries were used up before the bound
				// The link from the peer still works. So if the peer's end fails first, its DREQ arrives.
				case way == "link to the peer cut" && errors.Is(err, ErrPeerClosed):
				default:
					t.Errorf("the connection failed with %v, want %v or a completion with the status %v", err, ErrPeerTimeout, verbs.WCRetryExcErr)
				}
				p.a.Abort()
				p.pass(2 * flushBound)
				if !isGone(p.a) {
					t.Errorf("the connection is not gone %v after Abort", 2*flushBound)
				}
			})
		}
	}
}

// Rule: if the device never gives up and no probes are sent, an outstanding operation still ends at its
// bound. The error names the peer, the bound, and the start of the time without an answer.
func TestThePeerTimeoutEndsWhatTheDeviceDoesNot(t *testing.T) {
	for _, name := range oneSidedOps {
		t.Run(name, func(t *testing.T) {
			const bound = 300 * time.Millisecond
			p := newLostPeer(t, Options{PeerTimeout: bound, KeepAlive: -1})
			p.retry(0, 7) // ACK timeout code 0: the device never gives up
			p.cut(true, true)
			cut := p.w.now()
			p.start(name)
			p.pass(anEighth(bound) + flushBound)
			p.wantEnded(cut, anEighth(bound))
			var pt *PeerTimeoutError
			if err := p.ops[0].err; !errors.Is(err, ErrPeerTimeout) || !errors.As(err, &pt) {
				t.Fatalf("the operation ended with %v, want %v", err, ErrPeerTimeout)
			}
			if pt.Peer != p.a.RemoteAddr() || pt.Bound != bound || pt.Outstanding != 1 || pt.Since.UnixNano() < int64(cut) || pt.Since.UnixNano() > int64(cut+bound/8) {
				t.Errorf("the error is %+v; want Peer %v, Bound %v, Outstanding 1, and Since at most %v after the cut at %v",
					*pt, p.a.RemoteAddr(), bound, bound/8, cut)
			}
			if s := p.w.nodes[0].rt.Stats(); s.PeerTimeouts != 1 {
				t.Errorf("Stats.PeerTimeouts is %d, want 1", s.PeerTimeouts)
			}
		})
	}
}

// Rule: if the peer is lost, the PeerTimeout in an end's own options decides when this end fails,
// whichever end dials. For example, an end with a PeerTimeout of one second fails within seconds, even
// if the PeerTimeout of the peer's end is an hour.
func TestEachEndIsBoundByItsOwnOptions(t *testing.T) {
	for _, timeouts := range [][2]time.Duration{{time.Hour, time.Second}, {time.Second, time.Hour}, {-1, time.Second}, {time.Second, -1}} {
		t.Run(fmt.Sprintf("dialing end %v, accepting end %v", timeouts[0], timeouts[1]), func(t *testing.T) {
			p := newLostEnds(t, Options{PeerTimeout: timeouts[0], KeepAlive: -1}, Options{PeerTimeout: timeouts[1], KeepAlive: -1})
			p.cut(true, true)
			cut := p.w.now()
			for i, c := range []*Conn{p.a, p.b} {
				attr := must.Get(c.q.QP().Query())(t)
				if want := max(ackTimeoutFor(timeouts[i], DefaultRetryCount), softDelay); attr.Timeout != want || attr.RetryCnt != DefaultRetryCount {
					t.Errorf("with PeerTimeout %v the queue pair has ACK timeout code %d and %d retries, want %d and %d",
						timeouts[i], attr.Timeout, attr.RetryCnt, want, DefaultRetryCount)
				}
				f := must.Get(c.SendBytes(p.w.ended, []byte("is anybody there?")))(t)
				p.ops = append(p.ops, &boundedOp{name: "send", from: cut, poll: func() (error, bool) { _, err, ok := f.Poll(); return err, ok }})
			}
			p.pass(5 * time.Second) // more than the bound with ACK timeout code 15 and 7 retries: 4 × 134 ms × 8 = 4.3 s
			for i, o := range p.ops {
				if ended := o.ended != 0; ended != (timeouts[i] == time.Second) {
					t.Errorf("5 s after the cut, the send of the end with PeerTimeout %v has ended: %t, with the error %v; want %t",
						timeouts[i], ended, o.err, !ended)
				}
			}
			p.pass(time.Minute) // meanwhile the device of the end with PeerTimeout 1 h, or none, uses up its retries
			p.wantEnded(cut, time.Minute)
		})
	}
}

// softDelay is verbs.DeviceAttr.AckDelay of the software RNIC. A queue pair that the connection manager
// connects has an ACK timeout code of softDelay or more.
const softDelay = 15

// Rule: if a raw peer has posted no receive, a SEND to it ends at the bound, although the RNR retries of
// the SEND are unlimited. Then the peer's end of the connection fails with ErrPeerClosed.
func TestAPeerWithoutReceivesTimesOut(t *testing.T) {
	const bound = 5 * time.Second // PeerTimeout is the bound, because the device's retries take at most 4.3 s
	p := newLostPeer(t, Options{Raw: true, PeerTimeout: bound})
	from := p.w.now()
	o := p.start("send")
	p.pass(bound - time.Nanosecond)
	if o.ended != 0 {
		t.Fatalf("the SEND ended after %v with %v, want no end before %v", o.ended-from, o.err, bound)
	}
	p.pass(2 * bound)
	p.wantEnded(from, anEighth(bound))
	if !errors.Is(o.err, ErrPeerTimeout) {
		t.Errorf("the SEND ended with %v, want %v", o.err, ErrPeerTimeout)
	}
	if err := p.b.Err(); !errors.Is(err, ErrPeerClosed) {
		t.Errorf("the peer's end failed with %v, want %v", err, ErrPeerClosed)
	}
}

// Rule: if a link is slow or lossy, but the peer answers, the connection stays open. This holds while
// operations are outstanding, and while the connection is idle.
func TestASlowPeerIsNotLost(t *testing.T) {
	const bound = 100 * time.Millisecond
	for name, l := range map[string]fabric.Link{"slow": {Delay: 30 * time.Millisecond}, "lossy": {Delay: time.Millisecond, Loss: 0.1}} {
		t.Run(name, func(t *testing.T) {
			p := newLostPeer(t, Options{PeerTimeout: bound, KeepAlive: bound})
			p.w.fab.SetAll(l)
			limit := boundOf(softDelay, 7, bound) // the queue pair has the device's ACK timeout code and 7 retries
			done := 0
			for end := p.w.now() + 10*limit; p.w.now() < end && p.a.Err() == nil; {
				for p.start("write") != nil { // starts WRITEs until no slot is free
				}
				p.pass(10 * time.Millisecond)
				for len(p.ops) > 0 && p.ops[0].ended != 0 {
					p.ops, done = p.ops[1:], done+1
				}
			}
			p.pass(20 * limit) // meanwhile the connection is idle
			if err := p.a.Err(); err != nil {
				t.Errorf("the connection failed after %d WRITEs with %v, want no failure", done, err)
			}
			if done < 100 {
				t.Errorf("%d WRITEs completed, want 100 or more", done)
			}
		})
	}
}

// Rule: if a connection is idle, each end sends one probe in each interval of Options.KeepAlive, and the
// connection stays open. If KeepAlive is negative, the end sends no probes, and does not notice the loss
// of the peer while the connection is idle.
func TestKeepAliveIsOneQuestionInItsTime(t *testing.T) {
	const every, times = 500 * time.Millisecond, 100
	p := newLostPeer(t, Options{KeepAlive: every})
	p.pass(times * every)
	for _, n := range p.w.nodes[:2] {
		if s := n.rt.Stats(); s.KeepAlives < times-2 || s.KeepAlives > times+2 {
			t.Errorf("%s sent %d probes in %d intervals, want one probe for each interval; the sum may differ by 2", n.name, s.KeepAlives, times)
		}
	}
	if p.a.Err() != nil || p.b.Err() != nil {
		t.Errorf("the ends of the idle connection failed with %v and %v, want no failure", p.a.Err(), p.b.Err())
	}
	q := newLostPeer(t, Options{KeepAlive: -1})
	got := q.start("receive")
	q.vanish()
	q.pass(time.Hour)
	if sent := q.w.nodes[0].rt.Stats().KeepAlives; got.ended != 0 || sent != 0 {
		t.Errorf("with a negative KeepAlive the receive has ended: %t, with the error %v; and %d probes were sent; want false and 0",
			got.ended != 0, got.err, sent)
	}
}

// Rule: if the peer is lost, Close without a deadline returns, because the operations for which Close
// waits end at their bound.
func TestClosingToALostPeerEnds(t *testing.T) {
	const bound = 300 * time.Millisecond
	p := newLostPeer(t, Options{PeerTimeout: bound})
	p.retry(0, 7)
	p.cut(true, true)
	o := p.start("write")
	p.a.end(false) // part of Close: the connection ends after the WRITE
	from := p.w.now()
	p.pass(anEighth(bound) + flushBound)
	p.wantEnded(from, anEighth(bound))
	if !errors.Is(o.err, ErrConnClosed) {
		t.Errorf("the WRITE ended with %v, want %v", o.err, ErrConnClosed)
	}
	if !isGone(p.a) {
		t.Errorf("the connection is not gone %v after it was closed", anEighth(bound)+flushBound)
	}
}

// lostPeer has a connection between node 0 and node 1 of a simulation without random disturbances. The
// tests cut off the peer p.b, and check the operations of p.a.
type lostPeer struct {
	t      *testing.T
	w      *simWorld
	a, b   *Conn        // the dialing end and the accepting end
	remote Remote       // memory of b
	local  Slice        // memory of a
	ops    []*boundedOp // operations of a
}

// boundedOp is an operation that must end within its bound. All its times are virtual.
type boundedOp struct {
	name  string
	poll  func() (error, bool) // returns the operation's error, and whether the operation has ended
	from  time.Duration        // when it was started
	ended time.Duration        // when it ended; 0: not yet
	err   error
}

// newLostPeer connects two nodes, with the options o on both ends.
func newLostPeer(t *testing.T, o Options) *lostPeer {
	t.Helper()
	return newLostEnds(t, o, o)
}

// newLostEnds connects two nodes. The dialing end has the options dial, and the accepting end has
// the options listen.
func newLostEnds(t *testing.T, dial, listen Options) *lostPeer {
	t.Helper()
	notOnDevice(t, "the test runs in virtual time")
	p := &lostPeer{t: t, w: newSimWorld(1, 0)}
	var regions []*Region
	t.Cleanup(func() {
		for _, c := range []*Conn{p.a, p.b} {
			if c != nil {
				c.Abort()
			}
		}
		p.w.fab.SetAll(fabric.Link{})
		p.w.pass(3 * flushBound)
		for _, r := range regions {
			if err := r.Close(); err != nil {
				t.Errorf("closing a region after its connections were closed: %v", err)
			}
		}
		p.w.finish()
	})
	n, m := p.w.nodes[0], p.w.nodes[1]
	for _, o := range []*Options{&dial, &listen} {
		o.RecvCredits, o.SendDepth, o.MessageSize = 8, 16, simMsgSize
	}
	l, err := m.rt.ListenOptions(netip.AddrPortFrom(m.addr, 0).String(), listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.end)
	seat := must.Get(l.AcceptAsync())(t)
	dialing := must.Get(n.rt.DialAsync(p.w.ended, l.Addr().String(), dial))(t)
	p.w.pass(100 * time.Millisecond)
	var ok bool
	if p.a, err, ok = dialing.Poll(); err != nil || !ok {
		t.Fatalf("dialing: %v (settled: %t), want no error and true", err, ok)
	}
	if p.b, err, ok = seat.Poll(); err != nil || !ok {
		t.Fatalf("accepting: %v (settled: %t), want no error and true", err, ok)
	}
	const size = 1024
	regions = []*Region{n.region(size, allAccess), m.region(size, allAccess|verbs.AccessFlushGlobal)}
	p.local = must.Get(regions[0].Slice(0, size))(t)
	p.remote = must.Get(regions[1].Remote(0, size))(t)
	return p
}

// retry sets the ACK timeout code and the retry count of the queue pair of p.a. Options
// cannot set an ACK timeout below softDelay (134 ms).
func (p *lostPeer) retry(timeout, count uint8) {
	p.t.Helper()
	qp := p.a.q.QP()
	for _, m := range []struct {
		to   verbs.QPState
		mask verbs.QPAttrMask
	}{{verbs.QPSSQD, 0}, {verbs.QPSSQD, verbs.QPMTimeout | verbs.QPMRetryCnt}, {verbs.QPSRTS, 0}} {
		if err := qp.Modify(&verbs.QPAttr{State: m.to, Timeout: timeout, RetryCnt: count}, m.mask|verbs.QPMState); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.a.watchPeer(); err != nil {
		p.t.Fatal(err)
	}
}

// start starts an operation of p.a. It returns nil if no slot or credit is free, or if the
// connection has failed.
func (p *lostPeer) start(name string) *boundedOp {
	p.t.Helper()
	w, c := p.w, p.a
	var f Future
	var err error
	o := &boundedOp{name: name, from: w.now()}
	switch name {
	case "receive":
		if !c.opts.Raw {
			m := c.Recv()
			o.poll = func() (error, bool) { _, err, ok := m.Poll(); return err, ok }
			break
		}
		f, err = c.PostRecv(p.local)
	case "write":
		f, err = c.Write(w.ended, p.local, p.remote)
	case "read":
		f, err = c.Read(w.ended, p.local, p.remote)
	case "add":
		f, err = c.Start(w.ended, new(FetchAndAddOp(p.remote, 1)))
	case "flush":
		f, err = c.Start(w.ended, new(FlushOp(p.remote, verbs.FlushGlobal)))
	case "send":
		f, err = c.SendBytes(w.ended, []byte("is anybody there?"))
	default:
		p.t.Fatalf("the test has an unknown operation %q", name)
	}
	if errors.Is(err, w.ended.Err()) || errors.Is(err, reactor.ErrRecvFull) || c.Err() != nil {
		if f.Valid() {
			f.Discard()
		}
		return nil
	}
	if err != nil {
		p.t.Fatalf("starting the operation %q: %v", name, err)
	}
	if o.poll == nil {
		o.poll = func() (error, bool) { _, err, ok := f.Poll(); return err, ok }
	}
	p.ops = append(p.ops, o)
	return o
}

// pass advances virtual time by d, and records when operations end.
func (p *lostPeer) pass(d time.Duration) {
	w := p.w
	for until := w.now() + d; ; w.advance(until - w.now()) {
		for n := 0; n < 50 && w.turn(); n++ {
		}
		for _, o := range p.ops {
			if o.ended == 0 {
				if err, ok := o.poll(); ok {
					o.err, o.ended = err, w.now()
				}
			}
		}
		if w.now() >= until {
			return
		}
	}
}

// cut(there, back) sets the state of both links. The first argument is for the link from p.a to p.b, and
// the second argument is for the link from p.b to p.a. If the argument is true, cut takes the link down,
// otherwise up.
func (p *lostPeer) cut(there, back bool) {
	a, b := p.w.nodes[0].gid, p.w.nodes[1].gid
	p.w.fab.SetLink(a, b, fabric.Link{Down: there})
	p.w.fab.SetLink(b, a, fabric.Link{Down: back})
}

// vanish takes both links down and then aborts p.b. So p.a is not notified of the end of p.b.
func (p *lostPeer) vanish() {
	p.cut(true, true)
	p.b.Abort()
}

// wantEnded checks that the connection of p.a has failed and that every operation has ended in time. The
// limit of an operation o is max(cut, o.from) + within.
func (p *lostPeer) wantEnded(cut, within time.Duration) {
	p.t.Helper()
	for _, o := range p.ops {
		at := max(cut, o.from)
		if o.ended == 0 {
			p.t.Errorf("the operation %q, which was started at %v, has not ended; want its end at %v at the latest", o.name, o.from, at+within)
		} else if o.ended > at+within {
			p.t.Errorf("the operation %q, which was started at %v, ended at %v; want its end at %v at the latest", o.name, o.from, o.ended, at+within)
		}
	}
	if err := p.a.Err(); err == nil {
		p.t.Error("the connection has not failed, want an error")
	}
}

// anEighth returns d plus an eighth of d: after the bound d, an eighth of d may pass before the watchdog
// notices the end of the bound.
func anEighth(d time.Duration) time.Duration { return d + d/8 }
