package runtime

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the bound is the larger of 4 × 4.096 µs × 2^timeout × (retries + 1) and the configured
// time. For timeout code 0, with which the device never gives up, the bound is the configured time.
// If no time is configured, there is no bound.
func TestBoundIsTheLargerOfDeviceAndConfiguration(t *testing.T) {
	for _, c := range []struct {
		timeout, retries uint8
		configured, want time.Duration
	}{
		{14, 7, 5 * time.Second, 5 * time.Second},
		{14, 7, time.Second, 2147483648 * time.Nanosecond},
		{18, 7, 5 * time.Second, 34359738368 * time.Nanosecond},
		{19, 0, 5 * time.Second, 8589934592 * time.Nanosecond},
		{0, 7, 5 * time.Second, 5 * time.Second},
		{31, 7, 5 * time.Second, 281474976710656 * time.Nanosecond}, // 78 hours
		{31, 7, -1, 0},
	} {
		if got := boundOf(c.timeout, c.retries, c.configured); got != c.want {
			t.Errorf("timeout %d, %d retries, %v configured: %v, want %v", c.timeout, c.retries, c.configured, got, c.want)
		}
	}
}

// Rule: a connection inherits unset options from its runtime. If neither of them sets KeepAlive,
// the value of PeerTimeout is used for it. A negative KeepAlive disables the probes.
func TestPeerTimeoutOptions(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name            string
		runtime, own    Options
		timeout, asking time.Duration
	}{
		{"nothing said", Options{}, Options{}, DefaultPeerTimeout, DefaultPeerTimeout},
		{"the runtime's", Options{PeerTimeout: 2 * s}, Options{}, 2 * s, 2 * s},
		{"the connection's", Options{PeerTimeout: 2 * s}, Options{PeerTimeout: 3 * s}, 3 * s, 3 * s},
		{"both of the runtime", Options{PeerTimeout: 2 * s, KeepAlive: s}, Options{PeerTimeout: 3 * s}, 3 * s, s},
		{"nobody is asked", Options{KeepAlive: -1}, Options{}, DefaultPeerTimeout, 0},
		{"asked after all", Options{KeepAlive: -1}, Options{KeepAlive: s}, DefaultPeerTimeout, s},
		{"no bound", Options{PeerTimeout: -1}, Options{}, -1, 0},
		{"no bound, but asked", Options{PeerTimeout: -1}, Options{KeepAlive: s}, -1, s},
	} {
		cfg := must.Get(Config{Conn: c.runtime}.validate())(t)
		o := must.Get((&Runtime{cfg: cfg}).inherit(c.own))(t)
		if o.PeerTimeout != c.timeout || o.keepAlive() != c.asking {
			t.Errorf("%s: %v and %v, want %v and %v", c.name, o.PeerTimeout, o.keepAlive(), c.timeout, c.asking)
		}
	}
	for _, o := range []Options{{PeerTimeout: 1}, {KeepAlive: minPeerTimeout - 1}} {
		if _, err := (Config{Conn: o}).validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%v and %v: %v, want %v", o.PeerTimeout, o.KeepAlive, err, ErrConfig)
		}
	}
	if cfg, err := (Config{stepped: true}).validate(); err != nil || cfg.Conn.keepAlive() != 0 {
		t.Errorf("a simulation asks every %v (%v), and never comes to rest", cfg.Conn.keepAlive(), err)
	}
}

// Rule: each end computes an ACK timeout code from its own options. The queue pair of the end has
// the larger of this code and the AckDelay of its device, and the end's own retry count. Both ends have the type of
// service of the end that dials.
func TestEachEndSetsItsOwnTimeout(t *testing.T) {
	type end struct {
		own     Options
		code    uint8
		retries uint8
	}
	long := end{Options{PeerTimeout: time.Hour, TOS: 0x68}, maxAckTimeout, 7}
	short := end{Options{PeerTimeout: time.Second}, minAckTimeout, 7}
	own := end{Options{AckTimeout: 200 * time.Millisecond, RetryCount: 2, TOS: 0xb8}, 16, 2} // 268 ms
	none := end{Options{AckTimeout: verbs.AckTimeout(17), RetryCount: -1}, 17, 0}
	onBeds(t, func(t *testing.T, b bed) {
		for _, ends := range [][2]end{{long, short}, {short, long}, {own, none}, {none, own}} {
			d, l, err := met(t, b, ends[0].own, ends[1].own)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range []*Conn{d, l} {
				e, attr := ends[i], must.Get(c.q.QP().Query())(t)
				dev := must.Get(c.rt.dev.QueryDevice())(t)
				if want := max(e.code, dev.AckDelay); attr.Timeout != want || attr.RetryCnt != e.retries {
					t.Errorf("with %+v the queue pair has code %d and %d retries, want %d and %d", e.own, attr.Timeout, attr.RetryCnt, want, e.retries)
				}
				if want := ends[0].own.TOS; attr.AH.TrafficClass != want {
					t.Errorf("end %d sends with type of service 0x%02x, want 0x%02x", i, attr.AH.TrafficClass, want)
				}
			}
		}
	})
}

// Rule: a time that no code stands for, and a retry count of more than 3 bits, are refused.
func TestWaitsThatNoDeviceHas(t *testing.T) {
	for _, o := range []Options{{AckTimeout: -1}, {AckTimeout: longestAckTimeout + 1}, {RetryCount: 8}} {
		if _, err := (Config{Conn: o}).validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v, want %v", o, err, ErrConfig)
		}
	}
	o := must.Get(Config{Conn: Options{AckTimeout: longestAckTimeout}}.validate())(t).Conn
	if code := o.ackTimeout(); code != 31 {
		t.Errorf("the longest time has code %d, want 31", code)
	}
	o.AckTimeout = 1
	if code := o.ackTimeout(); code != 1 {
		t.Errorf("the shortest time has code %d, want 1", code)
	}
}

