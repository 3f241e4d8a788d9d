package runtime

import (
	"context"
	"errors"
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

// rudeContext is a context for tests. Its method Done first calls the field done, and its method
// Err first calls the field err.
type rudeContext struct {
	context.Context
	done, err func()
}

func (c rudeContext) Done() <-chan struct{} { c.done(); return c.Context.Done() }
func (c rudeContext) Err() error            { c.err(); return c.Context.Err() }

// contextRig is a connection with few resources. The method fill uses them up: a message takes the
// peer's only receive, and unanswered WRITEs fill the send queue.
type contextRig struct {
	t      *testing.T
	link   *fabric.Fabric
	a, b   *Conn
	local  Slice
	remote Remote
	region [2]*Region
	window *Window
	out    []Future // the WRITEs of fill
	asked  int      // how often the context's Done was called
}

const contextDepth = 2

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

// fill() uses up the peer's receive, and then takes the link down. If sends is true, it also fills
// the send queue.
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

// whole() brings the link up again. It checks that all slots and credits are available, and that
// everything can be closed.
func (r *contextRig) whole() {
	t, ctx := r.t, testContext(r.t)
	t.Helper()
	r.link.SetAll(fabric.Link{})
	for _, f := range r.out {
		if _, err := f.Await(ctx); err != nil {
			t.Errorf("a WRITE that was out: %v", err)
		}
	}
	if m, err := r.b.RecvWait(ctx); err != nil || m.Release() != nil {
		t.Errorf("the message: %v", err)
	}
	ended := make(chan error, contextDepth)
	for range 2 * contextDepth { // each message needs a slot and the only credit
		f, err := r.a.SendBytes(ctx, []byte("y"))
		if err == nil {
			_, err = f.Await(ctx)
		}
		if err != nil {
			t.Fatalf("a message afterwards: %v", err)
		}
		if m, err := r.b.RecvWait(ctx); err != nil || m.Release() != nil {
			t.Fatalf("a message afterwards: %v", err)
		}
	}
	r.link.SetAll(fabric.Link{Down: true})
	for range contextDepth {
		op := WriteOp(r.local, r.remote)
		if err := r.a.TryStartTo(&op, sinkFunc(func(_ Result, err error) { ended <- err }), 0); err != nil {
			t.Errorf("nothing is out; TryStart: %v", err)
			ended <- nil
		}
	}
	r.link.SetAll(fabric.Link{})
	for range contextDepth {
		if err := arrives(t, "the end of a WRITE", ended); err != nil {
			t.Errorf("a WRITE afterwards: %v", err)
		}
	}
	if err := r.window.Close(); err != nil {
		t.Errorf("closing the window: %v", err)
	}
	for _, region := range r.region {
		if err := region.Close(); err != nil {
			t.Errorf("closing a region: %v", err)
		}
	}
	for _, rt := range []*Runtime{r.a.rt, r.b.rt} {
		closed := make(chan error, 1)
		go func() { closed <- rt.Close(ctx) }()
		if err := arrives(t, "Close", closed); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// contextCalls are the calls that take a context and may wait. If the field sends is true, the call
// waits for a slot. Otherwise the call waits for a credit, a message, a connection, or the end of
// its own operation.
var contextCalls = map[string]struct {
	sends bool // fill() must fill the send queue before the call
	call  func(r *contextRig, ctx context.Context) error
}{
	"Write": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Write(ctx, r.local, r.remote)
		return err
	}},
	"WriteV": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Start(ctx, new(WriteVOp([]Slice{r.local, r.local}, r.remote)))
		return err
	}},
	"a WRITE of several pieces": {true, func(r *contextRig, ctx context.Context) error {
		s, err := r.region[0].Slice(0, 3000)
		if err == nil {
			_, err = r.a.Write(ctx, s, r.remote)
		}
		return err
	}},
	"WriteImm": {false, func(r *contextRig, ctx context.Context) error {
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
	"SendBytes of many": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.SendBytes(ctx, make([]byte, 500))
		return err
	}},
	"FetchAndAdd": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Start(ctx, new(FetchAndAddOp(r.remote, 1)))
		return err
	}},
	"Bind": {true, func(r *contextRig, ctx context.Context) error {
		_, _, err := r.window.Bind(ctx, r.region[0], 0, 8, verbs.AccessRemoteRead)
		return err
	}},
	"WriteWait, without room": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Do(ctx, new(WriteOp(r.local, r.remote)))
		return err
	}},
	"WriteWait": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Do(ctx, new(WriteOp(r.local, r.remote)))
		return err
	}},
	"SendWait": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.Do(ctx, new(SendOp(r.local)))
		return err
	}},
	"Await": {false, func(r *contextRig, ctx context.Context) error {
		f, err := r.a.Batch().Start(context.Background(), new(WriteOp(r.local, r.remote)))
		if err == nil {
			_, err = f.Await(ctx)
		}
		return err
	}},
	"DoWait": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.DoAll(ctx, []Op{WriteOp(r.local, r.remote)}, nil)
		return err
	}},
	"DoWait, without room": {true, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.DoAll(ctx, []Op{WriteOp(r.local, r.remote), ReadOp(r.local, r.remote)}, nil)
		return err
	}},
	"DoAll": {true, func(r *contextRig, ctx context.Context) error {
		var fs [2]Future
		_, err := r.a.Batch().StartAll(ctx, []Op{WriteOp(r.local, r.remote), FetchAndAddOp(r.remote, 1)}, fs[:])
		return err
	}},
	"ReadAt": {false, func(r *contextRig, ctx context.Context) error {
		_, err := r.a.At(ctx, r.remote).ReadAt(make([]byte, 8), 0)
		return err
	}},
	"WriteAt, without room": {true, func(r *contextRig, ctx context.Context) error {
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

// Rule: the runtime holds no slot, credit, lease or turn while it calls a method of the user's
// context. So the method may panic, end its goroutine or call the runtime. This affects only the
// call to which the context was given. If that call returns, it returns the context's error.
func TestContextsOfUsersKeepNothing(t *testing.T) {
	notOnDevice(t, "its devices are made for the test")
	nothing := func(*contextRig) {}
	ways := map[string]struct{ done, err func(r *contextRig) }{
		"Done panics": {func(*contextRig) { panic(errRude) }, nothing},
		"Done panics the second time": {func(r *contextRig) {
			if r.asked++; r.asked > 1 {
				panic(errRude)
			}
		}, nothing},
		"Done ends the goroutine": {func(*contextRig) { stdruntime.Goexit() }, nothing},
		"Done asks the runtime":   {func(r *contextRig) { r.a.Recorded() }, nothing},
		"Err panics":              {nothing, func(*contextRig) { panic(errRude) }},
		"Err ends the goroutine":  {nothing, func(*contextRig) { stdruntime.Goexit() }},
		"Err asks the runtime":    {nothing, func(r *contextRig) { r.a.Recorded() }},
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
					t.Errorf("it returned %v, want the context's error", err)
				}
				if caught != nil && caught != errRude {
					t.Errorf("it panicked with %v", caught)
				}
				r.whole()
			})
		}
	}
}

