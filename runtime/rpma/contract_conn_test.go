package rpma

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: Connect consumes a request, whether it succeeds or not. Close of a request that is not consumed
// refuses the peer, and afterwards does nothing. A consumed request answers with verbs.ErrClosed.
func TestContract8ARequestIsConsumed(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		ep, port := r.listen()
		if at := ep.Addr(); at.Addr().String() != r.addr[1] || at.Port() == 0 {
			t.Errorf("the endpoint is at %v, want %s and a port", at, r.addr[1])
		}
		used := func(what string, q *ConnReq) {
			t.Helper()
			m := r.mr(0, 8, RecvBuf)
			_, err := q.Connect(nil)
			isCode(t, "Connect of a request "+what, err, ErrInvalid)
			if !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("Connect of a request %s returned %v, want verbs.ErrClosed", what, err)
			}
			isCode(t, "Recv of a request "+what, q.Recv(m, 0, 8, 1), ErrInvalid)
			must.Do(t, q.Close(r.ctx))
			must.Do(t, q.Close(r.ctx))
		}
		_, err := (*ConnReq)(nil).Connect(nil)
		isCode(t, "Connect of a nil request", err, ErrInvalid)
		q := r.request(ep, port, nil)
		must.Do(t, q.Close(r.ctx))
		used("that was closed", q)
		q = r.request(ep, port, nil)
		_, err = q.Connect([]byte{})
		isCode(t, "Connect with private data of no bytes", err, ErrInvalid)
		used("whose Connect failed", q)
		q = r.request(ep, port, nil)
		_, err = q.Connect(make([]byte, verbs.MaxPrivateConnect+1))
		if isCode(t, "Connect with too much private data", err, ErrProvider); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("the error is %v, want EINVAL", err)
		}
		used("with too much private data", q)

		c := must.Get(r.request(ep, port, nil).Connect(nil))(t)
		r.closes(c)
		at := must.Get(ep.NextConnReq(r.ctx, nil))(t)
		must.Do(t, at.Close(r.ctx))
		used("that was refused", at)
		r.event(c, Rejected)
		if _, ok := errors.AsType[*runtime.RejectError](c.Err()); !ok {
			t.Errorf("the cause of a refusal is %v, want a *runtime.RejectError", c.Err())
		}
		err = c.Send(nil, 0, 0, CompletionAlways, 1)
		if isCode(t, "a message after a refusal", err, ErrProvider); !errors.Is(err, syscall.ENOTCONN) {
			t.Errorf("the error is %v, want ENOTCONN", err)
		}
		isCode(t, "Disconnect after a refusal", c.Disconnect(), ErrProvider)
		q = r.request(ep, port, nil)
		c = must.Get(q.Connect(nil))(t)
		used("that was connected", q)
		must.Do(t, c.Close(r.ctx)) // the attempt is given up
		isCode(t, "a message after Close", c.Send(nil, 0, 0, CompletionAlways, 1), ErrInvalid)
		isCode(t, "a receive after Close", c.Recv(nil, 0, 0, 1), ErrInvalid)
		must.Do(t, ep.Close(r.ctx))
		must.Do(t, ep.Close(r.ctx))
		_, err = ep.NextConnReq(r.ctx, nil)
		isCode(t, "NextConnReq after Close", err, ErrInvalid)
		c = must.Get(r.request(ep, port, nil).Connect(nil))(t)
		r.closes(c)
		r.event(c, Rejected) // nobody listens
	})
}

// Rule: each reason why a connection has ended has an event, and each event a text.
func TestContract9EventsOfEnds(t *testing.T) {
	for _, x := range []struct {
		err  error
		want Event
		text string
	}{
		{&runtime.RejectError{}, Rejected, "Connection rejected"},
		{runtime.ErrUnreachable, Unreachable, "Connection unreachable"},
		{runtime.ErrConnectTimeout, Unreachable, "Connection unreachable"},
		{runtime.ErrPeerClosed, Closed, "Connection closed"},
		{runtime.ErrConnClosed, Closed, "Connection closed"},
		{verbs.ErrDeviceRemoved, Lost, "Connection lost"},
		{verbs.StatusError(verbs.WCRetryExcErr), Lost, "Connection lost"},
		{syscall.ENOMEM, Lost, "Connection lost"},
	} {
		if got := eventOf(fmt.Errorf("wrapped: %w", x.err)); got != x.want || got.String() != x.text {
			t.Errorf("the event of %v is %v; want %v", x.err, got, x.want)
		}
	}
	for e, text := range map[Event]string{Undefined: "Undefined connection event", Established: "Connection established", Unreachable + 1: "Unsupported connection event", -2: "Unsupported connection event"} {
		if e.String() != text {
			t.Errorf("event %d is %q, want %q", e, e, text)
		}
	}
	if Undefined != -1 {
		t.Errorf("Undefined is %d, want -1 as in C", Undefined)
	}
}

