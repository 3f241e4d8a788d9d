package runtime

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: if a peer withdraws its connection request, the listener gets an event and forgets the
// request.
func TestRequestsOfPeersThatGaveUpAreForgotten(t *testing.T) {
	notOnDevice(t, "the kernel reports no event of a request until the program has accepted the request (Linux 6.12 drivers/infiniband/core/ucma.c, ucma_event_handler)")
	server := mustOpen(t, Config{Device: second.name})
	// ConnectTimeout is so long that only the context ends the attempt.
	client := mustOpen(t, Config{Device: first.name, ConnectTimeout: time.Hour})
	// The listener is raw, because a managed listener completes the handshake before Accept.
	ln, err := server.ListenOptions(":0", Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	pending := func() (n int) {
		if err := ln.sh.r.Do(testContext(t), func() { n = len(ln.backlog.unfinished) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	until := func(n int) {
		t.Helper()
		for ctx := testContext(t); pending() != n; {
			if ctx.Err() != nil {
				t.Fatalf("the listener has %d requests, want %d", pending(), n)
			}
		}
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := client.DialOptions(ctx, ln.Addr().String(), Options{Raw: true})
			failed <- err
		}()
		until(1)
		cancel()
		mistake(t, "dialing", <-failed, context.Canceled, ln.Addr().String())
		until(0)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if c, err := ln.Accept(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Accept after all requests were withdrawn: %v, %v; want %v", c, err, context.DeadlineExceeded)
	}
}

// Rule: if a future of AcceptAsync was discarded, the next connection goes to a future that was
// not discarded.
func TestDiscardedSeatsAreSkipped(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name, Reactors: 2}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	var seats []futures.Future[*Conn]
	for range 4 {
		f := must.Get(ln.AcceptAsync())(t)
		seats = append(seats, f)
	}
	for _, f := range seats[:3] {
		f.Discard()
	}
	c := must.Get(client.Dial(testContext(t), ln.Addr().String()))(t)
	s := must.Get(seats[3].Await(testContext(t)))(t)
	f, err := s.SendBytes(testContext(t), []byte("yours"))
	done(t, f, err)
	m, err := c.RecvWait(testContext(t))
	if err != nil || string(m.Data) != "yours" {
		t.Fatalf("the client received %q, %v; want \"yours\"", m.Data, err)
	}
	release(t, m)
}

// Rule: if a request fails, Accept skips it and returns the next connection.
func TestAcceptPassesOverFailedRequests(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen("0.0.0.0:0"))(t)
	got := make(chan error, 1)
	go func() {
		_, err := ln.Accept(testContext(t))
		got <- err
	}()
	if !onDevice { // there nobody is at this address, and Dial waits for 15 s
		// The listener has the address 0.0.0.0, so the request of this Dial reaches the listener, but
		// through another device. The listener refuses such a request.
		if _, err := client.Dial(testContext(t), "127.0.0.3:"+portOf(ln)); err == nil {
			t.Fatal("Dial succeeded through a device other than the listener's, want an error")
		}
	}
	_, err := client.DialOptions(testContext(t), second.at(portOf(ln)), Options{Raw: true})
	if e, ok := errors.AsType[*RejectError](err); !ok || e.Code != proto.RejectMode {
		t.Fatalf("a raw Dial of a managed listener returned %v, want a *RejectError with the code RejectMode", err)
	}
	if _, err := client.Dial(testContext(t), second.at(portOf(ln))); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("Accept after a request that failed: %v, want no error", err)
	}
}

// Rule: a callback of AcceptAsync's future may use the connection, and may wait for operations.
func TestCallbackOfAcceptMaySend(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	res := make(chan error, 1)
	ctx := testContext(t)
	seat.Then(func(c *Conn, err error) {
		if err == nil {
			var f Future
			if f, err = c.SendBytes(ctx, []byte("welcome")); err == nil {
				_, err = f.Await(ctx)
			}
		}
		res <- err
	})
	if _, err := client.Dial(ctx, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := <-res; err != nil {
		t.Errorf("accepting, or sending in the callback: %v, want no error", err)
	}
}

// Rule: if a connection attempt takes too long, the error names the peer, the time limit and the
// option ConnectTimeout, which sets the limit.
func TestConnectTimeoutSaysItsBound(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name, ConnectTimeout: 50 * time.Millisecond})
	ln, err := server.ListenOptions(":0", Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	// A raw listener answers a request only if an Accept waits. Here none waits, so Dial gets no answer.
	_, err = client.DialOptions(testContext(t), ln.Addr().String(), Options{Raw: true})
	mistake(t, "dialing", err, ErrConnectTimeout, ln.Addr().String(), "50ms", "ConnectTimeout")
}

func portOf(ln *Listener) string {
	return strconv.Itoa(int(ln.Addr().Port()))
}

// Rule: if the context of Dial has ended, Dial returns the context's error before it does anything
// else, even before it parses the address. (If Dial checked the context only while it waits, the
// peer's answer could come first.)
func TestDialWithAnEndedContextBeginsNothing(t *testing.T) {
	client := mustOpen(t, Config{})
	_, err := client.Dial(endedContext(), "no address")
	mistake(t, "dialing", err, context.Canceled, "no address")
}

// Rule: if an event is neither a connection request nor the removal of the device, a listener ignores
// the event.
func TestListenerIgnoresOtherEvents(t *testing.T) {
	ln := must.Get(mustOpen(t, Config{}).Listen(":0"))(t)
	if err := ln.sh.r.Do(testContext(t), func() { ln.onCM(&verbs.CMEvent{Type: verbs.CMAddrChange}) }); err != nil {
		t.Fatal(err)
	}
	if n := waiting(t, ln); n != 0 {
		t.Errorf("after an ADDR_CHANGE event the listener has %d requests, want none", n)
	}
}

// Rule: if a peer has withdrawn its request, Accept skips the request and returns the next
// connection. If the device reports the withdrawal (a kernel device does not), the listener forgets
// the request at once.
func TestRequestsThatWereGivenUpArePassedOver(t *testing.T) { onBeds(t, passesOver) }

func passesOver(t *testing.T, d bed) {
	server, client := d.open(t, Config{}, 1), d.open(t, Config{}, 0)
	ln, err := server.ListenOptions(":0", Options{Raw: true}) // raw: a managed listener completes the handshake before Accept
	if err != nil {
		t.Fatal(err)
	}
	for given := range 3 { // a listener on a kernel device still has the withdrawn requests of earlier rounds
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := client.DialOptions(ctx, ln.Addr().String(), Options{Raw: true})
			failed <- err
		}()
		for asked := testContext(t); waiting(t, ln) <= given; {
			if asked.Err() != nil {
				t.Fatalf("the request did not reach the listener within %v", patience())
			}
		}
		cancel()
		mistake(t, "dialing", <-failed, context.Canceled)
		// Until the client has closed its identifier, the listener could still accept the request.
		for left := testContext(t); dialing(client) > 0; {
			if left.Err() != nil {
				t.Fatalf("the client has not closed its connection attempt within %v", patience())
			}
		}
		if onDevice {
			continue
		}
		// All other devices report the withdrawal. The listener then forgets the request at once, so
		// that the request no longer occupies a place in the backlog.
		for left := testContext(t); waiting(t, ln) > 0 || leavingIDs(t, ln.sh) > 0; {
			if left.Err() != nil {
				t.Fatalf("the listener still has %d withdrawn requests, and %d identifiers to close, want none", waiting(t, ln), leavingIDs(t, ln.sh))
			}
		}
		break // one withdrawn request is enough
	}
	dialed := make(chan error, 1)
	go func() {
		c, err := client.DialOptions(testContext(t), ln.Addr().String(), Options{Raw: true})
		if err == nil {
			_, err = c.SendBytes(testContext(t), []byte("honest"))
		}
		dialed <- err
	}()
	c := must.Get(ln.Accept(testContext(t)))(t)
	buf := must.Get(server.Alloc(64))(t)
	f, err := c.PostRecv(buf.Slice())
	if r := done(t, f, err); string(buf.Bytes()[:r.Bytes]) != "honest" {
		t.Fatalf("the accepted connection received %q, want \"honest\"", buf.Bytes()[:r.Bytes])
	}
	if err := buf.Release(); err != nil {
		t.Errorf("releasing the buffer: %v", err)
	}
	if err := <-dialed; err != nil {
		t.Errorf("dialing and sending after the withdrawn requests: %v, want no error", err)
	}
}

