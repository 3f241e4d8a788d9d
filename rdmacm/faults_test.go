package rdmacm

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Tests of faults that a review found, named after what they broke.

// Rule: if the queue gets full in the middle of a list, the requests before that point are posted.
func TestAListMeetsAFullQueue(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(attr())
	c := r.dialer(at, nil)
	dev := must.Get(c.Device())(t)
	cq := must.Get(dev.CreateCQ(1))(t)
	a := attr()
	a.SendCQ = cq
	must.Do(t, c.CreateQP(nil, a))
	answer := make(chan error, 1)
	go func() { answer <- c.Connect(r.ctx, nil) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	must.Do(t, s.Accept(r.ctx, nil))
	must.Do(t, <-answer)
	here, there := r.memory(c, 8, (*ID).RegMsgs), r.memory(s, 8, (*ID).RegWrite)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // completions come while the list is posted
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				dev.r.TryPass()
			}
		}
	}()
	list := make([]SendWR, 16)
	for i := range list {
		list[i] = SendWR{SGL: []verbs.SGE{here.SGE(0, 8)}, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, Remote: there.Addr(), RKey: there.RKey()}
	}
	for range 1000 {
		if n, err := c.PostSendList(list); n < len(list) && !errors.Is(err, ErrQueueFull) {
			t.Fatalf("%d of a list were posted, error %v", n, err)
		}
		var wcs [64]verbs.WC
		cq.Poll(wcs[:])
	}
	close(stop)
	<-stopped
	must.Do(t, c.DestroyQP())
	must.Do(t, cq.Destroy())
}

// Rule (rdma_destroy_srq): the receives of a destroyed queue do not complete.
func TestReceivesOfADestroyedXRCQueue(t *testing.T) {
	r := newRig(t)
	l, _ := r.listener(nil)
	dev := needsXRC(t, l)
	x := must.Get(dev.Context().OpenXRCD(-1, 0))(t)
	cq := must.Get(dev.CreateCQ(4))(t)
	must.Do(t, l.CreateSRQ(nil, &SRQInitAttr{MaxWR: 4, XRCD: x, CQ: cq}))
	in := r.memory(l, 8, (*ID).RegMsgs)
	must.Do(t, l.PostRecv(1, in.Bytes(), in))
	must.Do(t, l.DestroySRQ())
	var wcs [4]verbs.WC
	if n := cq.Poll(wcs[:]); n > 0 {
		t.Errorf("%d receives completed, the first with %v", n, wcs[0].Status)
	}
	must.Do(t, cq.Destroy())
	must.Do(t, x.Close())
}

// Rule: a peer that gives up its request while one goroutine takes it causes no error of GetRequest in another.
func TestAnEndOfAnotherRequestIsSkipped(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(attr())
	c := r.dialer(at, attr())
	gone := make(chan error, 1)
	connecting, cancel := context.WithCancel(r.ctx)
	go func() { gone <- c.Connect(connecting, nil) }()
	ev := must.Get(l.channel().GetEvent(r.ctx))(t) // GetRequest of one goroutine, which has not moved the identifier yet
	ev.Ack()
	taken := make(chan *ID, 1)
	go func() { // GetRequest of the other
		id, err := l.GetRequest(r.ctx)
		if err != nil {
			t.Errorf("GetRequest: %v", err)
		}
		taken <- id
	}()
	cancel()
	<-gone
	must.Do(t, c.Destroy(r.ctx)) // rejects: the event of ev.ID comes to the listener's channel
	d := r.dialer(at, attr())
	go func() { gone <- d.Connect(r.ctx, nil) }()
	if s := <-taken; s != nil {
		must.Do(t, s.Accept(r.ctx, nil))
		r.owns(s)
	}
	must.Do(t, <-gone)
	must.Do(t, ev.ID.Destroy(r.ctx))
}

// Rule: of several goroutines that destroy an identifier, one does.
func TestSeveralGoroutinesDestroyAnIdentifier(t *testing.T) {
	r := newRig(t)
	_, at := r.listener(attr())
	ch := must.Get(r.lib[0].CreateEventChannel())(t)
	other := r.owns(must.Get(r.lib[0].CreateID(ch, nil, verbs.PSTCP))(t))
	for range 50 {
		id := r.dialer(at, attr())
		must.Do(t, id.MigrateID(r.ctx, ch))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := id.Destroy(r.ctx); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if ch.ids != 1 {
			t.Fatalf("%d identifiers report to the channel, want 1", ch.ids)
		}
	}
	must.Do(t, other.Destroy(r.ctx))
	must.Do(t, ch.Destroy())
}

// Rule: a message that was copied and then refused, because the queue pair was destroyed meanwhile, keeps
// nothing in the program's protection domain.
func TestARefusedCopyLeavesTheDomain(t *testing.T) {
	r := newRig(t)
	_, at := r.listener(attr())
	c := r.dialer(at, nil)
	pd := must.Get(must.Get(c.Device())(t).Context().AllocPD())(t)
	must.Do(t, c.CreateQP(pd, attr()))
	p := c.qp.Load()
	sge, lease, err := p.dev.bounce.copy(pd, make([]byte, 1000))
	must.Do(t, err)
	must.Do(t, c.DestroyQP())
	if err := p.submit(&reactor.Send{Opcode: verbs.WRSend, Lease: lease}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, 0); !errors.Is(err, ErrNoQP) {
		t.Errorf("a send after DestroyQP returned %v, want ErrNoQP", err)
	}
	must.Do(t, pd.Close())
}

// Rule: a rejection is an error, whatever reason the peer gives.
func TestARejectionForReasonZero(t *testing.T) {
	r := newRig(t)
	id, _ := r.listener(nil)
	ev := &Event{Type: verbs.CMRejected, ID: id}
	if err := ev.Err(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Err of a rejection is %v, want ECONNREFUSED", err)
	}
}

// Rule: empty buffers and elements are valid, and their address does not matter.
func TestEmptyBuffers(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	in := r.memory(s, 8, (*ID).RegMsgs)
	out := r.memory(c, 8, (*ID).RegMsgs)
	for what, post := range map[string]func() error{
		"no bytes of a region": func() error { return c.PostSend(1, nil, out, verbs.SendSignaled) },
		"no bytes":             func() error { return c.PostSend(1, nil, nil, verbs.SendSignaled) },
		"an inline element":    func() error { return c.PostSendV(1, []verbs.SGE{{}}, verbs.SendSignaled|verbs.SendInline) },
		"no element":           func() error { return c.PostSendV(1, nil, verbs.SendSignaled) },
	} {
		must.Do(t, s.PostRecv(2, in.Bytes(), in))
		if err := post(); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		r.sent(c, 1)
		if wc := r.received(s, 2); wc.ByteLen != 0 {
			t.Errorf("%s: %d bytes arrived", what, wc.ByteLen)
		}
	}
}
