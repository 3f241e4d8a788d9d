package runtime

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	stdruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// rudeContext is a context for tests. Its method Done first calls the function in the field done. Its
// method Err first calls the function in the field err.
type rudeContext struct {
	context.Context
	done, err func()
}

func (c rudeContext) Done() <-chan struct{} { c.done(); return c.Context.Done() }
func (c rudeContext) Err() error            { c.err(); return c.Context.Err() }

// contextRig is a connection with few resources. fill() uses them up: it sends a message, which takes the
// peer's only receive, and fills the send queue with WRITEs that are not answered.
type contextRig struct {
	t      *testing.T
	link   *fabric.Fabric
	a, b   *Conn
	local  Slice
	remote Remote
	region [2]*Region
	window *Window
	out    []Future // the WRITEs that fill has started
	asked  int      // how often Done of the rudeContext was called
}

const contextDepth = 2 // slots of the send queue

func newContextRig(t *testing.T) *contextRig {
	t.Helper()
	p, link := smallPorts(t, 1000)
	r := &contextRig{t: t, link: link}
	r.a, r.b = connected(t, Config{Provider: p, Conn: Options{SendDepth: contextDepth, RecvCredits: 1, MessageSize: 512, Recorder: 8}})
	var err error
	for i, c := range []*Conn{r.a, r.b} {
		r.region[i] = must.Get(c.rt.NewRegion(4096, allAccess|verbs.AccessMWBind))(t)
	}
	if r.local, err = r.region[0].Slice(0, 8); err != nil {
		t.Fatal(err)
	}
	r.remote = must.Get(r.region[1].Remote(0, 4000))(t)
	r.window = must.Get(r.a.NewWindow())(t)
	return r
}

// fill() uses up the peer's receive, and then takes the link down. If sends is true, it also fills the
// send queue with WRITEs.
func (r *contextRig) fill(sends bool) {
	r.t.Helper()
	f, err := r.a.SendBytes(testContext(r.t), []byte("x"))
	done(r.t, f, err)
	r.link.SetAll(fabric.Link{Down: true})
	for range contextDepth {
		if !sends {
			break
		}
		f, err := r.a.Write(testContext(r.t), r.local, r.remote)
		if err != nil {
			r.t.Fatal(err)
		}
		r.out = append(r.out, f)
	}
}

// whole() brings the link up again. It checks that all slots and credits are available, and that the
// window, the regions and the runtimes can be closed.
func (r *contextRig) whole() {
	t, ctx := r.t, testContext(r.t)
	t.Helper()
	r.link.SetAll(fabric.Link{})
	for _, f := range r.out {
		if _, err := f.Await(ctx); err != nil {
			t.Errorf("a WRITE of fill failed after the link was up again: %v", err)
		}
	}
	if m, err := r.b.RecvWait(ctx); err != nil || m.Release() != nil {
		t.Errorf("receiving the message of fill after the link was up again: %v", err)
	}
	ended := make(chan error, contextDepth)
	for range 2 * contextDepth { // each message needs a slot and the only credit
		f, err := r.a.SendBytes(ctx, []byte("y"))
		if err == nil {
			_, err = f.Await(ctx)
		}
		if err != nil {
			t.Fatalf("sending a message after the link was up again: %v", err)
		}
		if m, err := r.b.RecvWait(ctx); err != nil || m.Release() != nil {
			t.Fatalf("receiving a message after the link was up again: %v", err)
		}
	}
	r.link.SetAll(fabric.Link{Down: true})
	for range contextDepth {
		op := WriteOp(r.local, r.remote)
		if err := r.a.TryStartTo(&op, sinkFunc(func(_ Result, err error) { ended <- err }), 0); err != nil {
			t.Errorf("no send was outstanding, but TryStartTo returned %v; want %d WRITEs to start", err, contextDepth)
			ended <- nil
		}
	}
	r.link.SetAll(fabric.Link{})
	for range contextDepth {
		if err := arrives(t, "the end of a WRITE", ended); err != nil {
			t.Errorf("a WRITE of TryStartTo ended with %v, want success", err)
		}
	}
	if err := r.window.Close(); err != nil {
		t.Errorf("closing the window: %v, want nil", err)
	}
	for _, region := range r.region {
		if err := region.Close(); err != nil {
			t.Errorf("closing a region: %v, want nil", err)
		}
	}
	for _, rt := range []*Runtime{r.a.rt, r.b.rt} {
		closed := make(chan error, 1)
		go func() { closed <- rt.Close(ctx) }()
		if err := arrives(t, "the return of Runtime.Close", closed); err != nil {
			t.Errorf("Runtime.Close: %v, want nil", err)
		}
	}
}

