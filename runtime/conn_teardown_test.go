package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// rcAnswers are the opcodes of the responses of an RC queue pair. They do not include the
// connection manager's messages. So the tests can delay the responses without delaying DISCONNECT.
var rcAnswers = []wire.Opcode{
	wire.RCAcknowledge, wire.RCAtomicAck,
	wire.RCReadRespFirst, wire.RCReadRespMiddle, wire.RCReadRespLast, wire.RCReadRespOnly,
}

var answeredOps = append([]string{"send"}, oneSidedOps...)

// leave() first makes the link delay or drop the responses of p.b, as the rule r says. Then it
// starts operations at p.a, and aborts p.b. So the DISCONNECT of p.b arrives at p.a before the
// responses.
func (p *lostPeer) leave(r fabric.Rule, ops ...string) {
	p.t.Helper()
	r.Opcodes = rcAnswers
	p.w.fab.SetLink(p.w.nodes[1].gid, p.w.nodes[0].gid, fabric.Link{Rules: []fabric.Rule{r}})
	for _, name := range ops {
		if p.start(name) == nil {
			p.t.Fatalf("%s did not start", name)
		}
	}
	p.pass(time.Millisecond)
	p.b.Abort()
	p.pass(time.Millisecond)
	if p.a.Err() == nil {
		p.t.Fatal("the peer has disconnected, and the connection is open")
	}
}

// ended() returns how many operations have ended.
func (p *lostPeer) ended() (n int) {
	for _, o := range p.ops {
		if o.ended != 0 {
			n++
		}
	}
	return n
}

// patient() returns a connection whose PeerTimeout is longer than the test.
func patient(t *testing.T) *lostPeer {
	return newLostPeer(t, Options{PeerTimeout: time.Minute, KeepAlive: -1})
}

// Rule: if the peer executes an operation and then disconnects, the operation succeeds, even if its
// acknowledgment arrives after DISCONNECTED. After DISCONNECTED, new operations are refused. A
// waiting receiver gets its error when all other operations have ended.
func TestAcknowledgementsAfterDisconnectedCount(t *testing.T) {
	const late = ackGrace / 2
	for _, name := range answeredOps {
		t.Run(name, func(t *testing.T) {
			p := patient(t)
			waits := p.start("receive")
			from := p.w.now()
			p.leave(fabric.Rule{Delay: late}, name)
			o := p.ops[1]
			if o.ended != 0 || waits.ended != 0 {
				t.Fatalf("ended at DISCONNECTED: %s with %v, receive with %v", name, o.err, waits.err)
			}
			if _, err := p.a.SendBytes(p.w.ended, []byte("too late")); !errors.Is(err, ErrPeerClosed) {
				t.Errorf("after DISCONNECTED a send answered %v, want %v", err, ErrPeerClosed)
			}
			// Submitters that wait for a slot get this error. Without an error they would wait
			// forever.
			if err := p.a.q.Err(); !errors.Is(err, ErrPeerClosed) {
				t.Errorf("after DISCONNECTED the queue answers %v, want %v", err, ErrPeerClosed)
			}
			p.pass(ackGrace)
			if o.err != nil || o.ended != from+late {
				t.Errorf("%s ended after %v with %v, want success after %v", name, o.ended-from, o.err, late)
			}
			if !errors.Is(waits.err, ErrPeerClosed) || waits.ended != o.ended {
				t.Errorf("receive ended after %v with %v, want %v when %s has", waits.ended-from, waits.err, ErrPeerClosed, name)
			}
		})
	}
}

// Rule: if the peer closes while Close waits for an operation, and the acknowledgment of the
// operation arrives later, the operation still succeeds.
func TestAcknowledgementsAfterBothClosedCount(t *testing.T) {
	const late = ackGrace / 2
	p := patient(t)
	from := p.w.now()
	p.w.fab.SetLink(p.w.nodes[1].gid, p.w.nodes[0].gid, fabric.Link{Rules: []fabric.Rule{{Opcodes: rcAnswers, Delay: late}}})
	o := p.start("send")
	p.pass(time.Millisecond)
	p.a.end(false)
	p.b.Abort()
	p.pass(ackGrace)
	if o.err != nil || o.ended != from+late {
		t.Errorf("the send ended after %v with %v, want success after %v", o.ended-from, o.err, late)
	}
	if !isGone(p.a) {
		t.Error("a closed connection is not gone")
	}
}

// Rule: an operation that the peer does not acknowledge ends ackGrace after DISCONNECTED, with
// WR_FLUSH_ERR. The peer may or may not have executed such an operation.
func TestUnacknowledgedOperationsEndWithinTheGrace(t *testing.T) {
	p := patient(t)
	from := p.w.now()
	p.leave(fabric.Rule{Drop: true}, answeredOps...)
	p.pass(ackGrace - 2*time.Millisecond)
	if p.ended() != 0 {
		t.Errorf("%d operations have ended before the grace is over", p.ended())
	}
	p.pass(3 * time.Millisecond)
	for _, o := range p.ops {
		var wc *verbs.WCError
		if !errors.Is(o.err, ErrPeerClosed) || !errors.As(o.err, &wc) || wc.Status != verbs.WCWRFlushErr {
			t.Errorf("%s ended with %v, want a flush by %v", o.name, o.err, ErrPeerClosed)
		}
	}
	p.wantEnded(from, ackGrace+2*time.Millisecond)
}