// waiting returns how many requests of ln wait or are in a handshake.
func waiting(t *testing.T, ln *Listener) (n int) {
	t.Helper()
	if err := ln.sh.r.Do(testContext(t), func() { n = len(ln.backlog.unfinished) }); err != nil {
		t.Fatal(err)
	}
	return n
}

// leavingIDs returns how many identifiers the shard (a reactor with its event channel) still has to
// close. The batch of identifiers that is being rejected counts as one.
func leavingIDs(t *testing.T, s *shard) (n int) {
	t.Helper()
	if err := s.r.Do(testContext(t), func() {
		n = len(s.closing) + len(s.queued)
		if s.rejecting {
			n++
		}
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// dialing returns how many connections rt has, including unfinished connection attempts.
func dialing(rt *Runtime) int {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return len(rt.live)
}

// refusable is the identifier of a request. It records the calls of Reject and Close.
type refusable struct {
	verbs.CMID
	ln      *Listener   // the listener that gets the request
	refused string      // the text of the rejection; written by Reject
	closed  atomic.Bool // set by Close, which is called after Reject; publishes refused
}

func (id *refusable) PeerAddr() netip.AddrPort { return netip.AddrPort{} }

func (id *refusable) Device() string { return id.ln.rt.dev.Device().Name }

func (id *refusable) Reject(private []byte) error {
	r, _ := proto.ParseReject(private)
	id.refused = r.Text
	return nil
}

func (id *refusable) Close() error {
	id.closed.Store(true)
	return nil
}

// Rule: if no Accept waits, a raw listener keeps only the newest requests, as many as its backlog
// permits. It refuses the older requests with a reason.
func TestRequestsThatNobodyAcceptsAreBounded(t *testing.T) {
	ln := must.Get(mustOpen(t, Config{}).ListenOptions(":0", Options{Raw: true}))(t)
	hi := proto.EncodeHello(proto.Hello{Raw: true})
	var ids [DefaultBacklog + 3]refusable
	if err := ln.sh.r.Do(testContext(t), func() {
		for i := range ids {
			ids[i].ln = ln
			ln.onCM(&verbs.CMEvent{Type: verbs.CMConnectRequest, ID: &ids[i], ListenID: ln.listening.ids[ln.addr.Addr()], Conn: verbs.ConnParam{PrivateData: hi}})
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n := waiting(t, ln); n != DefaultBacklog {
		t.Errorf("the listener keeps %d requests, want %d", n, DefaultBacklog)
	}
	for left := testContext(t); !ids[0].closed.Load() || !ids[1].closed.Load() || !ids[2].closed.Load(); {
		if left.Err() != nil {
			t.Fatalf("the identifiers of the three oldest requests were not closed within %v", patience())
		}
	}
	for i := range ids {
		if old, closed := i < len(ids)-DefaultBacklog, ids[i].closed.Load(); closed != old || (ids[i].refused != "") != old {
			t.Errorf("request %d: closed=%t, refused with the reason %q; want only the %d oldest requests refused and closed", i, closed, ids[i].refused, len(ids)-DefaultBacklog)
		}
	}
}

// Rule: if the device is slow to close the identifiers of withdrawn requests, the identifiers wait in
// the queue of rejected requests. When the queue has maxRejections entries, the shard (a reactor with
// its event channel) takes no more connection events.
func TestGivenUpRequestsAreBounded(t *testing.T) {
	ln := must.Get(mustOpen(t, Config{NoCallerDriving: true}).ListenOptions(":0", Options{Raw: true}))(t)
	hi := proto.EncodeHello(proto.Hello{Raw: true})
	const many = 2000
	ids := make([]refusable, many)
	n, closing := 0, 0
	if err := ln.sh.r.Do(testContext(t), func() {
		for ; n < many && !ln.sh.tooManyRejections(); n++ {
			id := &ids[n]
			id.ln = ln
			ln.onCM(&verbs.CMEvent{Type: verbs.CMConnectRequest, ID: id, ListenID: ln.listening.ids[ln.addr.Addr()], Conn: verbs.ConnParam{PrivateData: hi}})
			ln.sh.targets[id].onCM(&verbs.CMEvent{Type: verbs.CMRejected, ID: id})
		}
		closing = len(ln.sh.closing)
	}); err != nil {
		t.Fatal(err)
	}
	if n == many {
		t.Errorf("%d requests were withdrawn, and the shard still takes events (%d identifiers are being closed); want it to stop earlier", n, closing)
	}
}

// Rule: between two passes the reactor handles at most eventsPerPass connection events. If there are
// more events, it handles them after later passes.
func TestEventsOfOneTurnAreBounded(t *testing.T) {
	notOnDevice(t, "the test runs in virtual time")
	const requests = 100
	link := fabric.New(fabric.Config{Virtual: true, Seed: 1})
	p := must.Get(soft.New(soft.Config{Fabric: link, Devices: []soft.DeviceConfig{{Name: "soft0", Addr: netip.MustParseAddr("10.0.0.1")}}}))(t)
	rt := mustOpen(t, Config{Provider: p, Device: "soft0", stepped: true, now: func() time.Time { return time.Unix(0, int64(link.Now())) }})
	ln := must.Get(rt.Listen(":0"))(t)
	a := newAsker(t, link, "10.0.0.9", ln.Addr(), []byte("no hello"))
	sh, handled := rt.shards[0], 0
	sh.cmEvents.next = func() bool {
		ok := sh.takeCM()
		if ok {
			handled++
		}
		return ok
	}
	a.ask(requests)
	for link.Step() {
	}
	steps, all := 0, 0
	for ; all < requests; steps++ {
		if sh.r.Step(); handled == 0 {
			t.Fatalf("after %d of %d requests a Step of the reactor handled no request, want all requests handled", all, requests)
		}
		if handled > eventsPerPass {
			t.Errorf("Step %d of the reactor handled %d events, want at most %d", steps, handled, eventsPerPass)
		}
		all, handled = all+handled, 0
	}
	ln.end()
	for len(rt.listeners) > 0 {
		sh.r.Step()
	}
	if all != requests || steps < requests/eventsPerPass {
		t.Errorf("%d requests were handled in %d Steps, want %d in at least %d", all, steps, requests, requests/eventsPerPass)
	}
}

// Rule: if events are left for later passes, the reactor handles them even if the source of the
// events does not notify it again.
func TestEventsThatATurnLeavesAreHandled(t *testing.T) {
	sh := mustOpen(t, Config{}).shards[0]
	const many = 10 * eventsPerPass
	left, done := many, make(chan struct{})
	if err := sh.r.Do(testContext(t), func() {
		e := &events{r: sh.r, next: func() bool {
			if left--; left == 0 {
				close(done)
			}
			return left > 0
		}}
		e.take()
		if left != many-eventsPerPass {
			t.Errorf("the first call of take handled %d of %d events, want %d", many-left, many, eventsPerPass)
		}
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-testContext(t).Done():
		t.Fatalf("the remaining events were not handled within %v", patience())
	}
}

// keptID is the identifier of a request to reject. The method Close closes the channel id.closed.
type keptID struct {
	verbs.CMID
	closed chan struct{}
}

func (id *keptID) Close() error {
	close(id.closed)
	return nil
}

// Rule: if the device is slow to reject requests, at most maxRejections identifiers wait to be
// rejected, and the shard takes no more connection events. When the device answers, all identifiers
// are closed, and the shard takes events again.
func TestDismissalsAreBounded(t *testing.T) {
	sh := mustOpen(t, Config{NoCallerDriving: true}).shards[0]
	answer := make(chan struct{})
	var ids []*keptID
	if err := sh.r.Do(testContext(t), func() {
		for !sh.tooManyRejections() {
			id := &keptID{closed: make(chan struct{})}
			ids = append(ids, id)
			sh.rejectLater(id, func(verbs.CMID) { <-answer })
			if len(ids) > rejectionBatch+maxRejections {
				t.Fatalf("%d identifiers wait to be rejected, and the shard still takes events; want at most %d", len(sh.queued), maxRejections)
			}
		}
		if len(sh.queued) != maxRejections || !sh.rejecting || sh.takeCM() {
			t.Errorf("%d identifiers wait to be rejected, rejecting=%t; want %d identifiers, rejecting=true, and takeCM to return false", len(sh.queued), sh.rejecting, maxRejections)
		}
	}); err != nil {
		t.Fatal(err)
	}
	close(answer)
	for i, id := range ids {
		select {
		case <-id.closed:
		case <-testContext(t).Done():
			t.Fatalf("identifier %d of %d was not closed within %v", i, len(ids), patience())
		}
	}
	for gone := testContext(t); ; {
		var left int
		var stuck bool
		if err := sh.r.Do(gone, func() { left, stuck = len(sh.queued), sh.stuck || sh.rejecting }); err != nil {
			t.Fatalf("the shard has not finished its rejections: %d are queued (want 0), stuck or rejecting=%t (want false): %v", left, stuck, err)
		}
		if left == 0 && !stuck {
			return
		}
	}
}
