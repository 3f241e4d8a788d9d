package actor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// openPair opens two runtimes and a connection between them.
func openPair(t *testing.T, o verbena.Options) (a, b *verbena.Runtime, ln *verbena.Listener) {
	t.Helper()
	open := func(dev string) *verbena.Runtime {
		rt := must.Get(verbena.Open(verbena.Config{Device: dev, Conn: o}))(t)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), hang)
			defer cancel()
			if err := rt.Close(ctx); err != nil {
				t.Errorf("closing %s: %v", dev, err)
			}
		})
		return rt
	}
	a, b = open("soft0"), open("soft1")
	ln = must.Get(b.Listen("127.0.0.2:0"))(t)
	return a, b, ln
}

// owner is a handler that owns connections; its messages are functions that it runs.
type owner struct {
	made   chan *verbena.Conn
	log    chan string
	keep   bool // messages are not released
	silent bool // completions are not logged
}

func newOwner() *owner {
	return &owner{made: make(chan *verbena.Conn, 10), log: make(chan string, 1000)}
}

func (o *owner) Receive(ctx *Context[do], fn do) { fn(ctx) }

type do func(ctx *Context[do])

func (o *owner) Connection(_ *Context[do], ev ConnEvent) {
	s := fmt.Sprint(ev.Kind, " ", ev.Tag)
	switch ev.Kind {
	case ConnEstablished:
		o.made <- ev.Conn
	case ConnMessage:
		s += " " + string(ev.Message.Data)
		if !o.keep {
			if err := ev.Message.Release(); err != nil {
				s += err.Error()
			}
		}
	default:
		s += " " + ev.Err.Error()
	}
	o.log <- s
}

func (o *owner) Completed(_ *Context[do], c Completion) {
	if o.silent && c.Err == nil {
		return
	}
	s := fmt.Sprint("completed ", c.Tag, " ", c.Result.Value)
	if c.Err != nil {
		s += " " + c.Err.Error()
	}
	o.log <- s
}

func (o *owner) Stopped(*Context[do], error) { o.log <- "stopped" }

func (o *owner) next(w *world, want string) {
	w.t.Helper()
	if got := wait(w, want, o.log); got != want {
		w.t.Errorf("%q, want %q", got, want)
	}
}

// Rule: an actor dials and gets the completions of its operations, its messages and the end of the
// connection in order, on the pool and on a reactor; when it ends nothing is left.
func TestActorOwnsConnection(t *testing.T) {
	for _, on := range []Place{OnPool, OnReactor} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			a, b, ln := openPair(t, verbena.Options{})
			region := must.Get(b.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic|verbs.AccessRemoteWrite))(t)
			defer region.Close()
			remote := must.Get(region.Remote(0, 64))(t)
			w := newWorld(t, Config{Runtime: a})
			o := newOwner()
			r := spawn[do](w, Options{On: on}, o)
			w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
				w.must("dialing", ctx.Dial(ln.Addr().String(), verbena.Options{}, 7))
			}))
			peer, err := ln.Accept(w.ctx)
			w.must("accepting", err)
			o.next(w, "established 7")
			conn := wait(w, "the connection", o.made)
			w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
				for i := range uint64(3) {
					w.must("starting", ctx.Start(conn, i, verbena.FetchAndAddOp(remote, 5)))
				}
				if ctx.Operations() != 3 {
					t.Errorf("%d operations under way, want 3", ctx.Operations())
				}
			}))
			for _, want := range []string{"completed 0 0", "completed 1 5", "completed 2 10"} {
				o.next(w, want)
			}
			for i := range 30 { // more than Receives
				if _, err := peer.SendBytes(w.ctx, fmt.Append(nil, i)); err != nil {
					t.Fatal(err)
				}
			}
			w.must("closing", peer.Close(w.ctx))
			for i := range 30 {
				o.next(w, fmt.Sprintf("message 7 %d", i))
			}
			o.next(w, "closed 7 "+verbena.ErrPeerClosed.Error())
			wait(w, "the connection's end", conn.Gone())
			r.Stop()
			wait(w, "the end", r.Done())
			o.next(w, "stopped")
			expect(t, "dead letters", w.dead(), nil)
		})
	}
}

