package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// plugRig has three removable devices, named a, b and c, and a runtime on each device.
type plugRig struct {
	t       testing.TB
	p       *soft.Provider
	a, b, c *Runtime
}

func newPlugRig(t testing.TB, cfg Config) *plugRig {
	t.Helper()
	notOnDevice(t, "the test removes devices by a method of the software RNIC")
	p := must.Get(soft.New(soft.Config{Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{
		{Name: "a", Addr: netip.MustParseAddr("10.1.0.1")}, {Name: "b", Addr: netip.MustParseAddr("10.1.0.2")},
		{Name: "c", Addr: netip.MustParseAddr("10.1.0.3")},
	}}))(t)
	r := &plugRig{t: t, p: p}
	for name, rt := range map[string]**Runtime{"a": &r.a, "b": &r.b, "c": &r.c} {
		cfg.Provider, cfg.Device = p, name
		*rt = mustOpen(t, cfg) // at the end of the test, mustOpen closes the runtime and checks the error
	}
	return r
}

// connect connects two runtimes. It returns the dialing end x and the accepted end y.
func (r *plugRig) connect(from, to *Runtime, o Options) (x, y *Conn) {
	r.t.Helper()
	ctx := testContext(r.t)
	there := o
	there.Shared = nil // o.Shared belongs to the runtime that dials
	ln, err := to.ListenOptions(":0", there)
	if err != nil {
		r.t.Fatal(err)
	}
	seat, err := ln.AcceptAsync()
	if err != nil {
		r.t.Fatal(err)
	}
	if x, err = from.DialOptions(ctx, ln.Addr().String(), o); err != nil {
		r.t.Fatal(err)
	}
	if y, err = seat.Await(ctx); err != nil {
		r.t.Fatal(err)
	}
	return x, y
}

// lost() checks that err is ErrDeviceRemoved.
func lost(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, verbs.ErrDeviceRemoved) {
		t.Errorf("%s ended with %v, want ErrDeviceRemoved", what, err)
	}
}

// underWay maps the name of an outstanding operation to a function that waits for its error.
type underWay map[string]func(context.Context) error

func wait[T any](f interface {
	Await(context.Context) (T, error)
}) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := f.Await(ctx)
		return err
	}
}