// Rule: immediate data and words come as they were given. (TestRequestsAreLibrpmas shows the order of
// its bytes on the wire.)
func TestContract10WordsAndImmediateData(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, s := r.connect(nil, nil)
		from, into := r.mr(0, 64, SendBuf|WriteSrc), r.mr(1, 64, RecvBuf|WriteDst)
		for i, imm := range []uint32{0, 1, 0x01020304, 0xfffffffe, 0xffffffff} {
			word := uint64(imm)<<32 | uint64(i)
			for _, write := range []bool{false, true} {
				must.Do(t, s.Recv(into, 0, 8, ^word))
				if write {
					must.Do(t, c.WriteWithImm(r.remote(into), 8, from, 0, 5, CompletionAlways, imm, word))
				} else {
					must.Do(t, c.SendWithImm(from, 0, 5, CompletionAlways, imm, word))
				}
				r.done(c.CQ(), word)
				if wc := r.done(s.CQ(), ^word); wc.Imm != imm || wc.Flags&verbs.WCWithImm == 0 || wc.Bytes != 5 {
					t.Errorf("the number 0x%x arrived, by a WRITE: %t, as %+v", imm, write, wc)
				}
			}
		}
		must.Do(t, s.Recv(into, 0, 8, 1))
		must.Do(t, c.Send(from, 0, 5, CompletionAlways, 1<<63))
		r.done(c.CQ(), 1<<63)
		if wc := r.done(s.CQ(), 1); wc.Flags&verbs.WCWithImm != 0 {
			t.Errorf("a message without a number arrived as %+v", wc)
		}
	})
}

// Rule: private data arrives as it was sent, before the request is accepted, and the request can be refused
// because of it. It is untrusted: descriptors in it are parsed with bounds (FuzzDescriptors).
func TestContract14PrivateData(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		ep, port := r.listen()
		for _, n := range []int{1, 2, 21, verbs.MaxPrivateConnect} {
			mine, theirs := bytes.Repeat([]byte{byte(n)}, n), bytes.Repeat([]byte{0xee}, min(2*n, verbs.MaxPrivateAccept))
			q := r.request(ep, port, nil)
			if q.PrivateData() != nil {
				t.Errorf("the request of this end has the private data %v, want none", q.PrivateData())
			}
			c := must.Get(q.Connect(mine))(t)
			clear(mine) // it was copied
			r.closes(c)
			if c.PrivateData() != nil {
				t.Errorf("before the answer the private data is %v, want none", c.PrivateData())
			}
			at := must.Get(ep.NextConnReq(r.ctx, nil))(t)
			if got := bytes.TrimRight(at.PrivateData(), "\x00"); !bytes.Equal(got, bytes.Repeat([]byte{byte(n)}, n)) {
				t.Errorf("%d bytes of private data arrived as %v", n, got)
			}
			if n == 2 {
				must.Do(t, at.Close(r.ctx))
				r.event(c, Rejected)
				continue
			}
			s := must.Get(at.Connect(theirs))(t)
			r.closes(s)
			r.event(c, Established)
			r.event(s, Established)
			if got := bytes.TrimRight(c.PrivateData(), "\x00"); !bytes.Equal(got, theirs) {
				t.Errorf("%d bytes of private data of the answer arrived as %v", len(theirs), got)
			}
			if got := bytes.TrimRight(s.PrivateData(), "\x00"); len(got) != n {
				t.Errorf("the accepted connection has the private data %v, want the %d bytes of the request", got, n)
			}
		}
		c := must.Get(r.request(ep, port, nil).Connect(nil))(t)
		r.closes(c)
		at := must.Get(ep.NextConnReq(r.ctx, nil))(t)
		r.closes(at)
		if at.PrivateData() != nil {
			t.Errorf("a request without private data has %v", at.PrivateData())
		}
		s := must.Get(at.Connect(nil))(t)
		r.closes(s)
		r.event(c, Established)
		if c.PrivateData() != nil {
			t.Errorf("an answer without private data has %v", c.PrivateData())
		}
	})
}