// Rule: if no send is outstanding, the connection ends as soon as DISCONNECTED arrives.
func TestAnIdleConnectionEndsAtDisconnected(t *testing.T) {
	p := patient(t)
	o := p.start("receive")
	p.leave(fabric.Rule{})
	if o.ended == 0 || !errors.Is(o.err, ErrPeerClosed) {
		t.Errorf("after DISCONNECTED the receive has ended at %v with %v, want %v at once", o.ended, o.err, ErrPeerClosed)
	}
}

// Rule: after DISCONNECTED, Close waits at most ackGrace for acknowledgments. Abort, Cancel and
// failures do not wait for acknowledgments. The device flushes the operations before the queue pair
// is destroyed, unless the device is gone or Abort ends the wait of Close.
func TestTheEndDoesNotWaitForThePeer(t *testing.T) {
	for _, end := range []struct {
		name   string
		how    func(p *lostPeer)
		within time.Duration
		gone   bool
		flush  bool
	}{
		{"Abort", func(p *lostPeer) { p.a.Abort() }, 0, true, true},
		{"Close", func(p *lostPeer) { p.a.end(false) }, ackGrace, true, true},
		{"Close, then Abort", func(p *lostPeer) { p.a.end(false); p.pass(0); p.a.Abort() }, 0, true, false},
		{"Cancel", func(p *lostPeer) { p.a.cancel() }, 0, false, true},
		{"device removal", func(p *lostPeer) { p.w.nodes[0].rt.deviceGone() }, 0, false, false},
		{"queue pair failure", func(p *lostPeer) { p.a.fail(ErrQueuePair) }, 0, false, true},
	} {
		t.Run(end.name, func(t *testing.T) {
			p := patient(t)
			p.leave(fabric.Rule{Drop: true}, answeredOps...)
			from := p.w.now()
			end.how(p)
			p.pass(0)
			if end.within > 0 && p.ended() > 0 {
				t.Errorf("%d operations ended at once, the peer may acknowledge them yet", p.ended())
			}
			p.pass(end.within)
			if p.ended() != len(p.ops) {
				t.Errorf("%d of %d operations have ended within %v", p.ended(), len(p.ops), p.w.now()-from)
			}
			for _, o := range p.ops {
				if wc, ok := errors.AsType[*verbs.WCError](o.err); ok != end.flush || ok && wc.Status != verbs.WCWRFlushErr {
					t.Errorf("%s ended with %v; it was flushed: %t, want %t", o.name, o.err, ok, end.flush)
				}
			}
			if isGone(p.a) != end.gone {
				t.Errorf("the connection is gone: %t, want %t", isGone(p.a), end.gone)
			}
			if !errors.Is(p.a.Err(), ErrPeerClosed) {
				t.Errorf("the connection ended with %v, want the first cause, %v", p.a.Err(), ErrPeerClosed)
			}
		})
	}
}

// Rule: Close ends the waits for credits at once, while it waits for outstanding operations.
func TestCloseEndsWaitsForCredits(t *testing.T) {
	p := patient(t)
	p.w.fab.SetAll(fabric.Link{Down: true})
	for p.a.credits.Available() > 0 {
		p.start("send")
	}
	waits := make(chan error, 1)
	go func() {
		_, err := p.a.SendBytes(context.Background(), []byte("x"))
		waits <- err
	}()
	eventually(t, "the wait for a credit", func() bool { return p.a.credits.Waiting() > 0 })
	p.a.end(false)
	p.pass(0)
	select {
	case err := <-waits:
		if !errors.Is(err, ErrConnClosed) {
			t.Errorf("who waited for a credit got %v, want %v", err, ErrConnClosed)
		}
	case <-testContext(t).Done():
		t.Error("the wait for a credit goes on")
	}
	if n := p.ended(); n > 0 {
		t.Errorf("%d operations have ended, the peer may acknowledge them yet", n)
	}
}

// Rule: a connection that is gone has no running timer. A timer would keep the connection in
// memory.
func TestAGoneConnectionHasNoTimer(t *testing.T) {
	// Without peer limits the reactor needs no timer of its own.
	p := newLostPeer(t, Options{PeerTimeout: -1, KeepAlive: -1})
	p.b.Abort()
	p.pass(time.Millisecond)
	p.a.end(false)
	p.pass(time.Millisecond)
	for i, c := range []*Conn{p.a, p.b} {
		if !isGone(c) {
			t.Errorf("connection %d is not gone", i)
		}
		if at := c.sh.r.NextTimer(); !at.IsZero() {
			t.Errorf("the reactor of connection %d has a timer at %v, and it is %v", i, at, c.rt.cfg.now())
		}
	}
}

// explaining is a device that explains requests without an answer.
type explaining struct{ verbs.Context }

func (explaining) Explain(s verbs.WCStatus) string {
	if s == verbs.WCRetryExcErr {
		return "the buffer is small"
	}
	return ""
}

// Rule: the error of a connection has the device's explanation, and matches as without it.
func TestErrorsAreExplained(t *testing.T) {
	silent := &verbs.WCError{Status: verbs.WCRetryExcErr}
	if err := explained(explaining{}, silent); !errors.Is(err, silent) || !strings.HasSuffix(err.Error(), silent.Error()+" (the buffer is small)") {
		t.Errorf("%v, want %v and the explanation", err, silent)
	}
	for _, err := range []error{&verbs.WCError{Status: verbs.WCRemAccessErr}, ErrPeerClosed} {
		if got := explained(explaining{}, err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	if got := explained(struct{ verbs.Context }{}, silent); got != silent {
		t.Errorf("%v became %v on a device that explains nothing", silent, got)
	}
}
