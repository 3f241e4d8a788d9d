package rdmacm

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule (rdma_post_readv(3), rdma_post_writev): READs and WRITEs move the bytes of one buffer and of a
// scatter-gather list, and the word of the caller comes back with each.
func TestReadsAndWrites(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	here := r.memory(c, 64, (*ID).RegMsgs)
	read, write := r.memory(s, 16, (*ID).RegRead), r.memory(s, 16, (*ID).RegWrite)
	copy(read.Bytes(), "0123456789abcdef")
	must.Do(t, c.PostRead(7, here.Bytes()[:4], here, verbs.SendSignaled, read.Addr(), read.RKey()))
	if wc := r.sent(c, 7); wc.Opcode != verbs.WCRDMARead || wc.ByteLen != 4 || string(here.Bytes()[:4]) != "0123" {
		t.Errorf("a READ brought %q with opcode %v and %d bytes", here.Bytes()[:4], wc.Opcode, wc.ByteLen)
	}
	must.Do(t, c.PostReadV(8, []verbs.SGE{here.SGE(10, 2), here.SGE(20, 3)}, verbs.SendSignaled, read.Addr()+4, read.RKey()))
	r.sent(c, 8)
	if got := string(here.Bytes()[10:12]) + string(here.Bytes()[20:23]); got != "45678" {
		t.Errorf("a READ to two buffers brought %q, want 45678", got)
	}
	copy(here.Bytes(), "WRITTEN!")
	must.Do(t, c.PostWrite(9, here.Bytes()[:4], here, verbs.SendSignaled, write.Addr(), write.RKey()))
	r.sent(c, 9)
	must.Do(t, c.PostWriteV(10, []verbs.SGE{here.SGE(4, 2), here.SGE(6, 2)}, verbs.SendSignaled|verbs.SendFence, write.Addr()+4, write.RKey()))
	r.sent(c, 10)
	if string(write.Bytes()[:8]) != "WRITTEN!" {
		t.Errorf("two WRITEs wrote %q", write.Bytes()[:8])
	}
}

// Rule (rdma_post_send(3)): memory that is not registered is copied when the call returns, inline or
// not; so is registered memory with INLINE, also of a list.
func TestMemoryThatIsCopied(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	in, out := r.memory(s, 8192, (*ID).RegMsgs), r.memory(c, 64, (*ID).RegMsgs)
	for what, post := range map[string]func(b []byte) error{
		"inline by its size": func(b []byte) error { return c.PostSend(1, b[:8], nil, verbs.SendSignaled) },
		"inline by its flag": func(b []byte) error { return c.PostSend(1, b[:8], nil, verbs.SendSignaled|verbs.SendInline) },
		"too long for inline": func(b []byte) error {
			return c.PostSend(1, b, nil, verbs.SendSignaled)
		},
		"registered, inline, of a list": func(b []byte) error {
			copy(out.Bytes(), b[:8])
			err := c.PostSendV(1, []verbs.SGE{out.SGE(0, 5), out.SGE(5, 3)}, verbs.SendSignaled|verbs.SendInline)
			clear(out.Bytes())
			return err
		},
	} {
		b := make([]byte, 5000)
		copy(b, "original")
		must.Do(t, s.PostRecv(2, in.Bytes(), in))
		must.Do(t, post(b))
		clear(b)
		r.sent(c, 1)
		if r.received(s, 2); string(in.Bytes()[:8]) != "original" {
			t.Errorf("%s: received %q, want what was there when the call returned", what, in.Bytes()[:8])
		}
	}
}