// Rule: every call that takes a context returns ErrNilContext for a nil context, and changes
// nothing.
func TestNilContextsAreRefused(t *testing.T) {
	notOnDevice(t, "its devices are made for the test")
	r := newContextRig(t)
	var none context.Context
	ln := must.Get(r.a.rt.Listen(":0"))(t)
	packets := must.Get(r.a.rt.ListenPacket(":0", Options{}))(t)
	prepared := must.Get(r.a.rt.Prepare(PlainOptions{}))(t)
	raw := listenRaw(t, r.a.rt)
	pending := prepareDial(t, r.a.rt, raw)
	calls := map[string]func() error{
		"Dial":              func() error { _, err := r.a.rt.Dial(none, "127.0.0.2:9"); return err },
		"DialAsync":         func() error { _, err := r.a.rt.DialAsync(none, "127.0.0.2:9", Options{}); return err },
		"DialPlain":         func() error { _, err := r.a.rt.DialPlain(none, "127.0.0.2:9", PlainOptions{}); return err },
		"Connect":           func() error { _, err := prepared.Connect(none, bootstrap.Dest{}); return err },
		"Prepared.Dial":     func() error { _, err := prepared.Dial(none, nil); return err },
		"Prepared.Accept":   func() error { _, err := prepared.Accept(none, nil); return err },
		"Prepared.Close":    func() error { return prepared.Close(none) },
		"PrepareDial":       func() error { _, err := r.a.rt.PrepareDial(none, "127.0.0.2:9", Options{}); return err },
		"PrepareAccept":     func() error { _, err := raw.PrepareAccept(none); return err },
		"Pending.Connect":   func() error { _, err := pending.Connect(none); return err },
		"Pending.Close":     func() error { return pending.Close(none) },
		"Conn.Close":        func() error { return r.a.Close(none) },
		"Cancel":            func() error { return r.a.Cancel(none) },
		"Runtime.Close":     func() error { return r.a.rt.Close(none) },
		"Listener.Close":    func() error { return ln.Close(none) },
		"PacketConn.Close":  func() error { return packets.Close(none) },
		"Packet RecvWait":   func() error { _, err := packets.RecvWait(none); return err },
		"Packet Send":       func() error { _, err := packets.Send(none, nil, r.local); return err },
		"Packet SendImm":    func() error { _, err := packets.SendImm(none, nil, r.local, 1); return err },
		"Resolve":           func() error { _, err := packets.Resolve(none, "127.0.0.2:9"); return err },
		"Join":              func() error { _, err := packets.Join(none, netip.MustParseAddr("224.0.0.9")); return err },
		"Revoke":            func() error { return r.window.Revoke(none) },
		"Invalidate":        func() error { _, err := r.window.Invalidate(none); return err },
		"Read":              func() error { _, err := r.a.Read(none, r.local, r.remote); return err },
		"ReadWait":          func() error { _, err := r.a.Do(none, new(ReadOp(r.local, r.remote))); return err },
		"CompareAndSwap":    func() error { _, err := r.a.Start(none, new(CompareAndSwapOp(r.remote, 1, 2))); return err },
		"AtomicWrite":       func() error { _, err := r.a.Start(none, new(AtomicWriteOp(r.remote, 1))); return err },
		"Flush":             func() error { _, err := r.a.Start(none, new(FlushOp(r.remote, verbs.FlushGlobal))); return err },
		"DoWait of nothing": func() error { _, err := r.a.DoAll(none, nil, nil); return err },
		"SendInvalidate":    func() error { _, err := r.a.Start(none, new(SendInvalidateOp(r.local, r.remote))); return err },
		"ReadAt":            func() error { _, err := r.a.At(none, r.remote).ReadAt(make([]byte, 8), 0); return err },
		"WriteAt":           func() error { _, err := r.a.At(none, r.remote).WriteAt(make([]byte, 8), 0); return err },
		"Start": func() error {
			op := WriteOp(r.local, r.remote)
			return r.a.StartTo(none, &op, sinkFunc(func(Result, error) {}), 0)
		},
	}
	for what, c := range contextCalls {
		calls[what] = func() error { return c.call(r, none) }
	}
	for what, call := range calls {
		if err := call(); !errors.Is(err, ErrNilContext) {
			t.Errorf("%s: %v, want ErrNilContext", what, err)
		}
	}
	if prepared.used.Load() || pending.used.Load() {
		t.Error("a call with a nil context has used what was prepared")
	}
	if err := prepared.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	r.fill(false)
	r.whole()
}