// Rule: of a connection that has ended the actor keeps nothing, however many of its messages it
// awaited, and owns it until the last of these has come.
func TestEndedConnectionsAreForgotten(t *testing.T) {
	for _, receives := range []int{1, 8} {
		a, _, ln := openPair(t, verbena.Options{})
		w := newWorld(t, Config{Runtime: a})
		o := newOwner()
		r := spawn[do](w, Options{Receives: receives}, o)
		w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
			w.must("dialing", ctx.Dial(ln.Addr().String(), verbena.Options{}, 7))
		}))
		peer, err := ln.Accept(w.ctx)
		w.must("accepting", err)
		o.next(w, "established 7")
		w.must("closing", peer.Close(w.ctx))
		o.next(w, "closed 7 "+verbena.ErrPeerClosed.Error())
		kept := make(chan [2]int, 1)
		for listening := receives; listening > 0; {
			w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
				kept <- [2]int{ctx.cell.listening, len(ctx.cell.links)}
			}))
			k := wait(w, "the number of connections", kept)
			if listening = k[0]; k[1] != min(listening, 1) {
				t.Errorf("of %d messages %d are awaited, of %d connections", receives, listening, k[1])
			}
		}
	}
}

// Rule: a connection that is found while the actor stops is aborted and reported.
func TestConnectionFoundTooLate(t *testing.T) {
	a, _, ln := openPair(t, verbena.Options{})
	w := newWorld(t, Config{Runtime: a})
	go func() { _, _ = ln.Accept(w.ctx) }()
	conn := must.Get(a.Dial(w.ctx, ln.Addr().String()))(t)
	o := newOwner()
	r := spawn[do](w, Options{}, o)
	w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
		w.must("connecting", ctx.cell.connectAsync(7, func(ctx context.Context) (*verbena.Conn, error) {
			<-ctx.Done()
			return conn, nil
		}))
		ctx.Stop()
	}))
	wait(w, "the end", r.Done())
	wait(w, "the connection's end", conn.Gone())
	o.next(w, "stopped")
	if len(w.letters) != 1 || !errors.Is(w.letters[0].Err, ErrStopped) {
		t.Fatalf("dead letters %+v, want one with %v", w.letters, ErrStopped)
	}
	if ev, _ := w.letters[0].What.(ConnEvent); ev.Kind != ConnEstablished || ev.Tag != 7 || ev.Conn != conn {
		t.Errorf("%+v was reported, want the connection with tag 7", w.letters[0].What)
	}
}

// Rule: an actor of a system without a runtime cannot dial.
func TestDialingWithoutARuntimeIsRefused(t *testing.T) {
	w := newWorld(t, Config{})
	got := make(chan error, 1)
	r := spawn[do](w, Options{}, newOwner())
	w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) { got <- ctx.Dial("127.0.0.2:1", verbena.Options{}, 0) }))
	if err := wait(w, "the answer", got); !errors.Is(err, ErrConfig) {
		t.Errorf("got %v, want ErrConfig", err)
	}
}

// Rule: operations without room do not block the handler, start in order, and each completes once.
func TestOperationsWithoutRoomWait(t *testing.T) {
	const ops = 500
	a, _, ln := openPair(t, verbena.Options{SendDepth: 4, RecvCredits: 3})
	w := newWorld(t, Config{Runtime: a})
	served := make(chan *verbena.Conn, 1)
	go func() {
		peer, err := ln.Accept(w.ctx)
		if err != nil {
			t.Error(err)
		}
		served <- peer
	}()
	conn, err := a.Dial(w.ctx, ln.Addr().String())
	w.must("dialing", err)
	peer := wait(w, "the peer", served)
	o := newOwner()
	r := spawn[do](w, Options{}, o)
	returned := make(chan struct{})
	w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
		w.must("owning", ctx.Own(conn, 0))
		if err := ctx.Own(conn, 1); !errors.Is(err, ErrConfig) {
			w.t.Errorf("owning it twice: %v, want %v", err, ErrConfig)
		}
		text := make([]byte, 3)
		for i := range ops {
			copy(text, fmt.Sprintf("%03d", i)) // waiting data was copied
			w.must("starting", ctx.Start(conn, uint64(i), verbena.SendBytesOp(text)))
		}
		close(returned)
	}))
	wait(w, "the handler, which does not wait,", returned)
	for i := range ops {
		m, err := peer.RecvWait(w.ctx)
		w.must("receiving", err)
		if string(m.Data) != fmt.Sprintf("%03d", i) {
			t.Errorf("message %q, want %03d", m.Data, i)
		}
		w.must("releasing", m.Release())
	}
	for i := range ops {
		o.next(w, fmt.Sprintf("completed %d 0", i))
	}
	r.Stop()
	wait(w, "the end", r.Done())
}