// Rule (ibv_post_send(3)): a request without SIGNALED has no completion, one of them with
// SQSigAll has. Unsignaled requests leave no room occupied.
func TestSignaling(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	write := r.memory(s, 8, (*ID).RegWrite)
	here := r.memory(c, 8, (*ID).RegMsgs)
	put := func(userContext uint64, flags verbs.SendFlags) {
		t.Helper()
		err := ErrQueueFull
		for errors.Is(err, ErrQueueFull) {
			if n := c.SendCQ().Poll(make([]verbs.WC, 1)); n > 0 { // makes a pass
				t.Fatal("a request without SIGNALED has a completion")
			}
			err = c.PostWrite(userContext, here.Bytes(), here, flags, write.Addr(), write.RKey())
		}
		must.Do(t, err)
	}
	for range 10 * attr().Cap.MaxSendWR {
		put(1, 0)
	}
	put(2, verbs.SendSignaled)
	r.sent(c, 2)
	all := attr()
	all.SQSigAll = true
	c, s = r.connected(all)
	write, here = r.memory(s, 8, (*ID).RegWrite), r.memory(c, 8, (*ID).RegMsgs)
	must.Do(t, c.PostWrite(3, here.Bytes(), here, 0, write.Addr(), write.RKey()))
	r.sent(c, 3)
}

// Rule (semantics 16, 24): a request that fails has a completion with its status, signaled or not, and
// those behind it are flushed.
func TestFailuresComplete(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	here, there := r.memory(c, 8, (*ID).RegMsgs), r.memory(s, 8, (*ID).RegRead)
	must.Do(t, c.PostRecv(5, here.Bytes(), here))
	must.Do(t, c.PostWrite(1, here.Bytes(), here, 0, there.Addr(), there.RKey())) // only READs are permitted
	wc := must.Get(c.GetSendComp(r.ctx))(t)
	if wc.WRID != 1 || wc.Status != verbs.WCRemAccessErr {
		t.Errorf("a WRITE without permission completed as request %d with %v, want REM_ACCESS_ERR", wc.WRID, wc.Status)
	}
	if wc = must.Get(c.GetRecvComp(r.ctx))(t); wc.WRID != 5 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("the receive completed as request %d with %v, want WR_FLUSH_ERR", wc.WRID, wc.Status)
	}
	must.Do(t, c.PostWrite(2, here.Bytes(), here, 0, there.Addr(), there.RKey()))
	must.Do(t, c.PostSend(3, make([]byte, 5000), nil, 0)) // copied, so with a lease
	must.Do(t, c.PostRecv(4, here.Bytes(), here))
	for _, want := range []uint64{2, 3} {
		if wc = must.Get(c.GetSendComp(r.ctx))(t); wc.WRID != want || wc.Status != verbs.WCWRFlushErr {
			t.Errorf("a request of a failed queue pair completed as %d with %v, want %d with WR_FLUSH_ERR", wc.WRID, wc.Status, want)
		}
	}
	if wc = must.Get(c.GetRecvComp(r.ctx))(t); wc.WRID != 4 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("a receive of a failed queue pair completed as %d with %v, want 4 with WR_FLUSH_ERR", wc.WRID, wc.Status)
	}
}

// Rule (rdma_post_recv(3), rdma_post_recvv(3)): receives are a queue; messages fill them in the order in
// which they were posted.
func TestReceivesAreAQueue(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	in := r.memory(s, 128, (*ID).RegMsgs)
	for i := range uint64(8) {
		if i%2 == 0 {
			must.Do(t, s.PostRecv(100+i, in.Bytes()[8*i:8*i+8], in))
		} else {
			must.Do(t, s.PostRecvV(100+i, []verbs.SGE{in.SGE(int(8*i), 4), in.SGE(int(8*i)+4, 4)}))
		}
	}
	for i := range 8 {
		must.Do(t, c.PostSend(0, fmt.Appendf(nil, "message%d", i), nil, 0))
	}
	for i := range uint64(8) {
		if r.received(s, 100+i); string(in.Bytes()[8*i:8*i+8]) != fmt.Sprintf("message%d", i) {
			t.Errorf("receive %d has %q", i, in.Bytes()[8*i:8*i+8])
		}
	}
}