// rudeVariable is the name of an environment variable. The variable selects the code that panics in
// TestRudeProcess: its value is a key of rudeCodes.
const rudeVariable = "VERBENA_TEST_RUDE"

// TestRudeProcess runs in the child process of TestAPanicEndsTheProgram; otherwise it does nothing.
func TestRudeProcess(t *testing.T) {
	kind := os.Getenv(rudeVariable)
	if kind == "" {
		return
	}
	r := newRudeRig(t, Config{})
	func() {
		defer func() { _ = recover() }() // as net/http does with a handler
		rudeCodes[kind].start(r, func() { panic(errRude) })
	}()
	arrives(t, "the end of the program", make(chan int))
}

// itself() runs a test of this program in a child process, with one more environment variable.
func itself(t *testing.T, test, variable string) (out []byte, err error) {
	t.Helper()
	self := must.Get(os.Executable())(t)
	cmd := exec.CommandContext(testContext(t), self, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), variable)
	if out, err = cmd.CombinedOutput(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("this processor is emulated: the system does not run this program by itself")
	}
	return out, err
}

// Rule: without Config.OnPanic, a panic of user code ends the program, even if the goroutine
// recovers panics. The program prints the value of the panic and the stack of its origin.
func TestAPanicEndsTheProgram(t *testing.T) {
	notOnDevice(t, "its devices are made for the test")
	if os.Getenv(rudeVariable) != "" {
		return
	}
	for kind := range rudeCodes {
		t.Run(kind, func(t *testing.T) {
			out, err := itself(t, "TestRudeProcess", rudeVariable+"="+kind)
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != 2 {
				t.Fatalf("the process ended with %v, want exit status 2, as of a panic; it printed\n%s", err, out)
			}
			for _, want := range []string{"panic: " + errRude.Error(), "runtime.TestRudeProcess.func1.2"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the process did not print %q, but\n%s", want, out)
				}
			}
		})
	}
}
