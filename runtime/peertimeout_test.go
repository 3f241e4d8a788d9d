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

// Rule: if a time is configured, the bound is the larger of this time and 4 × 4.096 µs × 2^timeout ×
// (retries + 1). For the timeout code 0, with which the device never gives up, the bound is the
// configured time. If no time is configured, there is no bound.
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
			t.Errorf("boundOf(timeout code %d, %d retries, configured %v) returned %v, want %v", c.timeout, c.retries, c.configured, got, c.want)
		}
	}
}

// Rule: if an option of a connection is not set, the connection has the option of its runtime. If
// neither the connection nor the runtime sets KeepAlive, KeepAlive has the value of PeerTimeout. A
// negative KeepAlive disables the probes.
func TestPeerTimeoutOptions(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name               string
		runtime, own       Options // of the runtime and of the connection
		timeout, keepAlive time.Duration
	}{
		{"no options", Options{}, Options{}, DefaultPeerTimeout, DefaultPeerTimeout},
		{"PeerTimeout of the runtime", Options{PeerTimeout: 2 * s}, Options{}, 2 * s, 2 * s},
		{"PeerTimeout of both", Options{PeerTimeout: 2 * s}, Options{PeerTimeout: 3 * s}, 3 * s, 3 * s},
		{"PeerTimeout of both, KeepAlive of the runtime", Options{PeerTimeout: 2 * s, KeepAlive: s}, Options{PeerTimeout: 3 * s}, 3 * s, s},
		{"negative KeepAlive of the runtime", Options{KeepAlive: -1}, Options{}, DefaultPeerTimeout, 0},
		{"negative KeepAlive of the runtime, KeepAlive of the connection", Options{KeepAlive: -1}, Options{KeepAlive: s}, DefaultPeerTimeout, s},
		{"negative PeerTimeout of the runtime", Options{PeerTimeout: -1}, Options{}, -1, 0},
		{"negative PeerTimeout of the runtime, KeepAlive of the connection", Options{PeerTimeout: -1}, Options{KeepAlive: s}, -1, s},
	} {
		cfg := must.Get(Config{Conn: c.runtime}.validate())(t)
		o := must.Get((&Runtime{cfg: cfg}).inherit(c.own))(t)
		if o.PeerTimeout != c.timeout || o.keepAlive() != c.keepAlive {
			t.Errorf("%s: PeerTimeout is %v and keepAlive() is %v, want %v and %v", c.name, o.PeerTimeout, o.keepAlive(), c.timeout, c.keepAlive)
		}
	}
	for _, o := range []Options{{PeerTimeout: 1}, {KeepAlive: minPeerTimeout - 1}} {
		if _, err := (Config{Conn: o}).validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("validate with PeerTimeout %v and KeepAlive %v returned %v, want %v", o.PeerTimeout, o.KeepAlive, err, ErrConfig)
		}
	}
	// By default a stepped runtime sends no probes. With probes a simulation would always have a next
	// event, and never come to rest.
	if cfg, err := (Config{stepped: true}).validate(); err != nil || cfg.Conn.keepAlive() != 0 {
		t.Errorf("for a stepped runtime keepAlive() is %v, validate returned %v; want 0 and nil", cfg.Conn.keepAlive(), err)
	}
}

// Rule: each end computes an ACK timeout code from its own options. The end's queue pair has the larger
// of this code and the AckDelay of its device. It also has the retry count of the end's own options.
// Both ends have the type of service of the dialing end, if the connection manager carries it.
func TestEachEndSetsItsOwnTimeout(t *testing.T) {
	type end struct {
		own     Options
		code    uint8 // the ACK timeout code that the end computes from own
		retries uint8 // the retry count that own asks for
	}
	long := end{Options{PeerTimeout: time.Hour, TOS: 0x68}, maxAckTimeout, 7}
	short := end{Options{PeerTimeout: time.Second}, minAckTimeout, 7}
	own := end{Options{AckTimeout: 200 * time.Millisecond, RetryCount: 2, TOS: 0xb8}, 16, 2} // code 16 stands for 268 ms, and code 15 for 134 ms
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
					t.Errorf("with %+v the queue pair has ACK timeout code %d and %d retries, want %d and %d", e.own, attr.Timeout, attr.RetryCnt, want, e.retries)
				}
				want := ends[0].own.TOS
				_, kernel := c.rt.dev.(verbs.Addresser)
				if kernel && want == 0 || c.rt.iWARP && c == l { // the request has none; MPA carries none
					want = e.own.TOS
				}
				if attr.AH.TrafficClass != want && attr.AH.DGID != (verbs.GID{}) { // a path without a GRH has none
					t.Errorf("the queue pair of end %d (0: dialing, 1: accepting) has type of service 0x%02x, want 0x%02x", i, attr.AH.TrafficClass, want)
				}
			}
		}
	})
}