// Rule (ibv_post_recv(3), semantics 22): a list is posted up to its first bad request. Those before it
// are posted, it and those behind it are not.
func TestAListStopsAtItsBadRequest(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	in := r.memory(s, 64, (*ID).RegMsgs)
	one := func(i int) []verbs.SGE { return []verbs.SGE{in.SGE(8*i, 8)} }
	list := []RecvWR{{1, one(0)}, {2, one(1)}, {3, make([]verbs.SGE, 40)}, {4, one(3)}}
	if n, err := s.PostRecvList(list); n != 2 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a list whose third request has too many elements: posted %d, error %v; want 2, EINVAL", n, err)
	}
	posted, err := c.PostSendList([]SendWR{
		{WRID: 10, Opcode: verbs.WRSendWithImm, Imm: 77, Flags: verbs.SendSignaled},
		{WRID: 11, Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendSolicited},
		{WRID: 12, Opcode: verbs.WRTSO}, {WRID: 13, Opcode: verbs.WRSend, Flags: verbs.SendSignaled},
	})
	if posted != 2 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a list whose third request has no opcode of RC: posted %d, error %v; want 2, EINVAL", posted, err)
	}
	r.sent(c, 10)
	r.sent(c, 11)
	if wc := r.received(s, 1); wc.Flags&verbs.WCWithImm == 0 || wc.Imm() != 77 {
		t.Errorf("the first message has flags %v and immediate data %d, want 77", wc.Flags, wc.Imm())
	}
	r.received(s, 2)
}

// Rule (semantics 29): a queue that is full refuses requests with ENOMEM, until completions are taken
// from the completion queue. Nothing is lost.
func TestFullQueuesRefuse(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	in, depth := r.memory(s, 8, (*ID).RegMsgs), int(attr().Cap.MaxRecvWR)
	for i := range depth {
		must.Do(t, s.PostRecv(uint64(i), in.Bytes(), in))
	}
	if err := s.PostRecv(99, in.Bytes(), in); !errors.Is(err, syscall.ENOMEM) || !errors.Is(err, ErrQueueFull) {
		t.Errorf("one receive more than the queue has room for: error %v, want ENOMEM", err)
	}
	posted := 0
	for ; posted <= 2*depth; posted++ {
		if err := c.PostSend(uint64(posted), []byte("x"), nil, verbs.SendSignaled); err != nil {
			if !errors.Is(err, syscall.ENOMEM) {
				t.Fatal(err)
			}
			break
		}
	}
	if posted > 2*depth {
		t.Errorf("%d sends were accepted and no completion was taken, want at most %d", posted, 2*depth)
	}
	for i := range min(posted, depth) {
		r.sent(c, uint64(i))
		r.received(s, uint64(i))
	}
}