// Rule: the text of a PeerTimeoutError names the peer, the bound, the start of the time without an
// answer, the number of outstanding operations, and the kind of the oldest operation.
func TestPeerTimeoutErrorSaysIt(t *testing.T) {
	e := &PeerTimeoutError{
		Peer: netip.MustParseAddrPort("10.1.2.3:4791"), Bound: 5 * time.Second, Since: time.Unix(1_700_000_000, 0).UTC(),
		Outstanding: 3, Oldest: reactor.KindRead,
	}
	for _, part := range []string{"10.1.2.3:4791", "5s", "2023-11-14T22:13:20Z", "3", "READ"} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q does not say %q", e, part)
		}
	}
	if !errors.Is(e, ErrPeerTimeout) {
		t.Errorf("%v is no %v", e, ErrPeerTimeout)
	}
}

// Rule: if a time is configured, ackTimeoutFor returns the largest code from minAckTimeout to
// maxAckTimeout with which the bound is still this time. The bound is computed for code +
// deviceDelay. If there is no such code, ackTimeoutFor returns minAckTimeout.
func TestProposedAckTimeoutFitsTheBound(t *testing.T) {
	for _, x := range []struct {
		configured time.Duration
		want       uint8
	}{
		{0, 0}, {-1, 0}, {time.Millisecond, 13}, {5 * time.Second, 13}, {10 * time.Second, 14}, {time.Minute, 16}, {time.Hour, 18},
	} {
		code := ackTimeoutFor(x.configured, DefaultRetryCount)
		if code != x.want {
			t.Errorf("with %v configured the code is %d, want %d", x.configured, code, x.want)
		}
		if x.configured >= 5*time.Second && boundOf(code+deviceDelay, DefaultRetryCount, x.configured) != x.configured {
			t.Errorf("with %v configured and a device that adds %d the bound is %v", x.configured, deviceDelay, boundOf(code+deviceDelay, DefaultRetryCount, x.configured))
		}
	}
}

// Rule: a connection made without the connection manager sends keep-alives only if
// Options.KeepAlive is set, because the peer's queue pair may refuse the probe. A UC connection has
// neither keep-alives nor a bound, because its peer acknowledges nothing.
func TestPlainConnectionsAskOnlyWhenTold(t *testing.T) {
	notOnDevice(t, "virtual time")
	w := newSimWorld(1, 0)
	t.Cleanup(w.finish)
	for _, c := range []struct {
		name string
		o    PlainOptions
		want time.Duration
	}{
		{"RC", PlainOptions{}, 0},
		{"RC, told to", PlainOptions{Options: Options{KeepAlive: time.Second}}, time.Second},
		{"UC, told to", PlainOptions{Options: Options{KeepAlive: time.Second}, Type: verbs.QPTUC}, 0},
	} {
		p, err := w.nodes[0].rt.Prepare(c.o)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := p.c.opts.keepAlive(); got != c.want {
			t.Errorf("%s asks every %v, want %v", c.name, got, c.want)
		}
		if err := p.c.watchPeer(); err != nil { // SetPeerLimit would refuse a limit of a UC queue
			t.Errorf("%s: %v", c.name, err)
		}
		p.c.Abort()
		w.pass(2 * flushBound)
	}
}

// Rule: a message in a shared receive shows that its sender is alive. So the receiving end does not
// probe the sender.
func TestASharedReceiveIsASignOfThePeer(t *testing.T) {
	notOnDevice(t, "virtual time")
	const every, times, size = 500 * time.Millisecond, 20, 64
	w := newSimWorld(1, 0)
	t.Cleanup(w.finish)
	n, m := w.nodes[0], w.nodes[1]
	s := must.Get(m.rt.NewSharedRecv(2, 1))(t)
	l := must.Get(m.rt.ListenOptions(netip.AddrPortFrom(m.addr, 0).String(), Options{Raw: true, Shared: s, KeepAlive: every}))(t)
	seat := must.Get(l.AcceptAsync())(t)
	dialing := must.Get(n.rt.DialAsync(w.ended, l.Addr().String(), Options{Raw: true, KeepAlive: -1}))(t)
	w.pass(100 * time.Millisecond)
	a, err, ok := dialing.Poll()
	if err != nil || !ok {
		t.Fatalf("dialing: %v (settled %t)", err, ok)
	}
	b, err, ok := seat.Poll()
	if err != nil || !ok {
		t.Fatalf("accepting: %v (settled %t)", err, ok)
	}
	r := m.region(size, verbs.AccessLocalWrite)
	local := must.Get(r.Slice(0, size))(t)
	before := m.rt.Stats().KeepAlives
	for range 4 * times {
		got := must.Get(s.PostRecv(local))(t)
		sent := must.Get(a.SendBytes(w.ended, []byte("I am here")))(t)
		w.pass(every / 4)
		if arrived, err, ok := got.Poll(); err != nil || !ok || arrived.Conn != b {
			t.Fatalf("a shared receive: %v (settled %t)", err, ok)
		}
		if _, err, ok := sent.Poll(); err != nil || !ok {
			t.Fatalf("sending: %v (settled %t)", err, ok)
		}
	}
	if got := m.rt.Stats().KeepAlives - before; got != 0 {
		t.Errorf("a peer that sends four messages in each interval was asked %d times in %d of them", got, times)
	}
	w.pass(times * every)
	if got := m.rt.Stats().KeepAlives - before; got < times-2 {
		t.Errorf("a silent peer was asked %d times in %d intervals", got, times)
	}
	a.Abort()
	b.Abort()
	l.end()
	w.pass(3 * flushBound)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
