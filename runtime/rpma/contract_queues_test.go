package rpma

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: receives are a set. Only the word of a completion says which receive a message has taken, and that
// receive has the whole message. This holds for receives of a request, of a connection and of an SRQ.
func TestContract1ReceivesAreASet(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		const n, size = 6, 16
		for _, with := range []string{"a receive queue", "an SRQ", "an SRQ with a receive CQ"} {
			var cfg ConnConfig
			into := r.mr(1, n*size, RecvBuf)
			if with != "a receive queue" {
				rcq := -1
				if with == "an SRQ with a receive CQ" {
					rcq = 0
				}
				srq := must.Get(r.peer[1].NewSRQ(&SRQConfig{RQSize: n, RCQSize: rcq}))(t)
				t.Cleanup(func() { must.Do(t, srq.Close()) })
				for i := range n {
					must.Do(t, srq.Recv(into, i*size, size, uint64(100+i)))
				}
				cfg.SRQ = srq
			}
			c, s := r.connect(nil, &cfg, func(q *ConnReq) {
				for i := 0; i < n/2 && cfg.SRQ == nil; i++ {
					must.Do(t, q.Recv(into, i*size, size, uint64(100+i)))
				}
			})
			for i := n / 2; i < n && cfg.SRQ == nil; i++ {
				must.Do(t, s.Recv(into, i*size, size, uint64(100+i)))
			}
			from := r.mr(0, n*size, SendBuf)
			for i := range n {
				copy(from.Bytes()[i*size:], fmt.Sprintf("message %d", i))
				must.Do(t, c.Send(from, i*size, 9, CompletionOnError, 0))
			}
			cq := s.CQ()
			if cfg.SRQ != nil && cfg.SRQ.RCQ() != nil {
				cq = cfg.SRQ.RCQ()
			}
			words, texts := map[uint64]bool{}, map[string]bool{}
			for range n {
				wc := r.next(cq)
				if wc.Err() != nil || wc.Context < 100 || wc.Context >= 100+n || wc.Bytes != 9 || wc.QPNum != s.QPNum() || wc.Opcode != verbs.WCRecv {
					t.Fatalf("%s: the completion of a receive is %+v", with, wc)
				}
				words[wc.Context] = true
				texts[string(into.Bytes()[int(wc.Context-100)*size:][:wc.Bytes])] = true
			}
			for i := range n {
				if m := fmt.Sprintf("message %d", i); !texts[m] || !words[uint64(100+i)] {
					t.Errorf("%s: message %q arrived: %t; receive %d completed: %t; want both", with, m, texts[m], i, words[uint64(100+i)])
				}
			}
			must.Do(t, c.Close(r.ctx))
			must.Do(t, s.Close(r.ctx))
		}
	})
}

// Rule: flags without a completion, or unknown ones, are ErrInvalid. CompletionOnError has no completion on success. Places
// of the send queue, and of the receive queue, are free when the completion of their operation, or of a later
// one, was taken; without a free place an operation is refused with ENOMEM.
func TestContract2FlagsAndPlaces(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		const sq, rq = 4, 3
		c, s := r.connect(&ConnConfig{SQSize: sq}, &ConnConfig{RQSize: rq})
		dst, m := r.remote(r.mr(1, 64, WriteDst|ReadSrc|FlushVisibility)), r.mr(0, 64, WriteSrc|ReadDst|SendBuf)
		for _, f := range []Flags{0, 2, More, CompletionAlways | 8} {
			for op, err := range map[string]error{
				"Read": c.Read(m, 0, dst, 0, 8, f, 1), "Write": c.Write(dst, 0, m, 0, 8, f, 1), "WriteWithImm": c.WriteWithImm(dst, 0, m, 0, 8, f, 1, 1),
				"AtomicWrite": c.AtomicWrite(dst, 0, [8]byte{}, f, 1), "Flush": c.Flush(dst, 0, 8, Visibility, f, 1),
				"Send": c.Send(m, 0, 8, f, 1), "SendWithImm": c.SendWithImm(m, 0, 8, f, 1, 1),
			} {
				isCode(t, fmt.Sprintf("%s with flags %d", op, f), err, ErrInvalid)
			}
		}
		full := func(what string, err error) {
			t.Helper()
			isCode(t, what, err, ErrProvider)
			if !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("%s: the error is %v, want ENOMEM", what, err)
			}
		}
		for round := range 3 {
			for i := range sq - 1 {
				must.Do(t, c.Write(dst, 0, m, 0, 8, CompletionOnError, uint64(i)))
			}
			must.Do(t, c.Write(dst, 0, m, 0, 8, CompletionAlways, 77))
			r.done(c.CQ(), 77) // all earlier ones have succeeded, and have no completion
			r.none(c.CQ(), "after writes with CompletionOnError")
			for i := range sq {
				must.Do(t, c.Write(dst, 0, m, 0, 8, CompletionAlways, uint64(i)))
			}
			full(fmt.Sprintf("round %d: one operation more than ConnConfig.SQSize", round), c.Write(dst, 0, m, 0, 8, CompletionAlways, 9))
			for i := range sq {
				r.done(c.CQ(), uint64(i))
			}
			into := r.mr(1, 64, RecvBuf)
			for i := range rq {
				must.Do(t, s.Recv(into, 0, 8, uint64(i)))
			}
			full("one receive more than ConnConfig.RQSize", s.Recv(into, 0, 8, 9))
			for range rq {
				must.Do(t, c.Send(m, 0, 8, CompletionAlways, 5))
				r.done(c.CQ(), 5)
			}
			full("a receive whose place has a completion that was not taken", s.Recv(into, 0, 8, 9))
			for range rq {
				r.next(s.CQ())
			}
		}
	})
}

