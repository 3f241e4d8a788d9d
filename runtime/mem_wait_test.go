package runtime

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a call with a context waits for the kernel to pin memory only until the context ends. What the kernel then
// gives is kept in its pool or freed, and the runtime goes on. (The bug: only the wait for the mutex of the memory
// ended with the context.)
func TestWaitsForTheKernelToPinEndWithTheContext(t *testing.T) {
	cfg, plan := failing(t, "ibv_reg_mr", 0)
	cfg.Conn = Options{MessageSize: 128 << 10, MaxMessage: 4 << 20}
	a, b := connected(t, cfg)
	echo(t, a, b) // so that the reactor has memory for requests
	pooled, big := make([]byte, 50_000), make([]byte, 2<<20)
	region := must.Get(b.rt.NewRegion(1<<20, openToPeers))(t)
	remote := must.Get(region.Remote(0, 1<<20))(t)
	for name, call := range map[string]func(ctx context.Context) error{
		"AllocWait":        func(ctx context.Context) error { return failure(a.rt.AllocWait(ctx, 100)) },
		"AllocWait, large": func(ctx context.Context) error { return failure(a.rt.AllocWait(ctx, len(big))) },
		"Start":            func(ctx context.Context) error { return failure(a.Start(ctx, new(SendBytesOp(pooled)))) },
		"SendBytes, large": func(ctx context.Context) error { return failure(a.SendBytes(ctx, big)) },
		"Call":             func(ctx context.Context) error { return failure(a.Call(ctx, new(SendBytesOp(pooled)))) },
		"Dial": func(ctx context.Context) error {
			return failure(a.rt.DialOptions(ctx, "127.0.0.1:1", Options{RecvCredits: 4}))
		},
		"ReadAt of a chunk": func(ctx context.Context) error { return failure(a.At(ctx, remote).ReadAt(make([]byte, 200<<10), 0)) },
	} {
		giveBack := lendAll(a.rt.mem)
		entered, release := plan.Hold("ibv_reg_mr")
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case <-entered:
		case err := <-ended:
			t.Fatalf("%s: %v, and it has pinned nothing", name, err)
		}
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want the error of the context", name, err)
			}
		case <-testContext(t).Done():
			t.Errorf("%s waits for the kernel beyond its context", name)
		}
		release()
		a.rt.MemoryStats() // waits for the mutex: the goroutine that has pinned keeps it until it has given the memory back
		giveBack()
	}
	eventually(t, "no mapped big buffer", func() bool { return bigs(a.rt) == 0 })
	if s := a.rt.MemoryStats(); s.Buffers != s.Receives {
		t.Errorf("%d buffers are leased, %d of them for receives; want no others", s.Buffers, s.Receives)
	}
	mustClose(t, region)
}

// bigs returns how many big buffers are mapped. MemoryStats would unmap the free ones.
func bigs(rt *Runtime) int {
	rt.mem.mu.Lock()
	defer rt.mem.mu.Unlock()
	return rt.mem.bigs
}

// Rule: no call waits until the kernel has freed a large buffer or message: another goroutine frees it soon, also if the
// end of an operation was its last use. (The bug: Reply and the Releases waited, Reply beyond its context; and what an
// operation had used last stayed mapped until a later call.)
func TestLargeMemoryIsFreedBesideItsUser(t *testing.T) {
	cfg, plan := failing(t, "ibv_dereg_mr", 0)
	cfg.Conn = Options{MaxMessage: 4 << 20}
	a, b := connected(t, cfg)
	ctx := testContext(t)
	const n = 2 << 20
	region := must.Get(a.rt.NewRegion(n, verbs.AccessLocalWrite))(t)
	message := new(SendOp(must.Get(region.Slice(0, n))(t))) // not copied, so that only b has a big buffer
	received := func() Message {
		f, err := a.Start(ctx, message)
		m := must.Get(b.RecvWait(ctx))(t)
		done(t, f, err)
		return m
	}
	for name, prepare := range map[string]func() (free func() error){
		"Buffer.Release":  func() func() error { return must.Get(b.rt.Alloc(n))(t).Release },
		"Message.Release": func() func() error { return received().Release },
		"ReleaseMany": func() func() error {
			ms := []Message{received()}
			return func() error { return ReleaseMany(ms) }
		},
		"Reply": func() func() error {
			m := received()
			return func() error { return m.Reply(ctx, new(SendBytesOp(nil))) }
		},
		"the end of an operation": func() func() error {
			buf := must.Get(b.rt.Alloc(n))(t)
			must.Do(t, buf.s.begin())
			must.Do(t, buf.Release())
			return func() error { buf.s.lease.End(); return nil }
		},
	} {
		free := prepare()
		entered, release := plan.Hold("ibv_dereg_mr")
		ended := make(chan error, 1)
		go func() { ended <- free() }()
		select {
		case err := <-ended:
			must.Do(t, err)
			<-entered
		case <-ctx.Done():
			t.Errorf("%s waits for the kernel", name)
		}
		release()
		eventually(t, "the buffer to be unmapped: "+name, func() bool { return bigs(b.rt) == 0 })
	}
	mustClose(t, region)
}