// Rule: if AckTimeout is negative or longer than longestAckTimeout, or RetryCount is larger than 7, the
// options are refused with ErrConfig. Each positive AckTimeout up to longestAckTimeout has a code from 1
// to 31.
func TestWaitsThatNoDeviceHas(t *testing.T) {
	for _, o := range []Options{{AckTimeout: -1}, {AckTimeout: longestAckTimeout + 1}, {RetryCount: 8}} {
		if _, err := (Config{Conn: o}).validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("validate with AckTimeout %v and RetryCount %d returned %v, want %v", o.AckTimeout, o.RetryCount, err, ErrConfig)
		}
	}
	o := must.Get(Config{Conn: Options{AckTimeout: longestAckTimeout}}.validate())(t).Conn
	if code := o.ackTimeout(); code != 31 {
		t.Errorf("AckTimeout %v has code %d, want 31", o.AckTimeout, code)
	}
	o.AckTimeout = 1
	if code := o.ackTimeout(); code != 1 {
		t.Errorf("AckTimeout %v has code %d, want 1", o.AckTimeout, code)
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
			t.Errorf("the error text is %q, want a text that contains %q", e, part)
		}
	}
	if !errors.Is(e, ErrPeerTimeout) {
		t.Errorf("the error %v does not match ErrPeerTimeout", e)
	}
}

// Rule: if a time is configured, ackTimeoutFor returns the largest code from minAckTimeout to
// maxAckTimeout for which boundOf(code) is not longer than this time. If there is no such
// code, ackTimeoutFor returns minAckTimeout. If no time is configured, it returns maxAckTimeout.
func TestProposedAckTimeoutFitsTheBound(t *testing.T) {
	for _, x := range []struct {
		configured time.Duration
		want       uint8
	}{
		{0, 18}, {-1, 18}, {time.Millisecond, 13}, {5 * time.Second, 15}, {10 * time.Second, 16}, {time.Minute, 18}, {time.Hour, 18},
	} {
		code := ackTimeoutFor(x.configured, DefaultRetryCount)
		if code != x.want {
			t.Errorf("ackTimeoutFor(%v) returned code %d, want %d", x.configured, code, x.want)
		}
		if x.configured >= 5*time.Second && boundOf(code, DefaultRetryCount, x.configured) != x.configured {
			t.Errorf("the bound for code %d is %v, want the configured time %v", code, boundOf(code, DefaultRetryCount, x.configured), x.configured)
		}
	}
}

// Rule: a connection without a connection manager sends probes only if Options.KeepAlive is set, because
// the peer's queue pair may refuse a probe. A UC connection has neither probes nor a bound, because its
// peer acknowledges nothing.
func TestPlainConnectionsAskOnlyWhenTold(t *testing.T) {
	notOnDevice(t, "the test runs in virtual time")
	w := newSimWorld(1, 0)
	t.Cleanup(w.finish)
	for _, c := range []struct {
		name string
		o    PlainOptions
		want time.Duration
	}{
		{"RC", PlainOptions{}, 0},
		{"RC with KeepAlive", PlainOptions{Options: Options{KeepAlive: time.Second}}, time.Second},
		{"UC with KeepAlive", PlainOptions{Options: Options{KeepAlive: time.Second}, Type: verbs.QPTUC}, 0},
	} {
		p, err := w.nodes[0].rt.Prepare(c.o)
		if err != nil {
			t.Fatalf("Prepare of %s: %v", c.name, err)
		}
		if got := p.c.opts.keepAlive(); got != c.want {
			t.Errorf("%s: keepAlive() is %v, want %v", c.name, got, c.want)
		}
		if err := p.c.watchPeer(); err != nil { // for UC, watchPeer must not call SetPeerLimit, which refuses UC queues
			t.Errorf("%s: watchPeer returned %v, want nil", c.name, err)
		}
		p.c.Abort()
		w.pass(2 * flushBound)
	}
}

// Rule: if a message arrives in a shared receive, its sender is alive, and the receiving end does not
// probe the sender within the next KeepAlive. If no message arrives, the receiving end sends probes.
func TestASharedReceiveIsASignOfThePeer(t *testing.T) {
	notOnDevice(t, "the test runs in virtual time")
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
		t.Fatalf("dialing: %v (settled: %t), want no error and true", err, ok)
	}
	b, err, ok := seat.Poll()
	if err != nil || !ok {
		t.Fatalf("accepting: %v (settled: %t), want no error and true", err, ok)
	}
	r := m.region(size, verbs.AccessLocalWrite)
	local := must.Get(r.Slice(0, size))(t)
	before := m.rt.Stats().KeepAlives
	for range 4 * times {
		got := must.Get(s.PostRecv(local))(t)
		sent := must.Get(a.SendBytes(w.ended, []byte("I am here")))(t)
		w.pass(every / 4)
		if arrived, err, ok := got.Poll(); err != nil || !ok || arrived.Conn != b {
			t.Fatalf("the shared receive ended: %t, on connection %p, error %v; want true, %p, no error", ok, arrived.Conn, err, b)
		}
		if _, err, ok := sent.Poll(); err != nil || !ok {
			t.Fatalf("the SEND ended: %t, error %v; want true, no error", ok, err)
		}
	}
	if got := m.rt.Stats().KeepAlives - before; got != 0 {
		t.Errorf("the receiving end sent %d probes in %d intervals to a peer that sent four messages in each interval, want 0", got, times)
	}
	w.pass(times * every)
	if got := m.rt.Stats().KeepAlives - before; got < times-2 {
		t.Errorf("the receiving end sent %d probes in %d intervals to a silent peer, want %d or more", got, times, times-2)
	}
	a.Abort()
	b.Abort()
	l.end()
	w.pass(3 * flushBound)
	if err := s.Close(); err != nil {
		t.Errorf("closing the SharedRecv: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing the region: %v", err)
	}
}