// Rule: a goroutine that polls lets others run, though there is one processor.
func TestPollingLetsOthersRun(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(nil, nil)
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	var ran atomic.Bool
	go ran.Store(true)
	const polls = 100 // the Go runtime interrupts the goroutine after 10 ms, tens of thousands of polls
	for n := 0; !ran.Load(); n++ {
		if r.none(c.CQ(), "before operations"); n == polls {
			t.Fatalf("the other goroutine has not run after %d polls", n)
		}
	}
}

// Rule: a poll that finds nothing, and the question whether it did, allocate nothing.
func TestAnEmptyPollAllocatesNothing(t *testing.T) {
	c, _ := newRig(t).connect(nil, nil)
	var wcs [1]WC
	// AllocsPerRun counts all goroutines, and rounds down.
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := c.CQ().GetWC(wcs[:]); !errors.Is(err, ErrNoCompletion) {
			t.Fatalf("a poll of an idle connection returned %v", err)
		}
	}); n != 0 {
		t.Errorf("a poll allocates %v times, want 0", n)
	}
}

// BenchmarkEmptyPoll is a program that polls a connection on which nothing happens.
func BenchmarkEmptyPoll(b *testing.B) {
	for _, at := range append([]bed{mainBed(b)}, nullBeds...) {
		b.Run(at.name, func(b *testing.B) {
			c, _ := at.rig(b).connect(nil, nil)
			var wcs [1]WC
			for b.Loop() {
				if _, err := c.CQ().GetWC(wcs[:]); !errors.Is(err, ErrNoCompletion) {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWrite measures an operation, and taking its completion.
func BenchmarkWrite(b *testing.B) {
	for _, at := range append([]bed{mainBed(b)}, nullBeds...) {
		b.Run(at.name, func(b *testing.B) {
			r := at.rig(b)
			c, _ := r.connect(nil, nil)
			from, dst := r.mr(0, 64, WriteSrc), r.remote(r.mr(1, 64, WriteDst))
			var wcs [1]WC
			for b.Loop() {
				if err := c.Write(dst, 0, from, 0, 64, CompletionAlways, 0); err != nil {
					b.Fatal(err)
				}
				for {
					_, err := c.CQ().GetWC(wcs[:])
					if err == nil {
						break
					}
					if !errors.Is(err, ErrNoCompletion) {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// Rule: GetWC takes several completions, but needs room. After a failure only the word, the status, the
// queue pair and the vendor's error have values, and all later operations fail. With a receive CQ, receives
// never complete to the main CQ.
func TestContract6Completions(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, s := r.connect(nil, &ConnConfig{RCQSize: 1})
		_, err := c.CQ().GetWC(nil)
		isCode(t, "GetWC without room", err, ErrInvalid)
		r.none(c.CQ(), "before operations")
		from, into := r.mr(0, 64, SendBuf|WriteSrc), r.mr(1, 64, RecvBuf|WriteDst)
		dst := r.remote(into)
		must.Do(t, s.Recv(into, 0, 8, 1))
		must.Do(t, s.Recv(into, 8, 8, 2))
		must.Do(t, c.Send(from, 0, 8, CompletionAlways, 3))
		must.Do(t, c.WriteWithImm(dst, 16, from, 0, 8, CompletionAlways, 42, 4))
		kinds := map[verbs.WCOpcode]bool{}
		for range 2 {
			wc := r.next(s.RCQ())
			kinds[wc.Opcode] = true
			if wc.Opcode == verbs.WCRecvRDMAWithImm && (wc.Imm != 42 || wc.Flags&verbs.WCWithImm == 0) {
				t.Errorf("the completion of a WRITE with immediate data is %+v, want the number 42", wc)
			}
		}
		if !kinds[verbs.WCRecv] || !kinds[verbs.WCRecvRDMAWithImm] {
			t.Errorf("the receive CQ has completions of kinds %v, want RECV and RECV_RDMA_WITH_IMM", kinds)
		}
		r.none(s.CQ(), "the main CQ beside a receive CQ")
		r.done(c.CQ(), 3)
		r.done(c.CQ(), 4)
		for i := range 4 {
			must.Do(t, c.Write(dst, 0, from, 0, 8, CompletionAlways, uint64(i)))
		}
		var wcs [10]WC
		for got := 0; got < 4; {
			must.Do(t, c.CQ().Wait(r.ctx))
			n := must.Get(c.CQ().GetWC(wcs[got:]))(t)
			got += n
		}
		for i := range 4 {
			if want := (WC{Context: uint64(i), Opcode: verbs.WCRDMAWrite, QPNum: c.QPNum(), Bytes: wcs[i].Bytes}); wcs[i] != want { // the length is of receives
				t.Errorf("completion %d is %+v, want %+v: completions of one queue come in the order of the operations", i, wcs[i], want)
			}
		}
		wrong := *dst
		wrong.d.rkey ^= 0xff00
		must.Do(t, c.Write(&wrong, 0, from, 0, 8, CompletionOnError, 5))
		wc := r.next(c.CQ())
		if want := (WC{Context: 5, Status: verbs.WCRemAccessErr, VendorErr: wc.VendorErr, QPNum: c.QPNum()}); wc != want {
			t.Errorf("the completion of a failure is %+v, want %+v", wc, want)
		}
		if !errors.Is(wc.Err(), verbs.StatusError(verbs.WCRemAccessErr)) {
			t.Errorf("the error of the completion is %v, want REM_ACCESS_ERR", wc.Err())
		}
		r.event(c, Lost)
		err = c.Write(dst, 0, from, 0, 8, CompletionAlways, 6)
		isCode(t, "a write on a connection that has failed", err, ErrProvider)
		if !errors.Is(err, syscall.ENOTCONN) || !errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr)) {
			t.Errorf("the error is %v, want ENOTCONN and the cause", err)
		}
	})
}

// Rule: Wait returns as long as there is a completion, also one that came before the last Wait. With a shared
// channel only Conn.Wait waits, for both CQs, and says which has a completion; without one, only
// CQ.Wait. A shared channel cannot be combined with an SRQ that has a receive CQ. A wait ends with its
// context, and with the connection.
func TestContract7Waits(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, s := r.connect(nil, &ConnConfig{SharedChannel: true, RCQSize: 4})
		from, into := r.mr(0, 64, SendBuf), r.mr(1, 64, RecvBuf|SendBuf)
		_, _, err := c.Wait(r.ctx)
		isCode(t, "Conn.Wait without a shared channel", err, ErrNotSharedChannel)
		_, err = c.CompletionFD()
		isCode(t, "CompletionFD without a shared channel", err, ErrNotSharedChannel)
		isCode(t, "CQ.Wait with a shared channel", s.CQ().Wait(r.ctx), ErrSharedChannel)
		isCode(t, "CQ.Wait of the receive CQ with a shared channel", s.RCQ().Wait(r.ctx), ErrSharedChannel)
		must.Do(t, s.Recv(into, 0, 8, 1))
		must.Do(t, c.Send(from, 0, 8, CompletionAlways, 2))
		for range 2 { // the completion stays
			must.Do(t, c.CQ().Wait(r.ctx))
			if cq, is, err := s.Wait(r.ctx); cq != s.RCQ() || !is || err != nil {
				t.Fatalf("Conn.Wait returned the receive CQ: %t, %v; want true and nil", is, err)
			}
		}
		r.done(c.CQ(), 2)
		r.done(s.RCQ(), 1)
		must.Do(t, c.Recv(r.mr(0, 8, RecvBuf), 0, 8, 3))
		must.Do(t, s.Send(into, 0, 8, CompletionAlways, 4))
		if cq, is, err := s.Wait(r.ctx); cq != s.CQ() || is || err != nil {
			t.Fatalf("Conn.Wait returned the receive CQ: %t, %v; want false and nil", is, err)
		}
		r.done(s.CQ(), 4)
		srq := must.Get(r.peer[1].NewSRQ(nil))(t)
		_, err = r.peer[1].NewConnReq(r.ctx, r.addr[1], "7", &ConnConfig{SharedChannel: true, SRQ: srq})
		isCode(t, "a shared channel with an SRQ that has a receive CQ", err, ErrInvalid)
		ep, _ := r.listen()
		for what, next := range map[string]func(context.Context, *ConnConfig) (*ConnReq, error){"NextConnReq": ep.NextConnReq, "TryNextConnReq": ep.TryNextConnReq} {
			isCode(t, what+" with a shared channel and an SRQ that has a receive CQ", second(next(r.ctx, &ConnConfig{SharedChannel: true, SRQ: srq})), ErrInvalid)
		}
		must.Do(t, srq.Close())
		ended, end := contextEnded()
		defer end()
		if err := s.RCQ().bell.await(ended); !errors.Is(err, ended.Err()) {
			t.Errorf("a wait with a context that has ended returned %v, want its error", err)
		}
		got := make(chan error, 1)
		go func() { _, _, err := s.Wait(r.ctx); got <- err }()
		must.Do(t, s.Close(r.ctx))
		isCode(t, "a wait of a connection that is closed", <-got, ErrNoCompletion)
	})
}

// Rule: objects may be used by several goroutines at the same time.
func TestContract12Goroutines(t *testing.T) {
	r := newRig(t)
	c, s := r.connect(&ConnConfig{SQSize: 64}, nil)
	into := r.mr(1, 4096, WriteDst)
	dst, from := r.remote(into), r.mr(0, 4096, WriteSrc)
	const workers, each = 4, 50
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			for i := 0; i < each; {
				from.Bytes()[w*8] = byte(w + 1)
				err := c.Write(dst, w*8, from, w*8, 8, CompletionAlways, uint64(w))
				if err == nil {
					i++
				} else if !errors.Is(err, syscall.ENOMEM) {
					t.Error(err)
					return
				}
				m, err := r.peer[0].NewMR(64, SendBuf)
				if err == nil {
					err = m.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	counts := make(chan map[uint64]int, 2)
	var mu sync.Mutex
	left := workers * each
	for range 2 {
		go func() {
			got := map[uint64]int{}
			var wcs [3]WC
			for {
				mu.Lock()
				over := left == 0
				mu.Unlock()
				n, err := 0, error(nil)
				if !over {
					if n, err = c.CQ().GetWC(wcs[:]); errors.Is(err, ErrNoCompletion) {
						continue
					}
				}
				if over || err != nil {
					counts <- got
					return
				}
				for _, wc := range wcs[:n] {
					got[wc.Context]++
				}
				mu.Lock()
				left -= n
				mu.Unlock()
			}
		}()
	}
	work.Wait()
	sum := map[uint64]int{}
	for range 2 {
		for w, n := range <-counts {
			sum[w] += n
		}
	}
	for w := range workers {
		if sum[uint64(w)] != each || into.Bytes()[w*8] != byte(w+1) {
			t.Errorf("goroutine %d had %d completions, and its word is %d; want %d and %d", w, sum[uint64(w)], into.Bytes()[w*8], each, w+1)
		}
	}
	_ = s
}

// Rule: with the default configuration all 20 operations of both queues may complete without one being
// taken, and no completion is lost.
func TestContract13TheDefaultCQHoldsBothQueues(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, s := r.connect(nil, nil)
		if c.CQ().Size() != 2*DefaultQueueSize || c.RCQ() != nil {
			t.Errorf("the default CQ has %d places, want %d", c.CQ().Size(), 2*DefaultQueueSize)
		}
		mine, theirs := r.mr(0, 64, SendBuf|RecvBuf), r.mr(1, 64, SendBuf|RecvBuf)
		for i := range uint64(DefaultQueueSize) {
			must.Do(t, c.Recv(mine, 0, 8, i))
			must.Do(t, s.Recv(theirs, 0, 8, i))
		}
		for i := range uint64(DefaultQueueSize) {
			must.Do(t, c.Send(mine, 8, 8, CompletionAlways, 100+i))
			must.Do(t, s.Send(theirs, 8, 8, CompletionAlways, 100+i))
		}
		for _, end := range []*Conn{c, s} {
			seen := map[uint64]bool{}
			for range 2 * DefaultQueueSize {
				wc := r.next(end.CQ())
				if wc.Err() != nil || seen[wc.Context] {
					t.Fatalf("the completion %+v failed, or is the second of its operation", wc)
				}
				seen[wc.Context] = true
			}
			r.none(end.CQ(), "after all operations")
		}
		for _, cfg := range []struct {
			cfg     ConnConfig
			cq, rcq int
		}{{ConnConfig{CQSize: 50}, 50, 0}, {ConnConfig{CQSize: 1, RCQSize: 1}, 10, 10}, {ConnConfig{SQSize: 3, RQSize: 30}, 33, 0}, {ConnConfig{RCQSize: 40}, 10, 40}} {
			q := must.Get(r.peer[0].NewConnReq(r.ctx, r.addr[1], "7", &cfg.cfg))(t)
			rcq := 0
			if q.conn.RCQ() != nil {
				rcq = q.conn.RCQ().Size()
			}
			if got := q.conn.CQ().Size(); got != cfg.cq || rcq != cfg.rcq {
				t.Errorf("with %+v the CQs have %d and %d places, want %d and %d", cfg.cfg, got, rcq, cfg.cq, cfg.rcq)
			}
			must.Do(t, q.Close(r.ctx))
		}
	})
}