// contextCalls are calls that take a context and may wait. If sends is true, the call waits for a slot.
// Otherwise the call waits for a credit, a message, a connection, or the end of its own operation.
var contextCalls = map[string]struct {
	sends bool // fill() must fill the send queue before the call
	call  func(r *contextRig, ctx context.Context) error
}{
	"Write": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Write(ctx, r.local, r.remote)
		return err
	}},
	"Start of a WRITE from several slices": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Start(ctx, new(WriteVOp([]Slice{r.local, r.local}, r.remote)))
		return err
	}},
	"Write of several fragments": {true, func(r *contextRig, ctx context.Context) error {
		s, err := r.region[0].Slice(0, 3000)
		if err == nil {
			_, err = r.a.Write(ctx, s, r.remote)
		}
		return err
	}},
	"Start of a WRITE with immediate": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Start(ctx, new(WriteOp(r.local, r.remote).Imm(1)))
		return err
	}},
	"Send": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Send(ctx, r.local)
		return err
	}},
	"SendBytes": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.SendBytes(ctx, []byte("z"))
		return err
	}},
	"SendBytes of 500 bytes": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.SendBytes(ctx, make([]byte, 500))
		return err
	}},
	"Start of a FETCH_ADD": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Start(ctx, new(FetchAndAddOp(r.remote, 1)))
		return err
	}},
	"Window.Bind": {true, func(r *contextRig, ctx context.Context) error {
		_, _, err := r.window.Bind(ctx, r.region[0], 0, 8, verbs.AccessRemoteRead)
		return err
	}},
	"Do of a WRITE, without a free slot": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Do(ctx, new(WriteOp(r.local, r.remote)))
		return err
	}},
	"Do of a WRITE": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Do(ctx, new(WriteOp(r.local, r.remote)))
		return err
	}},
	"Do of a SEND": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Do(ctx, new(SendOp(r.local)))
		return err
	}},
	"Await of a future": {false, func(r *contextRig, ctx context.Context) error {
		f, err := r.a.Batch().Start(context.Background(), new(WriteOp(r.local, r.remote)))
		if err == nil {
			_, err = f.Await(ctx)
		}
		return err
	}},
	"DoAll of one operation": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.DoAll(ctx, []Op{WriteOp(r.local, r.remote)}, nil)
		return err
	}},
	"DoAll of two operations, without a free slot": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.DoAll(ctx, []Op{WriteOp(r.local, r.remote), ReadOp(r.local, r.remote)}, nil)
		return err
	}},
	"Batch.StartAll": {true, func(r *contextRig, ctx context.Context) error {
		var fs [2]Future
		_, err := r.a.Batch().StartAll(ctx, []Op{WriteOp(r.local, r.remote), FetchAndAddOp(r.remote, 1)}, fs[:])
		return err
	}},
	"ReadAt": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.At(ctx, r.remote).ReadAt(make([]byte, 8), 0)
		return err
	}},
	"WriteAt, without a free slot": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.At(ctx, r.remote).WriteAt(make([]byte, 8), 0)
		return err
	}},
	"RecvWait": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.RecvWait(ctx)
		return err
	}},
	"Accept": {false, func(r *contextRig, ctx context.Context) error {
		ln, err := r.a.rt.Listen(":0")
		if err == nil {
			_, err = ln.Accept(ctx)
		}
		return err
	}},
	"Dial": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.rt.Dial(ctx, "127.0.0.2:9")
		return err
	}},
}

// Rule: the runtime holds no slot, credit, lease or turn while it calls a method of the user's context.
// So the method may panic, end its goroutine or call the runtime. If it panics or ends its goroutine,
// only the call that got the context is affected. If the call returns because its context has ended, it
// returns the context's error.
func TestContextsOfUsersKeepNothing(t *testing.T) {
	notOnDevice(t, "the test makes devices of its own")
	nothing := func(*contextRig) {}
	ways := map[string]struct{ done, err func(r *contextRig) }{
		"Done panics": {func(*contextRig) { panic(errRude) }, nothing},
		"Done panics the second time": {func(r *contextRig) {
			if r.asked++; r.asked > 1 {
				panic(errRude)
			}
		}, nothing},
		"Done ends the goroutine": {func(*contextRig) { stdruntime.Goexit() }, nothing},
		"Done calls Recorded":     {func(r *contextRig) { r.a.Recorded() }, nothing},
		"Err panics":              {nothing, func(*contextRig) { panic(errRude) }},
		"Err ends the goroutine":  {nothing, func(*contextRig) { stdruntime.Goexit() }},
		"Err calls Recorded":      {nothing, func(r *contextRig) { r.a.Recorded() }},
	}
	for what, c := range contextCalls {
		for how, way := range ways {
			t.Run(what+"/"+how, func(t *testing.T) {
				r := newContextRig(t)
				r.fill(c.sends)
				inner, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
				defer cancel()
				ctx := rudeContext{inner, func() { way.done(r) }, func() { way.err(r) }}
				over := make(chan struct{})
				var err error
				var caught any
				returned := false
				go func() {
					defer close(over)
					defer func() { caught = recover() }()
					err = c.call(r, ctx)
					returned = true
				}()
				arrives(t, "the end of the call", over)
				if returned && !errors.Is(err, context.DeadlineExceeded) && what != "Dial" {
					t.Errorf("the call returned %v, want %v", err, context.DeadlineExceeded)
				}
				if caught != nil && caught != errRude {
					t.Errorf("the call panicked with %v, want no panic, or the panic %v of the context's method", caught, errRude)
				}
				r.whole()
			})
		}
	}
}

