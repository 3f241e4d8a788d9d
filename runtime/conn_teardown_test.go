package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// rcAnswers are the opcodes of the responses of an RC queue pair. A link rule for these opcodes
// delays or drops the responses, but not the messages of the connection manager, such as the DREQ of
// an end that disconnects.
var rcAnswers = []wire.Opcode{
	wire.RCAcknowledge, wire.RCAtomicAck,
	wire.RCReadRespFirst, wire.RCReadRespMiddle, wire.RCReadRespLast, wire.RCReadRespOnly,
}

// answeredOps are the operations of lostPeer.start that wait for a response of the peer's device.
var answeredOps = append([]string{"send"}, oneSidedOps...)

// leave first makes the link delay or drop the responses of p.b, as the link rule r says.
// Then it starts the operations ops at p.a, and aborts p.b. So p.a gets DISCONNECTED before it gets
// the responses.
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
		p.t.Fatal("p.a has no error after p.b has disconnected, want one")
	}
}

// ended returns how many operations of p.a have ended.
func (p *lostPeer) ended() (n int) {
	for _, o := range p.ops {
		if o.ended != 0 {
			n++
		}
	}
	return n
}

// patient connects two nodes without keep-alives, and with a PeerTimeout that is longer than the test.
func patient(t *testing.T) *lostPeer {
	return newLostPeer(t, Options{PeerTimeout: time.Minute, KeepAlive: -1})
}

// Rule: if the peer executes an operation and then disconnects, the operation succeeds, even if its
// acknowledgment arrives after DISCONNECTED. After DISCONNECTED, new operations are refused. When all
// other operations have ended, a waiting Recv ends with ErrPeerClosed.
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
				t.Fatalf("after DISCONNECTED: %s ended=%t with %v, the receive ended=%t with %v; want ended=false for both", name, o.ended != 0, o.err, waits.ended != 0, waits.err)
			}
			if _, err := p.a.SendBytes(p.w.ended, []byte("too late")); !errors.Is(err, ErrPeerClosed) {
				t.Errorf("SendBytes after DISCONNECTED: %v, want %v", err, ErrPeerClosed)
			}
			// A goroutine that waits for a slot of the queue gets the queue's error. Without this error
			// the goroutine would wait forever.
			if err := p.a.q.Err(); !errors.Is(err, ErrPeerClosed) {
				t.Errorf("the queue's error after DISCONNECTED is %v, want %v", err, ErrPeerClosed)
			}
			p.pass(ackGrace)
			if o.err != nil || o.ended != from+late {
				t.Errorf("%s ended after %v with %v, want success after %v", name, o.ended-from, o.err, late)
			}
			if !errors.Is(waits.err, ErrPeerClosed) || waits.ended != o.ended {
				t.Errorf("the receive ended after %v with %v, want %v at the time when %s ended", waits.ended-from, waits.err, ErrPeerClosed, name)
			}
		})
	}
}

// Rule: if the peer disconnects while Close waits for an operation, the operation still succeeds if its
// acknowledgment arrives less than ackGrace after DISCONNECTED.
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
		t.Error("the connection is not closed after its last operation has ended")
	}
}

// Rule: if the peer does not acknowledge an operation, the operation ends ackGrace after DISCONNECTED,
// with WR_FLUSH_ERR. (This end does not know whether the peer has executed the operation.)
func TestUnacknowledgedOperationsEndWithinTheGrace(t *testing.T) {
	p := patient(t)
	from := p.w.now()
	p.leave(fabric.Rule{Drop: true}, answeredOps...)
	p.pass(ackGrace - 2*time.Millisecond)
	if p.ended() != 0 {
		t.Errorf("%d operations have ended less than ackGrace after DISCONNECTED, want none", p.ended())
	}
	p.pass(3 * time.Millisecond)
	for _, o := range p.ops {
		var wc *verbs.WCError
		if !errors.Is(o.err, ErrPeerClosed) || !errors.As(o.err, &wc) || wc.Status != verbs.WCWRFlushErr {
			t.Errorf("%s ended with %v, want WR_FLUSH_ERR with the cause %v", o.name, o.err, ErrPeerClosed)
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
		t.Errorf("after DISCONNECTED: the receive ended=%t with %v, want ended=true with %v", o.ended != 0, o.err, ErrPeerClosed)
	}
}

// Rule: after DISCONNECTED, Close waits at most ackGrace for acknowledgments. Abort, Cancel and
// failures do not wait for acknowledgments. The device flushes the operations before the queue pair
// is destroyed, unless the device was removed or Abort ends the wait of Close.
func TestTheEndDoesNotWaitForThePeer(t *testing.T) {
	for _, end := range []struct {
		name   string
		how    func(p *lostPeer)
		within time.Duration // the limit for the end of all operations; 0: they end at once
		gone   bool          // the connection is closed when all operations have ended
		flush  bool          // the operations end with WR_FLUSH_ERR
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
				t.Errorf("%d operations ended at once, want none: the peer may still acknowledge them", p.ended())
			}
			p.pass(end.within)
			if p.ended() != len(p.ops) {
				t.Errorf("%d of %d operations have ended within %v, want all", p.ended(), len(p.ops), p.w.now()-from)
			}
			for _, o := range p.ops {
				if wc, ok := errors.AsType[*verbs.WCError](o.err); ok != end.flush || ok && wc.Status != verbs.WCWRFlushErr {
					t.Errorf("%s ended with %v; want a WCError with WR_FLUSH_ERR: %t", o.name, o.err, end.flush)
				}
			}
			if isGone(p.a) != end.gone {
				t.Errorf("after all operations have ended, isGone of the connection returns %t, want %t", isGone(p.a), end.gone)
			}
			if !errors.Is(p.a.Err(), ErrPeerClosed) {
				t.Errorf("the connection ended with %v, want the first cause, %v", p.a.Err(), ErrPeerClosed)
			}
		})
	}
}