// begin() starts operations on r.a that cannot complete: sends, receives, dials, accepts and
// lookups. Some of them are posted, and others wait for a slot, a credit or a message. begin()
// returns the operations, the connections, and the buffers of the receives. The peers of the
// connections are on r.b.
func (r *plugRig) begin() (ops underWay, conns []*Conn, bufs []Buffer) {
	t, ctx := r.t, testContext(r.t)
	t.Helper()
	ops = underWay{}
	for range 2 {
		b := must.Get(r.a.Alloc(64))(t)
		bufs = append(bufs, b)
	}
	buf, sharedBuf := bufs[0], bufs[1]
	// These sends are posted. They do not complete, because the peer has no receive.
	raw, _ := r.connect(r.a, r.b, Options{Raw: true, SendDepth: 2})
	for _, name := range []string{"the first posted send", "the second posted send"} {
		f := must.Get(raw.SendBytes(ctx, []byte("posted")))(t)
		ops[name] = wait(&f)
	}
	f := must.Get(raw.PostRecv(buf.Slice()))(t)
	ops["a posted receive"] = wait(&f)
	later := func(name string, fn func() error) {
		began, got := make(chan struct{}), make(chan error, 1)
		go func() { close(began); got <- fn() }()
		<-began
		ops[name] = func(ctx context.Context) error {
			select {
			case err := <-got:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	later("a send that waits for a slot", func() error {
		f, err := raw.SendBytes(ctx, []byte("waits"))
		if err == nil {
			_, err = f.Await(ctx)
		}
		return err
	})
	managed, _ := r.connect(r.a, r.b, Options{RecvCredits: 1})
	for i := range 2 { // soon no credit is left, because the peer takes no messages and returns no credits
		later(fmt.Sprintf("send %d that waits for a credit", i), func() error {
			for {
				f, err := managed.SendBytes(ctx, []byte("credit"))
				if err == nil {
					_, err = f.Await(ctx)
				}
				if err != nil {
					return err
				}
			}
		})
	}
	m := managed.Recv()
	ops["a receive that waits for a message"] = wait(&m)
	d, err := r.a.DialAsync(ctx, "10.1.0.99:7", Options{}) // no host has this address
	if err != nil {
		t.Fatal(err)
	}
	ops["a dial in progress"] = wait(&d)
	packets := must.Get(r.a.ListenPacket(":0", Options{}))(t)
	later("a Resolve in progress", func() error { _, err := packets.Resolve(ctx, "10.1.0.99:7"); return err })
	later("a receive that waits for a datagram", func() error { _, err := packets.RecvWait(ctx); return err })
	shared := must.Get(r.a.NewSharedRecv(4, 1))(t)
	r.connect(r.a, r.b, Options{Raw: true, Shared: shared})
	sf := must.Get(shared.PostRecv(sharedBuf.Slice()))(t)
	ops["a shared receive"] = wait(&sf)
	ln := must.Get(r.a.Listen(":0"))(t)
	later("an Accept in progress", func() error { _, err := ln.Accept(ctx); return err })
	s := must.Get(ln.AcceptAsync())(t)
	ops["an AcceptAsync in progress"] = wait(&s)
	return ops, []*Conn{raw, managed}, bufs
}

// Rule: if the device is removed, every operation ends with ErrDeviceRemoved, in whatever state the
// operation is. The connections fail with ErrDeviceRemoved, and calls of Dial, Listen and NewRegion
// return ErrDeviceRemoved. The runtime can be closed. The other devices continue to work. After the
// removed device is restored, a new runtime on it works.
func TestRemovedDeviceEndsEverything(t *testing.T) {
	for name, cfg := range map[string]Config{
		"waiting goroutines drive": {}, "only the loop makes passes": {NoCallerDriving: true, Spin: -1}, "two reactors": {Reactors: 2, Spin: -1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPlugRig(t, cfg)
			ctx := testContext(t)
			x, y := r.connect(r.b, r.c, Options{})
			ops, conns, bufs := r.begin()
			if err := r.p.Remove("a"); err != nil {
				t.Fatal(err)
			}
			for what, end := range ops {
				lost(t, what, end(ctx))
			}
			for _, b := range bufs {
				if err := b.Release(); err != nil {
					t.Errorf("releasing the buffer of a receive that has ended: %v, want nil", err)
				}
			}
			for _, c := range conns {
				<-c.Done()
				lost(t, "the connection", c.Err())
				_, err := c.SendBytes(ctx, []byte("more"))
				lost(t, "a send after the removal", err)
			}
			_, err := r.a.Dial(ctx, "10.1.0.2:7")
			lost(t, "dialing", err)
			_, err = r.a.Listen(":0")
			lost(t, "listening", err)
			_, err = r.a.NewRegion(4096, verbs.AccessLocalWrite)
			lost(t, "registering", err)
			done(t, must.Get(x.SendBytes(ctx, []byte("still here")))(t), nil)
			receive(t, y, "still here")
			if err := r.a.Close(ctx); err != nil {
				t.Errorf("closing the runtime of a removed device: %v, want nil", err)
			}
			if err := r.p.Restore("a"); err != nil {
				t.Fatal(err)
			}
			again := mustOpen(t, Config{Provider: r.p, Device: "a"})
			x, y = r.connect(again, r.b, Options{})
			done(t, must.Get(x.SendBytes(ctx, []byte("again")))(t), nil)
			receive(t, y, "again")
		})
	}
}

// receive() receives one message, and checks that its data is want.
func receive(t testing.TB, c *Conn, want string) {
	t.Helper()
	m, err := c.RecvWait(testContext(t))
	if err != nil || string(m.Data) != want {
		t.Fatalf("received the message %q, error %v, want the message %q", m.Data, err, want)
	}
	if err := m.Release(); err != nil {
		t.Error(err)
	}
}

// teller is a provider whose device can report a removal in two ways. After the test has set
// teller.fails, every Execute returns ErrDeviceRemoved. To report an event, the test sends the event on
// teller.fatal, and then calls the function in teller.ring. The teller itself is the asynchronous
// channel of the device.
type teller struct {
	verbs.Provider
	fails atomic.Bool
	fatal chan verbs.AsyncEvent
	ring  atomic.Pointer[func()] // the function that the runtime gave to Notify
}

func (p *teller) Open(name string) (verbs.Context, error) {
	c, err := p.Provider.Open(name)
	return &tellerContext{c, p}, err
}

type tellerContext struct {
	verbs.Context
	p *teller
}

func (c *tellerContext) Execute(t *verbs.IOBatch) error {
	if c.p.fails.Load() {
		return verbs.ErrDeviceRemoved
	}
	return c.Context.Execute(t)
}

func (c *tellerContext) Async() verbs.AsyncChannel { return c.p }

func (p *teller) FD() int { return -1 }

func (p *teller) Notify(ring func()) {
	p.ring.Store(&ring)
	if ring != nil {
		ring()
	}
}

func (p *teller) Get() (verbs.AsyncEvent, bool, error) {
	select {
	case ev := <-p.fatal:
		return ev, true, nil
	default:
		return verbs.AsyncEvent{}, false, nil
	}
}

func (p *teller) Ack(verbs.AsyncEvent) {}

// Rule: one report of a removal ends all connections and listeners of the runtime, even if the
// reactors sleep. A report is an ErrDeviceRemoved that Execute returns to a pass, a DEVICE_FATAL event,
// or a DEVICE_REMOVAL event.
func TestEachTellerIsEnough(t *testing.T) {
	notOnDevice(t, "the test wraps the device of the software RNIC")
	for name, tell := range map[string]func(p *teller, c *Conn){
		"a failed pass": func(p *teller, c *Conn) {
			p.fails.Store(true)
			c.sh.r.Defer(func() {}) // causes a pass
		},
		"DEVICE_FATAL": func(p *teller, c *Conn) {
			p.fatal <- verbs.AsyncEvent{Type: verbs.EventDeviceFatal}
			(*p.ring.Load())()
		},
		"DEVICE_REMOVAL": func(p *teller, c *Conn) {
			c.sh.r.Defer(func() { c.onCM(&verbs.CMEvent{Type: verbs.CMDeviceRemoval, ID: c.id.(verbs.CMID)}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &teller{Provider: soft.Default(), fatal: make(chan verbs.AsyncEvent, 1)}
			rt := mustOpen(t, Config{Provider: p, Device: "soft0", Reactors: 2, NoCallerDriving: true, Spin: -1})
			r := &plugRig{t: t, a: rt, b: mustOpen(t, Config{Device: second.name})}
			ctx := testContext(t)
			var conns []*Conn
			for range 3 { // at least one on each reactor
				c, _ := r.connect(r.a, r.b, Options{Raw: true})
				conns = append(conns, c)
			}
			ln, err := rt.Listen(":0")
			if err != nil {
				t.Fatal(err)
			}
			seat := must.Get(ln.AcceptAsync())(t)
			f := must.Get(conns[2].SendBytes(ctx, []byte("posted")))(t)
			tell(p, conns[0])
			_, err = f.Await(ctx)
			lost(t, "the send", err)
			_, err = seat.Await(ctx)
			lost(t, "AcceptAsync", err)
			for _, c := range conns {
				select {
				case <-c.Done():
					lost(t, "the connection", c.Err())
				case <-ctx.Done():
					t.Fatal("a connection did not end after the report of the removal")
				}
			}
		})
	}
}

// Rule: messages whose completions were polled before the removal of the device can still be received.
// When no such message is left, a receive fails with ErrDeviceRemoved.
func TestArrivedMessagesOutliveTheDevice(t *testing.T) {
	r := newPlugRig(t, Config{})
	ctx := testContext(t)
	x, y := r.connect(r.b, r.a, Options{})
	for _, s := range []string{"first", "second"} {
		done(t, must.Get(x.SendBytes(ctx, []byte(s)))(t), nil)
	}
	// RecvWait and Flush poll the completions of both messages. A completion that was not polled before
	// the removal is lost.
	first, err := y.RecvWait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := y.sh.r.Do(ctx, y.sh.r.Flush); err != nil {
		t.Fatal(err)
	}
	if err := r.p.Remove("a"); err != nil {
		t.Fatal(err)
	}
	<-y.Done()
	receive(t, y, "second")
	_, err = y.RecvWait(ctx)
	lost(t, "the next receive", err)
	if string(first.Data) != "first" {
		t.Errorf("the data of a message that was received before the removal is now %q, want \"first\"", first.Data)
	}
	if err := first.Release(); err != nil {
		t.Error(err)
	}
}

// Rule: if a port is down for a moment, no connection ends. The functions given to WatchDevice get
// the events of the port.
func TestConnectionSurvivesAShortOutage(t *testing.T) {
	r := newPlugRig(t, Config{})
	ctx := testContext(t)
	x, y := r.connect(r.a, r.b, Options{})
	seen := make(chan verbs.AsyncEventType, 4)
	stop := r.a.WatchDevice(func(ev DeviceEvent) { seen <- ev.Type })
	defer stop()
	if err := r.p.SetPort("a", false); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != verbs.EventPortErr {
		t.Fatalf("after the port went down, WatchDevice reported %v, want PORT_ERR", got)
	}
	f := must.Get(x.SendBytes(ctx, []byte("across")))(t)
	if err := x.sh.r.Do(ctx, x.sh.r.Flush); err != nil { // posts the message, whose packets are lost
		t.Fatal(err)
	}
	if err := r.p.SetPort("a", true); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != verbs.EventPortActive {
		t.Fatalf("after the port came up, WatchDevice reported %v, want PORT_ACTIVE", got)
	}
	done(t, f, nil)
	receive(t, y, "across")
	if x.Err() != nil || y.Err() != nil {
		t.Fatalf("Err of the dialing end is %v, and Err of the accepted end is %v, want nil for both", x.Err(), y.Err())
	}
}
