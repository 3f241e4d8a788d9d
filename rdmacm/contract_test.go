package rdmacm

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// The contracts of librdmacm, by their numbers in reference/semantics.md. Each test has what the tests of
// the calls do not show already.

// Contract 15: each post is one work request and one doorbell. A READ needs a region. Receives go to the
// shared receive queue if there is one (TestSharedReceives). A buffer must be in its region.
func TestContract15EachPostIsOneRequest(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	here, there := r.memory(c, 64, (*ID).RegMsgs), r.memory(s, 64, (*ID).RegRead)
	write := r.memory(s, 64, (*ID).RegWrite)
	b, sgl := here.Bytes()[:8], []verbs.SGE{here.SGE(0, 4), here.SGE(8, 4)}
	const flags = verbs.SendSignaled
	for what, post := range map[string]func() error{
		"rdma_post_send":   func() error { return c.PostSend(1, b, here, flags) },
		"rdma_post_sendv":  func() error { return c.PostSendV(1, sgl, flags) },
		"rdma_post_write":  func() error { return c.PostWrite(1, b, here, flags, write.Addr(), write.RKey()) },
		"rdma_post_writev": func() error { return c.PostWriteV(1, sgl, flags, write.Addr(), write.RKey()) },
		"rdma_post_read":   func() error { return c.PostRead(1, b, here, flags, there.Addr(), there.RKey()) },
		"rdma_post_readv":  func() error { return c.PostReadV(1, sgl, flags, there.Addr(), there.RKey()) },
	} {
		must.Do(t, s.PostRecv(2, there.Bytes(), there))
		was := must.Get(c.Device())(t).r.Stats()
		must.Do(t, post())
		r.sent(c, 1)
		is := must.Get(c.Device())(t).r.Stats()
		if n, rings := is.WorkRequests-was.WorkRequests, is.Doorbells-was.Doorbells; n != 1 || rings != 1 {
			t.Errorf("%s: %d work requests with %d doorbells, want one with one", what, n, rings)
		}
		if what == "rdma_post_send" || what == "rdma_post_sendv" {
			r.received(s, 2)
		}
	}
	if err := c.PostRead(1, b, nil, flags, there.Addr(), there.RKey()); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a READ without a region returned %v, want EINVAL", err)
	}
	if err := c.PostSend(1, there.Bytes()[:8], here, flags); !errors.Is(err, ErrRange) {
		t.Errorf("a send from outside its region returned %v, want ErrRange", err)
	}
}

// Contract 16: GetSendComp and GetRecvComp wait, return one completion, and refuse a completion queue that is
// shared.
func TestContract16CompletionsAreWaitedFor(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	in := r.memory(s, 64, (*ID).RegMsgs)
	must.Do(t, s.PostRecv(1, in.Bytes()[:32], in))
	must.Do(t, s.PostRecv(2, in.Bytes()[32:], in))
	got := make(chan verbs.WC)
	go func() {
		wc, _ := s.GetRecvComp(r.ctx) // an error has another wr_id
		got <- wc
	}()
	for range 2 {
		must.Do(t, c.PostSend(3, []byte("x"), nil, verbs.SendSignaled))
		r.sent(c, 3)
	}
	r.ok(<-got, 1)
	r.received(s, 2)
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := s.GetRecvComp(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("GetRecvComp returned %v when its context had ended, want that error", err)
	}
}

// Contract 17: receives may be posted as soon as the queue pair exists; sends, READs and WRITEs when the
// connection is established.
func TestContract17ReceivesBeforeTheConnection(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(attr())
	c := r.dialer(at, attr())
	in := r.memory(c, 16, (*ID).RegMsgs)
	must.Do(t, c.PostRecv(1, in.Bytes(), in))
	for what, err := range map[string]error{
		"SEND":  c.PostSend(2, in.Bytes(), in, 0),
		"READ":  c.PostRead(2, in.Bytes(), in, 0, 0, 0),
		"WRITE": c.PostWrite(2, in.Bytes(), in, 0, 0, 0),
	} {
		if !errors.Is(err, ErrNotConnected) || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a %s before the connection returned %v, want ErrNotConnected and EINVAL", what, err)
		}
	}
	answer := make(chan error, 1)
	go func() { answer <- c.Connect(r.ctx, nil) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	must.Do(t, s.Accept(r.ctx, nil))
	must.Do(t, <-answer)
	must.Do(t, s.PostSend(3, []byte("first"), nil, verbs.SendSignaled))
	r.received(c, 1)
}