// Rule: the holder of the turn never waits for a goroutine whose window the device allocates or deallocates: messages
// that end a binding, and others, arrive meanwhile. (The bug: a mutex that the holder locks when the peer ends a
// binding was held over both.)
func TestWindowsAreMadeWithoutHoldingUpTheTurn(t *testing.T) {
	for _, op := range []string{"ibv_alloc_mw", "ibv_dealloc_mw"} {
		t.Run(op, func(t *testing.T) { windowsAreMadeBesideTheTurn(t, op) })
	}
}

func windowsAreMadeBesideTheTurn(t *testing.T, op string) {
	cfg, plan := failing(t, op, 0)
	cfg.Conn = Options{Windows: true}
	a, b := connected(t, cfg)
	r, w := opened(t, b, 64)
	at := bound(t, w, r, 0, 8, verbs.AccessRemoteWrite)
	other := must.Get(b.NewWindow())(t)
	entered, release := plan.Hold(op)
	defer release()
	ended := make(chan error, 1)
	go func() {
		if op == "ibv_alloc_mw" {
			ended <- failure(b.NewWindow())
		} else {
			ended <- other.Close()
		}
	}()
	<-entered
	invalidate := SendInvalidateOp(Slice{}, at)
	done(t, must.Get(a.Start(testContext(t), &invalidate))(t), nil)
	if m, err := b.RecvWait(testContext(t)); err != nil || m.Invalidated != w {
		t.Errorf("while the device waits: the message %+v, %v; want one that ends the binding", m, err)
	} else {
		must.Do(t, m.Release())
	}
	release()
	must.Do(t, <-ended)
	mustClose(t, r)
}

// Rule: TryStartTo does not wait for another goroutine that maps memory for requests. (The bug: a mutex was held
// meanwhile, and the holder of the turn waited for it, too.)
func TestTryStartToDoesNotWaitForRequestMemory(t *testing.T) {
	cfg, plan := failing(t, "ibv_reg_mr", 0)
	cfg.Conn = Options{Raw: true}
	server, client := mainBed.open(t, cfg, 1), mainBed.open(t, cfg, 0)
	ln := must.Get(server.Listen(":0"))(t)
	var all [2]*Conn
	for i := range all {
		seat := must.Get(ln.AcceptAsync())(t)
		all[i] = must.Get(client.Dial(testContext(t), ln.Addr().String()))(t)
		peer := must.Get(seat.Await(testContext(t)))(t)
		buf := bufferOf(t, server, make([]byte, 8))
		must.Get(peer.PostRecv(buf.Slice()))(t)
	}
	entered, release := plan.Hold("ibv_reg_mr")
	defer release()
	first, second := make(mailSink, 1), make(mailSink, 1)
	go func() { must.Do(t, all[0].StartTo(testContext(t), new(SendBytesOp([]byte("x"))), first, 1)) }()
	<-entered
	ended := make(chan error, 1)
	go func() { ended <- all[1].TryStartTo(new(SendBytesOp([]byte("y"))), second, 2) }()
	select {
	case err := <-ended:
		must.Do(t, err)
		if got := <-second; got.err != nil {
			t.Errorf("the message completed with %v", got.err)
		}
	case <-testContext(t).Done():
		t.Error("TryStartTo waits for the memory of another connection")
	}
	release()
	if got := <-first; got.err != nil {
		t.Errorf("the first message completed with %v", got.err)
	}
}