// Rule: each misuse of the calls that post gives the errno of its man page, or EINVAL.
func TestMisuseOfPosts(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	_, at := r.listener(attr())
	early, bare := r.dialer(at, attr()), r.dialer(at, nil)
	in, there := r.memory(c, 64, (*ID).RegMsgs), r.memory(s, 8, (*ID).RegWrite)
	shared := r.dialer(at, func() *QPInitAttr {
		a := attr()
		a.SendCQ = must.Get(must.Get(early.Device())(t).CreateCQ(16))(t)
		return a
	}())
	t.Cleanup(func() { must.Do(t, shared.DestroyQP()) })
	ah := must.Get(must.Get(c.Device())(t).pd.CreateAH(ahTo(r)))(t)
	t.Cleanup(func() { must.Do(t, ah.Close()) })
	b := in.Bytes()
	for what, m := range map[string]struct {
		err   error
		want  error
		errno syscall.Errno
	}{
		"a send before the connection":              {early.PostSend(1, b[:8], in, 0), ErrNotConnected, syscall.EINVAL},
		"a READ before the connection":              {early.PostRead(1, b[:8], in, 0, 0, 0), ErrNotConnected, syscall.EINVAL},
		"a send without a queue pair":               {bare.PostSend(1, b[:8], in, 0), ErrNoQP, syscall.EINVAL},
		"a receive without a queue pair":            {bare.PostRecv(1, b[:8], in), ErrNoQP, syscall.EINVAL},
		"a buffer outside its region":               {c.PostSend(1, there.Bytes(), in, 0), ErrRange, syscall.EINVAL},
		"a receive without a region":                {c.PostRecv(1, b[:8], nil), verbs.ErrInvalid, syscall.EINVAL},
		"a READ without a region":                   {c.PostRead(1, b[:8], nil, 0, 0, 0), verbs.ErrInvalid, syscall.EINVAL},
		"more elements than the queue pair has":     {c.PostSendV(1, make([]verbs.SGE, 40), 0), verbs.ErrInvalid, syscall.EINVAL},
		"more inline bytes than the queue pair has": {c.PostSend(1, make([]byte, 4096), nil, verbs.SendInline), verbs.ErrInvalid, syscall.EINVAL},
		"an inline READ":                            {c.PostRead(1, b[:8], in, verbs.SendInline, 0, 0), verbs.ErrInvalid, syscall.EINVAL},
		"a datagram on a connection":                {c.PostUDSend(1, b[:8], in, 0, ah, 1), verbs.ErrInvalid, syscall.EINVAL},
		"completions of a shared queue":             {func() error { _, err := shared.GetSendComp(r.ctx); return err }(), ErrShared, syscall.EINVAL},
		"completions without a queue pair":          {func() error { _, err := bare.GetRecvComp(r.ctx); return err }(), ErrNoQP, syscall.EINVAL},
		"memory of the Go heap":                     {func() error { _, err := c.RegMsgs(make([]byte, 64)); return err }(), verbs.ErrInvalid, syscall.EINVAL},
	} {
		if op, ok := errors.AsType[*verbs.OpError](m.err); !ok || !errors.Is(m.err, m.want) || op.Errno != m.errno {
			t.Errorf("%s: error %v, want %v with errno %v", what, m.err, m.want, m.errno)
		}
	}
}

// ahTo is the way from device 0 to device 1.
func ahTo(r *rig) *verbs.AHAttr {
	gid := must.Get(verbs.ChooseGID(r.dev[0].Context(), 1))(r.t)
	return &verbs.AHAttr{DGID: verbs.GIDFromAddr(r.at[1].Addr()), SGIDIndex: uint8(gid.Index), Port: 1, HopLimit: 1}
}

// Rule (rdma_destroy_qp): a queue pair can be destroyed before its identifier, with requests
// outstanding, which have no completion then. Another one can be made and connected.
func TestAQueuePairIsMadeAgain(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(attr())
	c := r.dialer(at, attr())
	in := r.memory(c, 8, (*ID).RegMsgs)
	must.Do(t, c.PostRecv(1, in.Bytes(), in))
	wait := make(chan error, 1)
	go func() { _, err := c.GetRecvComp(r.ctx); wait <- err }()
	must.Do(t, c.DestroyQP())
	if err := <-wait; !errors.Is(err, verbs.ErrClosed) && !errors.Is(err, ErrNoQP) {
		t.Errorf("GetRecvComp while the queue pair was destroyed returned %v, want ErrClosed", err)
	}
	if c.QP() != nil || c.RecvCQ() != nil {
		t.Error("the identifier has a queue pair after DestroyQP")
	}
	must.Do(t, c.DestroyQP())
	must.Do(t, c.CreateQP(nil, attr()))
	must.Do(t, c.PostRecv(2, in.Bytes(), in))
	done := make(chan error, 1)
	go func() { done <- c.Connect(r.ctx, nil) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	must.Do(t, s.Accept(r.ctx, nil))
	must.Do(t, <-done)
	must.Do(t, s.PostSend(3, []byte("again"), nil, verbs.SendSignaled))
	r.received(c, 2)
}