// Contract 18: private data has at most 56 bytes in port space TCP, and the peer finds zeros behind it. What
// an event brings stays valid after Ack. Destroy and MigrateID wait for Ack
// (TestIdentifiersReportToTheirChannel).
func TestContract18PrivateData(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(attr())
	param := func(n int) *verbs.ConnParam {
		return &verbs.ConnParam{PrivateData: bytes.Repeat([]byte{7}, n), RetryCount: 7, RNRRetryCount: 7}
	}
	const most = 56
	if err := r.dialer(at, attr()).Connect(r.ctx, param(most+1)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a request with %d bytes of private data returned %v, want EINVAL", most+1, err)
	}
	c, answer := r.dialer(at, attr()), make(chan error, 1)
	go func() { answer <- c.Connect(r.ctx, param(10)) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	data := s.Event().Conn.PrivateData
	must.Do(t, s.Accept(r.ctx, param(most)))
	must.Do(t, <-answer)
	if len(data) < 10 || !bytes.Equal(data[:10], param(10).PrivateData) || len(bytes.Trim(data[10:], "\x00")) > 0 {
		t.Errorf("the request brought %v, want ten bytes and zeros", data)
	}
	if data = c.Event().Conn.PrivateData; len(data) < most || !bytes.Equal(data[:most], param(most).PrivateData) {
		t.Errorf("the answer brought %v, want %d bytes", data, most)
	}
}

// Contract 19: retry counts have three bits: 7 is the most, and after an RNR NAK it means for ever. The minimum RNR
// NAK timer is code 12, 0.64 ms: both providers replace the kernel's code 0, 655 ms.
func TestContract19RetriesOfAConnection(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	const timer = 12
	for what, id := range map[string]*ID{"the dialer": c, "the listener": s} {
		a := must.Get(id.QP().Query())(t)
		if a.MinRNRTimer != timer || a.RNRRetry != 7 || a.RetryCnt != 7 {
			t.Errorf("%s has minimum RNR timer %d, %d retries and %d after RNR NAKs; want %d, 7 and 7", what, a.MinRNRTimer, a.RetryCnt, a.RNRRetry, timer)
		}
	}
	most := &verbs.ConnParam{RetryCount: 8, RNRRetryCount: 7}
	_, at := r.listener(attr())
	if err := r.dialer(at, attr()).Connect(r.ctx, most); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("8 retries: Connect returned %v, want EINVAL", err)
	}
}

// Contract 20: an endpoint is synchronous until MigrateID. Disconnect moves the queue pair to ERR, which
// flushes the posted requests. The other end gets DISCONNECTED.
func TestContract20DisconnectFlushes(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	if c.Channel() != nil {
		t.Error("an endpoint reports to a channel before MigrateID")
	}
	in := r.memory(c, 8, (*ID).RegMsgs)
	must.Do(t, c.PostRecv(1, in.Bytes(), in))
	seen := make(chan error, 1)
	go func() { seen <- s.Disconnect(r.ctx) }()
	must.Do(t, c.Disconnect(r.ctx))
	must.Do(t, <-seen)
	if wc := must.Get(c.GetRecvComp(r.ctx))(t); wc.WRID != 1 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("after Disconnect request %d completed with %v, want 1 with WR_FLUSH_ERR", wc.WRID, wc.Status)
	}
	if a := must.Get(c.QP().Query())(t); a.State != verbs.QPSErr {
		t.Errorf("after Disconnect the queue pair is in %v, want ERR", a.State)
	}
}

// Contract 21: PostUDSend uses the queue key of librdmacm. A queue pair with another key gets nothing.
func TestContract21DatagramsHaveTheKeyOfThePortSpace(t *testing.T) {
	r := newRig(t)
	c, s := r.datagrams(0), r.datagrams(1)
	must.Do(t, c.CreateQP(nil, attr()))
	must.Do(t, s.CreateQP(nil, attr()))
	in := r.memory(s, 128, (*ID).RegMsgs)
	ah := must.Get(must.Get(c.Device())(t).PD().CreateAH(ahTo(r)))(t)
	t.Cleanup(func() { must.Do(t, ah.Close()) })
	t.Cleanup(func() { must.Do(t, c.DestroyQP()) })
	must.Do(t, s.PostRecv(1, in.Bytes(), in))
	other := SendWR{WRID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, AH: ah, RemoteQPN: s.QP().Num(), RemoteQKey: verbs.UDPQKey + 1}
	_, err := c.PostSendList([]SendWR{other})
	must.Do(t, err)
	r.sent(c, 2)
	must.Do(t, c.PostUDSend(3, []byte("x"), nil, verbs.SendSignaled, ah, s.QP().Num()))
	r.sent(c, 3)
	if wc := r.received(s, 1); wc.ByteLen != verbs.GRHLen+1 {
		t.Errorf("the datagram with another key has arrived: %d bytes", wc.ByteLen)
	}
}