// Rule: an operation larger than one work request allows is started in pieces without blocking the
// handler, like one without room.
func TestLargeOperationsStart(t *testing.T) {
	prov := must.Get(soft.New(soft.Config{Devices: []soft.DeviceConfig{
		{Name: "small0", Addr: netip.MustParseAddr("127.0.0.9"), Limits: soft.Limits{MaxMsgSize: 4096}},
	}, Fabric: fabric.New(fabric.Config{})}))(t)
	rt := must.Get(verbena.Open(verbena.Config{Provider: prov, Conn: verbena.Options{MessageSize: 1024}}))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Errorf("closing the runtime: %v", err)
		}
	})
	w := newWorld(t, Config{Runtime: rt})
	ln, err := rt.Listen(":0")
	w.must("listening", err)
	go func() { _, _ = ln.Accept(w.ctx) }()
	conn, err := rt.Dial(w.ctx, ln.Addr().String())
	w.must("dialing", err)
	region, err := rt.NewRegion(3*4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	w.must("registering", err)
	local, err := region.Slice(0, region.Len())
	w.must("slicing", err)
	remote, err := region.Remote(0, region.Len())
	w.must("opening", err)
	o := newOwner()
	r := spawn[do](w, Options{}, o)
	w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
		w.must("owning", ctx.Own(conn, 0))
		w.must("starting", ctx.Start(conn, 7, verbena.WriteOp(local, remote)))
	}))
	o.next(w, "completed 7 0")
	r.Stop()
	wait(w, "the end", r.Done())
}

// Rule: operations are bounded; a refused one has no completion.
func TestOperationsAreBounded(t *testing.T) {
	a, _, ln := openPair(t, verbena.Options{RecvCredits: 2})
	w := newWorld(t, Config{Runtime: a})
	go func() { _, _ = ln.Accept(w.ctx) }()
	conn, err := a.Dial(w.ctx, ln.Addr().String())
	w.must("dialing", err)
	o := newOwner()
	o.silent = true
	r := spawn[do](w, Options{Operations: 10}, o)
	refused := make(chan error, 1)
	w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
		w.must("owning", ctx.Own(conn, 0))
		for {
			if err := ctx.Start(conn, 1, verbena.SendBytesOp([]byte("x"))); err != nil {
				refused <- err
				return
			}
		}
	}))
	if err := wait(w, "the bound", refused); !errors.Is(err, ErrTooMany) {
		t.Errorf("beyond Operations: %v, want ErrTooMany", err)
	}
	r.StopNow() // the peer receives nothing: waiting operations cannot complete
	wait(w, "the end", r.Done())
	select {
	case <-conn.Done():
	default:
		t.Error("the actor has ended, its connection not")
	}
	n := 0
	for _, l := range w.letters {
		if c, ok := l.What.(Completion); ok && c.Tag == 1 {
			n++
			if !errors.Is(l.Err, ErrStopped) {
				t.Errorf("a completion was reported with %v, want ErrStopped", l.Err)
			}
		}
	}
	if n < 8 || n > 10 { // two had room, and may have completed before
		t.Errorf("%d completions were reported, want those of the 8 that waited", n)
	}
}

