package runtime

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a request whose peer gave up costs the one who accepts nothing: he gets the
// next. It is forgotten when the device tells, which one of the kernel does not.
func TestRequestsThatWereGivenUpArePassedOver(t *testing.T) { onBeds(t, passesOver) }

func passesOver(t *testing.T, d bed) {
	server, client := d.open(t, Config{}, 1), d.open(t, Config{}, 0)
	ln, err := server.ListenOptions(":0", Options{Raw: true}) // a managed one connects before anybody accepts
	if err != nil {
		t.Fatal(err)
	}
	for given := range 3 { // those given up before are still there, on a device
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := client.DialOptions(ctx, ln.Addr().String(), Options{Raw: true})
			failed <- err
		}()
		for asked := testContext(t); waiting(t, ln) <= given; {
			if asked.Err() != nil {
				t.Fatal("the request did not come")
			}
		}
		cancel()
		mistake(t, "dialing", <-failed, context.Canceled)
		// Until its identifier is closed the request can still be accepted.
		for left := testContext(t); dialing(client) > 0; {
			if left.Err() != nil {
				t.Fatal("the request was not given up")
			}
		}
		if onDevice {
			continue
		}
		// The other beds tell, and the request is forgotten before anybody accepts:
		// Accept would pass it over, but until then it takes the place of one.
		for left := testContext(t); waiting(t, ln) > 0 || leavingIDs(t, ln.sh) > 0; {
			if left.Err() != nil {
				t.Fatalf("%d requests that were given up are kept, %d identifiers are not closed", waiting(t, ln), leavingIDs(t, ln.sh))
			}
		}
		break // one is forgotten like many
	}
	dialed := make(chan error, 1)
	go func() {
		c, err := client.DialOptions(testContext(t), ln.Addr().String(), Options{Raw: true})
		if err == nil {
			_, err = c.SendBytes(testContext(t), []byte("honest"))
		}
		dialed <- err
	}()
	c, err := ln.Accept(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	buf, err := server.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.PostRecv(buf.Slice())
	if r := done(t, f, err); string(buf.Bytes()[:r.Bytes]) != "honest" {
		t.Fatalf("who was accepted said %q", buf.Bytes()[:r.Bytes])
	}
	if err := buf.Release(); err != nil {
		t.Error(err)
	}
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

// waiting is how many requests nobody has accepted.
func waiting(t *testing.T, ln *Listener) (n int) {
	t.Helper()
	if err := ln.sh.r.Do(testContext(t), func() { n = len(ln.backlog.unfinished) }); err != nil {
		t.Fatal(err)
	}
	return n
}

// leavingIDs is how many identifiers the device has not let go yet; of a batch that is being
// dismissed, one.
func leavingIDs(t *testing.T, s *shard) (n int) {
	t.Helper()
	if err := s.r.Do(testContext(t), func() {
		n = len(s.closing) + len(s.dismissed)
		if s.saying {
			n++
		}
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// dialing is how many connections the runtime has, those on their way too.
func dialing(rt *Runtime) int {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return len(rt.live)
}

// refusable is an identifier of a request that nobody accepts.
type refusable struct {
	verbs.CMID
	refused string // off the turn, before closed is set
	closed  atomic.Bool
}

func (id *refusable) PeerAddr() netip.AddrPort { return netip.AddrPort{} }

func (id *refusable) Reject(private []byte) error {
	_, id.refused, _ = proto.ParseReject(private)
	return nil
}

func (id *refusable) Close() error {
	id.closed.Store(true)
	return nil
}

// Rule: a raw listener whose program accepts nobody keeps the newest requests, so many
// and no more; the others are refused with a reason.
func TestRequestsThatNobodyAcceptsAreBounded(t *testing.T) {
	ln, err := mustOpen(t, Config{}).ListenOptions(":0", Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	hi := proto.EncodeHello(proto.Hello{Raw: true})
	var ids [DefaultBacklog + 3]refusable
	if err := ln.sh.r.Do(testContext(t), func() {
		for i := range ids {
			ln.onCM(&verbs.CMEvent{Type: verbs.CMConnectRequest, ID: &ids[i], ListenID: ln.id, Conn: verbs.ConnParam{PrivateData: hi}})
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n := waiting(t, ln); n != DefaultBacklog {
		t.Errorf("%d requests are kept, want %d", n, DefaultBacklog)
	}
	for left := testContext(t); !ids[0].closed.Load() || !ids[1].closed.Load() || !ids[2].closed.Load(); {
		if left.Err() != nil {
			t.Fatal("who was refused was not closed")
		}
	}
	for i := range ids {
		if old, closed := i < len(ids)-DefaultBacklog, ids[i].closed.Load(); closed != old || (ids[i].refused != "") != old {
			t.Errorf("request %d: closed %t, refused with %q; want it of the %d oldest alone", i, closed, ids[i].refused, len(ids)-DefaultBacklog)
		}
	}
}

// Rule: while requests that their peers gave up before they have begun wait for the device to
// let them go, no more events are taken, as with those that are refused.
func TestGivenUpRequestsAreBounded(t *testing.T) {
	ln, err := mustOpen(t, Config{NoCallerDriving: true}).ListenOptions(":0", Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	hi := proto.EncodeHello(proto.Hello{Raw: true})
	const many = 2000
	ids := make([]refusable, many)
	n, closing := 0, 0
	if err := ln.sh.r.Do(testContext(t), func() {
		for ; n < many && !ln.sh.crowded(); n++ {
			id := &ids[n]
			ln.onCM(&verbs.CMEvent{Type: verbs.CMConnectRequest, ID: id, ListenID: ln.id, Conn: verbs.ConnParam{PrivateData: hi}})
			ln.sh.targets[id].onCM(&verbs.CMEvent{Type: verbs.CMRejected, ID: id})
		}
		closing = len(ln.sh.closing)
	}); err != nil {
		t.Fatal(err)
	}
	if n == many {
		t.Errorf("%d requests were given up, %d are being closed, and events are still taken", n, closing)
	}
}
