package runtime

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// lostPeer is a connection between nodes 0 and 1 of a world in which nothing
// happens by itself, and what is started at its dialing end.
type lostPeer struct {
	t      *testing.T
	w      *simWorld
	a, b   *Conn
	remote Remote // memory of b's
	local  Slice  // of a's
	ops    []*boundedOp
}

// boundedOp is an operation that must end in time.
type boundedOp struct {
	name  string
	poll  func() (error, bool)
	from  time.Duration // when it was started
	ended time.Duration
	err   error
}

// newLostPeer connects two nodes with o on both sides.
func newLostPeer(t *testing.T, o Options) *lostPeer {
	t.Helper()
	return newLostEnds(t, o, o)
}

// newLostEnds connects two nodes; the first dials, the second listens.
func newLostEnds(t *testing.T, dial, listen Options) *lostPeer {
	t.Helper()
	notOnDevice(t, "virtual time")
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
				t.Errorf("its connections are gone, and a region has users: %v", err)
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
	seat, err := l.AcceptAsync()
	if err != nil {
		t.Fatal(err)
	}
	dialing, err := n.rt.DialAsync(p.w.ended, l.Addr().String(), dial)
	if err != nil {
		t.Fatal(err)
	}
	p.w.pass(100 * time.Millisecond)
	var ok bool
	if p.a, err, ok = dialing.Poll(); err != nil || !ok {
		t.Fatalf("dialing: %v (settled %t)", err, ok)
	}
	if p.b, err, ok = seat.Poll(); err != nil || !ok {
		t.Fatalf("accepting: %v (settled %t)", err, ok)
	}
	const size = 1024
	regions = []*Region{n.region(size, allAccess), m.region(size, allAccess|verbs.AccessFlushGlobal)}
	if p.local, err = regions[0].Slice(0, size); err != nil {
		t.Fatal(err)
	}
	if p.remote, err = regions[1].Remote(0, size); err != nil {
		t.Fatal(err)
	}
	return p
}

// retry sets what a's device does: options alone give it 7 retries of 67 ms or more.
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

// start starts an operation of a's; what is refused is none.
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
		p.t.Fatalf("operation %q", name)
	}
	if errors.Is(err, w.ended.Err()) || errors.Is(err, reactor.ErrRecvFull) || c.Err() != nil {
		if f.Valid() {
			f.Discard()
		}
		return nil // no room, no credit, no connection
	}
	if err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	if o.poll == nil {
		o.poll = func() (error, bool) { _, err, ok := f.Poll(); return err, ok }
	}
	p.ops = append(p.ops, o)
	return o
}

// pass lets time pass and notes when operations end.
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

// cut cuts the ways between the two.
func (p *lostPeer) cut(there, back bool) {
	a, b := p.w.nodes[0].gid, p.w.nodes[1].gid
	p.w.fab.SetLink(a, b, fabric.Link{Down: there})
	p.w.fab.SetLink(b, a, fabric.Link{Down: back})
}

// vanish cuts both ways, and b ends: no goodbye reaches a.
func (p *lostPeer) vanish() {
	p.cut(true, true)
	p.b.Abort()
}

// wantEnded checks that every operation ended within so long of the cut, or of its
// start, and that the connection failed.
func (p *lostPeer) wantEnded(cut, within time.Duration) {
	p.t.Helper()
	for _, o := range p.ops {
		at := max(cut, o.from)
		if o.ended == 0 {
			p.t.Errorf("%s of %v: not ended, the link was cut at %v", o.name, o.from, cut)
		} else if o.ended > at+within {
			p.t.Errorf("%s of %v ended %v after the cut at %v, want %v", o.name, o.from, o.ended-at, cut, within)
		}
	}
	if err := p.a.Err(); err == nil {
		p.t.Error("the connection is well")
	}
}

// anEighth is what may be added to a bound: the patrol's one round.
func anEighth(d time.Duration) time.Duration { return d + d/8 }