// moreCalls are further calls that take a context, and what they use.
type moreCalls struct {
	*contextRig
	ln       *Listener
	packets  *PacketConn
	prepared *Prepared
	raw      *Listener
	pending  *Pending
}

func newMoreCalls(t *testing.T) *moreCalls {
	r := newContextRig(t)
	m := &moreCalls{contextRig: r, ln: must.Get(r.a.rt.Listen(":0"))(t)}
	m.packets = must.Get(r.a.rt.ListenPacket(":0", Options{}))(t)
	m.prepared = must.Get(r.a.rt.Prepare(PlainOptions{}))(t)
	m.raw = listenRaw(t, r.a.rt)
	m.pending = prepareDial(t, r.a.rt, m.raw)
	return m
}

// calls returns all calls with ctx, apart those that end something.
func (m *moreCalls) calls(ctx context.Context) (starts, ends map[string]func() error) {
	r, ln, packets, prepared, raw, pending := m.contextRig, m.ln, m.packets, m.prepared, m.raw, m.pending
	starts = map[string]func() error{
		"Dial":                            func() error { _, err := r.a.rt.Dial(ctx, "127.0.0.2:9"); return err },
		"DialAsync":                       func() error { _, err := r.a.rt.DialAsync(ctx, "127.0.0.2:9", Options{}); return err },
		"DialPlain":                       func() error { _, err := r.a.rt.DialPlain(ctx, "127.0.0.2:9", PlainOptions{}); return err },
		"Prepared.Connect":                func() error { _, err := prepared.Connect(ctx, bootstrap.Dest{}); return err },
		"Prepared.Dial":                   func() error { _, err := prepared.Dial(ctx, nil); return err },
		"Prepared.Accept":                 func() error { _, err := prepared.Accept(ctx, nil); return err },
		"PrepareDial":                     func() error { _, err := r.a.rt.PrepareDial(ctx, "127.0.0.2:9", Options{}); return err },
		"PrepareAccept":                   func() error { _, err := raw.PrepareAccept(ctx); return err },
		"Pending.Connect":                 func() error { _, err := pending.Connect(ctx); return err },
		"PacketConn.RecvWait":             func() error { _, err := packets.RecvWait(ctx); return err },
		"PacketConn.Send":                 func() error { _, err := packets.Send(ctx, nil, r.local); return err },
		"PacketConn.SendImm":              func() error { _, err := packets.SendImm(ctx, nil, r.local, 1); return err },
		"AllocWait":                       func() error { _, err := r.a.rt.AllocWait(ctx, 8); return err },
		"Resolve":                         func() error { _, err := packets.Resolve(ctx, "127.0.0.2:9"); return err },
		"Join":                            func() error { _, err := packets.Join(ctx, netip.MustParseAddr("224.0.0.9")); return err },
		"Window.Invalidate":               func() error { _, err := r.window.Invalidate(ctx); return err },
		"Read":                            func() error { _, err := r.a.Read(ctx, r.local, r.remote); return err },
		"Do of a READ":                    func() error { _, err := r.a.Do(ctx, new(ReadOp(r.local, r.remote))); return err },
		"Start of a CMP_SWAP":             func() error { _, err := r.a.Start(ctx, new(CompareAndSwapOp(r.remote, 1, 2))); return err },
		"Start of an ATOMIC_WRITE":        func() error { _, err := r.a.Start(ctx, new(AtomicWriteOp(r.remote, 1))); return err },
		"Start of a FLUSH":                func() error { _, err := r.a.Start(ctx, new(FlushOp(r.remote, verbs.FlushGlobal))); return err },
		"DoAll of no operations":          func() error { _, err := r.a.DoAll(ctx, nil, nil); return err },
		"Start of a SEND with invalidate": func() error { _, err := r.a.Start(ctx, new(SendInvalidateOp(r.local, r.remote))); return err },
		"ReadAt":                          func() error { _, err := r.a.At(ctx, r.remote).ReadAt(make([]byte, 8), 0); return err },
		"WriteAt":                         func() error { _, err := r.a.At(ctx, r.remote).WriteAt(make([]byte, 8), 0); return err },
		"StartTo": func() error {
			op := WriteOp(r.local, r.remote)
			return r.a.StartTo(ctx, &op, sinkFunc(func(Result, error) {}), 0)
		},
	}
	for what, c := range contextCalls {
		starts[what] = func() error { return c.call(r, ctx) }
	}
	ends = map[string]func() error{
		"Prepared.Close":   func() error { return prepared.Close(ctx) },
		"Pending.Close":    func() error { return pending.Close(ctx) },
		"Conn.Close":       func() error { return r.a.Close(ctx) },
		"Conn.Cancel":      func() error { return r.a.Cancel(ctx) },
		"Runtime.Close":    func() error { return r.a.rt.Close(ctx) },
		"Listener.Close":   func() error { return ln.Close(ctx) },
		"PacketConn.Close": func() error { return packets.Close(ctx) },
		"Window.Revoke":    func() error { return r.window.Revoke(ctx) },
	}
	return starts, ends
}