// Rule: a failure ends the connections and outstanding operations of the instance; their
// completions are reported, and none reaches the next instance.
func TestFailureEndsConnections(t *testing.T) {
	a, _, ln := openPair(t, verbena.Options{RecvCredits: 2})
	clock := newFakeClock()
	w := newWorld(t, Config{Runtime: a, Clock: clock})
	go func() { _, _ = ln.Accept(w.ctx) }()
	conn, err := a.Dial(w.ctx, ln.Addr().String())
	w.must("dialing", err)
	o := newOwner()
	o.silent = true
	r := spawn[do](w, Options{}, o)
	w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
		w.must("owning", ctx.Own(conn, 0))
		for range 10 {
			w.must("starting", ctx.Start(conn, 1, verbena.SendBytesOp([]byte("x"))))
		}
		panic(errBoom)
	}))
	d := wait(w, "the backoff", clock.made)
	o.next(w, "stopped")
	wait(w, "the connection's end", conn.Gone())
	clock.move(d)
	again := make(chan struct{})
	w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) { close(again) }))
	wait(w, "the next instance", again)
	r.Stop()
	wait(w, "the end", r.Done())
	o.next(w, "stopped")
	if len(o.log) > 0 {
		t.Errorf("the next instance heard %q", <-o.log)
	}
}

// Rule: stopping cancels an Accept without a dialer and a Dial without an answer.
func TestStopGivesUpSeeking(t *testing.T) {
	a, b, ln := openPair(t, verbena.Options{})
	quiet, err := b.ListenOptions("127.0.0.2:0", verbena.Options{Raw: true}) // without an Accept
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, Config{Runtime: a})
	o := newOwner()
	sought := make(chan struct{})
	r := spawn[do](w, Options{}, o)
	w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
		w.must("accepting", ctx.Accept(ln, 1))
		w.must("dialing", ctx.Dial(quiet.Addr().String(), verbena.Options{Raw: true}, 2))
		if ctx.Start(nil, 0, verbena.Op{}) == nil || ctx.Own(nil, 0) == nil || ctx.Accept(nil, 0) == nil {
			t.Error("nothing was taken for something")
		}
		close(sought)
	}))
	wait(w, "the handler", sought)
	start := time.Now()
	r.Stop()
	wait(w, "the end", r.Done())
	if d := time.Since(start); d > verbena.DefaultConnectTimeout/2 {
		t.Errorf("stopping took %v", d)
	}
	for range 2 {
		if got := wait(w, "a failure", o.log); got[:6] != "failed" {
			t.Errorf("%q, want failed", got)
		}
	}
	o.next(w, "stopped")
}

// Rule: in steady state a completion costs no allocation, from Start to Completed.
func TestCompletionsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, on := range []Place{OnPool, OnReactor} {
		a, b, ln := openPair(t, verbena.Options{})
		region := must.Get(b.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic))(t)
		defer region.Close()
		remote := must.Get(region.Remote(0, 64))(t)
		w := newWorld(t, Config{Runtime: a})
		go func() { _, _ = ln.Accept(w.ctx) }()
		conn, err := a.Dial(w.ctx, ln.Addr().String())
		w.must("dialing", err)
		p := &pump{conn: conn, remote: remote, done: make(chan struct{}, 1)}
		r := spawn[int](w, Options{On: on}, p)
		round := func() {
			if err := r.Tell(w.ctx, 16); err != nil {
				t.Fatal(err)
			}
			<-p.done
		}
		round()
		if n := testing.AllocsPerRun(500, round); n >= 1 {
			t.Errorf("on %d: %v allocations for 256 operations, want 0", on, n)
		}
		r.Stop()
		wait(w, "the end", r.Done())
	}
}

// pump starts as many operations as a message says, and 15 more for each.
type pump struct {
	conn   *verbena.Conn
	remote verbena.Remote
	left   int
	done   chan struct{}
}

func (p *pump) Receive(ctx *Context[int], n int) {
	p.left = 16 * n
	for range n {
		p.start(ctx)
	}
}

func (p *pump) start(ctx *Context[int]) {
	if err := ctx.Start(p.conn, 15, verbena.FetchAndAddOp(p.remote, 1)); err != nil {
		panic(err)
	}
}

func (p *pump) Completed(ctx *Context[int], c Completion) {
	if c.Err != nil {
		panic(c.Err)
	}
	if p.left--; p.left == 0 {
		p.done <- struct{}{}
	} else if p.left >= 16 {
		p.start(ctx)
	}
}