// Rule: if a call waits for a credit and another goroutine calls Close, the waiting call fails at
// once. Close still waits for the outstanding operations.
func TestCloseEndsWaitsForCredits(t *testing.T) {
	p := patient(t)
	p.w.fab.SetAll(fabric.Link{Down: true})
	for p.a.credits.available() > 0 {
		p.start("send")
	}
	waits := make(chan error, 1)
	go func() {
		_, err := p.a.SendBytes(context.Background(), []byte("x"))
		waits <- err
	}()
	eventually(t, "SendBytes to wait for a credit", func() bool { return p.a.creditLine.Load() > 0 })
	p.a.end(false)
	p.pass(0)
	select {
	case err := <-waits:
		if !errors.Is(err, ErrConnClosed) {
			t.Errorf("the SendBytes that waited for a credit returned %v, want %v", err, ErrConnClosed)
		}
	case <-testContext(t).Done():
		t.Errorf("SendBytes still waits for a credit after Close, want %v", ErrConnClosed)
	}
	if n := p.ended(); n > 0 {
		t.Errorf("%d operations have ended, want none: the peer may still acknowledge them", n)
	}
}

// Rule: when a connection is closed, it has no running timer. A running timer would keep the
// connection in memory.
func TestAGoneConnectionHasNoTimer(t *testing.T) {
	// Without peer timeout and keep-alives the reactor itself has no timer.
	p := newLostPeer(t, Options{PeerTimeout: -1, KeepAlive: -1})
	p.b.Abort()
	p.pass(time.Millisecond)
	p.a.end(false)
	p.pass(time.Millisecond)
	for i, c := range []*Conn{p.a, p.b} {
		if !isGone(c) {
			t.Errorf("connection %d is not closed", i)
		}
		if at := c.sh.r.NextTimer(); !at.IsZero() {
			t.Errorf("the reactor of connection %d has a timer that expires at %v (now %v), want no timer", i, at, c.rt.cfg.now())
		}
	}
}

// explaining is a device that explains the completion status RETRY_EXC_ERR (see verbs.Explainer).
type explaining struct{ verbs.Context }

func (explaining) Explain(s verbs.WCStatus) string {
	if s == verbs.WCRetryExcErr {
		return "the buffer is small"
	}
	return ""
}

// Rule: if the device explains the status of a failed completion, the text of the connection's error
// ends with the explanation, and the error still matches the original error. If the device has no
// explanation, the error is unchanged.
func TestErrorsAreExplained(t *testing.T) {
	silent := &verbs.WCError{Status: verbs.WCRetryExcErr}
	if err := explained(explaining{}, silent); !errors.Is(err, silent) || !strings.HasSuffix(err.Error(), silent.Error()+" (the buffer is small)") {
		t.Errorf("the explained error is %v, want %v and the explanation in parentheses", err, silent)
	}
	for _, err := range []error{&verbs.WCError{Status: verbs.WCRemAccessErr}, ErrPeerClosed} {
		if got := explained(explaining{}, err); got != err {
			t.Errorf("%v became %v, want it unchanged", err, got)
		}
	}
	if got := explained(struct{ verbs.Context }{}, silent); got != silent {
		t.Errorf("%v became %v on a device that explains nothing, want it unchanged", silent, got)
	}
}

// Rule: if a connection ends while a goroutine takes its messages, this goroutine gets the first of them
// without a gap. (TestConcurrentStress once got a message two after the last.)
func TestMessagesTakenWhileTheConnectionEndsHaveNoGap(t *testing.T) {
	const messages = 512 // freeing them takes some time
	ctx := testContext(t)
	o := Config{Conn: Options{RecvCredits: messages, SendDepth: messages, MessageSize: minMessageSize}}
	ra, rb := mainBed.open(t, o, 0), mainBed.open(t, o, 1)
	ln := must.Get(rb.Listen(":0"))(t)
	for range fewer(40) {
		as, bs := connections(t, ra, ln, 1)
		a, b := as[0], bs[0]
		for i := range messages {
			f := must.Get(a.SendBytes(ctx, binary.NativeEndian.AppendUint16(nil, uint16(i))))(t)
			f.Discard()
		}
		eventually(t, "the messages to arrive", func() (all bool) { held(t, b, func() { all = b.arrivals == messages }); return all })
		b.Abort()
		var got []uint16
		for gone := false; !gone; {
			gone = isGone(b)
			var ms [1]Message
			if b.leaving.Load() && b.takeArrived(ms[:]) == 1 {
				got = append(got, binary.NativeEndian.Uint16(ms[0].Data))
				release(t, ms[0])
			}
		}
		for i, n := range got {
			if int(n) != i {
				t.Fatalf("the messages %v were received, want the first ones without a gap", got)
			}
		}
		if err := errors.Join(a.Close(ctx), b.Close(ctx)); err != nil {
			t.Fatal(err)
		}
	}
}