// Rule: if a call that takes a context gets a nil context, the call returns ErrNilContext and changes
// nothing.
func TestNilContextsAreRefused(t *testing.T) {
	notOnDevice(t, "the test makes devices of its own")
	m := newMoreCalls(t)
	var none context.Context
	starts, ends := m.calls(none)
	maps.Copy(starts, ends)
	for what, call := range starts {
		if err := call(); !errors.Is(err, ErrNilContext) {
			t.Errorf("%s: %v, want ErrNilContext", what, err)
		}
	}
	m.unused()
}

// Rule: a call that starts or takes something starts and takes nothing if its context has ended before, and returns
// the context's error.
func TestAnEndedContextStartsNothing(t *testing.T) {
	notOnDevice(t, "the test makes devices of its own")
	m := newMoreCalls(t)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	starts, _ := m.calls(ended)
	delete(starts, "Await of a future") // it starts one
	f, err := m.b.SendBytes(testContext(t), []byte("for RecvWait"))
	done(t, f, err)
	before := m.a.rt.Stats().WorkRequests
	for what, call := range starts {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want %v", what, err, context.Canceled)
		}
	}
	if n := m.a.rt.Stats().WorkRequests - before; n != 0 {
		t.Errorf("%d work requests were posted, want none", n)
	}
	if g, err := m.a.RecvWait(testContext(t)); err != nil || g.Release() != nil {
		t.Errorf("the message that had arrived: %v, want it to be there", err)
	}
	m.unused()
}

// unused checks that nothing was used, and that all resources are there.
func (m *moreCalls) unused() {
	t := m.t
	t.Helper()
	if m.prepared.used.Load() || m.pending.used.Load() {
		t.Error("a call has used the Prepared or the Pending, want both unused")
	}
	if err := m.prepared.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	m.fill(false)
	m.whole()
}

// rudeVariable is the name of an environment variable. The value of the variable is a key of rudeCodes. It
// selects the kind of user code that panics in TestRudeProcess.
const rudeVariable = "VERBENA_TEST_RUDE"

// TestRudeProcess runs in the child process of TestAPanicEndsTheProgram; otherwise it does nothing.
func TestRudeProcess(t *testing.T) {
	kind := os.Getenv(rudeVariable)
	if kind == "" {
		return
	}
	r := newRudeRig(t, Config{})
	func() {
		defer func() { _ = recover() }() // net/http also recovers the panics of its handlers
		rudeCodes[kind].start(r, func() { panic(errRude) })
	}()
	arrives(t, "the end of the program", make(chan int))
}

// itself() runs one test of this test binary in a child process. It adds a variable of the form "NAME=value"
// to the environment of the child process.
func itself(t *testing.T, test, variable string) (out []byte, err error) {
	t.Helper()
	self := must.Get(os.Executable())(t)
	cmd := exec.CommandContext(testContext(t), self, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), variable)
	if out, err = cmd.CombinedOutput(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("the system cannot execute this test binary in a child process: the processor is emulated")
	}
	return out, err
}

// Rule: if Config.OnPanic is not set, a panic of user code ends the program, even if the calling
// goroutine recovers panics. The program prints the value of the panic and the stack of its origin.
func TestAPanicEndsTheProgram(t *testing.T) {
	notOnDevice(t, "the test makes devices of its own")
	if os.Getenv(rudeVariable) != "" {
		return
	}
	for kind := range rudeCodes {
		t.Run(kind, func(t *testing.T) {
			out, err := itself(t, "TestRudeProcess", rudeVariable+"="+kind)
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != 2 {
				t.Fatalf("the child process ended with %v, want exit status 2 (a panic); the child process printed\n%s", err, out)
			}
			for _, want := range []string{"panic: " + errRude.Error(), "runtime.TestRudeProcess.func1.2"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the child process did not print %q; it printed\n%s", want, out)
				}
			}
		})
	}
}
