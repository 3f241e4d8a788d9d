package runtime

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// outcome holds the arguments of one call of a Sink or MessageSink.
type outcome struct {
	r   Result
	m   Message
	err error
}

// mailSink is a Sink and a MessageSink that sends each outcome on its channel.
type mailSink chan outcome

func (s mailSink) Complete(_ SinkContext, r Result, err error) { s <- outcome{r: r, err: err} }
func (s mailSink) Received(m Message, err error)               { s <- outcome{m: m, err: err} }

// Rule: if StartTo or TryStartTo starts an Op, the sink gets the result, which has the tag of the call.
func TestOpsGoToTheirSink(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 4}})
	region := must.Get(b.rt.NewRegion(4096, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, region.Len()))(t)
	buf := must.Get(a.rt.Alloc(64))(t)
	defer buf.Release()
	buf.Bytes()[0] = 7
	sink, in := make(mailSink, 1), make(mailSink, 1)
	for i, c := range []struct {
		name    string
		op      Op
		value   uint64
		message int // length of the message that b receives; -1: none
	}{
		{"write", WriteOp(buf.Slice(), remote), 0, -1},
		{"read", ReadOp(buf.Slice(), remote), 0, -1},
		{"fetch and add", FetchAndAddOp(remote, 3), 7, -1},
		{"compare and swap", CompareAndSwapOp(remote, 10, 11), 10, -1},
		{"send", SendOp(buf.Slice()), 0, 64},
		{"send bytes", SendBytesOp([]byte("abc")), 0, 3},
		{"send many bytes", SendBytesOp(make([]byte, 1000)), 0, 1000},
		{"write with immediate", WriteOp(buf.Slice(), remote).Imm(5), 0, 0},
	} {
		if c.message >= 0 {
			b.RecvTo(in)
		}
		start := a.TryStartTo
		if i%2 == 0 {
			start = func(op *Op, s Sink, tag uint64) error { return a.StartTo(t.Context(), op, s, tag) }
		}
		if err := start(&c.op, sink, uint64(i)); err != nil {
			t.Fatalf("starting %s: %v", c.name, err)
		}
		if got := <-sink; got.err != nil || got.r.Tag != uint64(i) || got.r.Value != c.value {
			t.Errorf("%s ended with tag %d, value %d, error %v; want tag %d, value %d, no error", c.name, got.r.Tag, got.r.Value, got.err, i, c.value)
		}
		if c.message >= 0 {
			got := <-in
			if got.err != nil || len(got.m.Data) != c.message {
				t.Errorf("%s: the peer received %d bytes, error %v; want %d bytes, no error", c.name, len(got.m.Data), got.err, c.message)
			}
			if err := got.m.Release(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := a.TryStartTo(&Op{}, sink, 0); !errors.Is(err, reactor.ErrRequest) {
		t.Errorf("TryStartTo of the zero Op returned %v, want ErrRequest", err)
	}
	op := SendOp(buf.Slice())
	if err := a.TryStartTo(&op, nil, 0); !errors.Is(err, reactor.ErrRequest) {
		t.Errorf("TryStartTo without a sink returned %v, want ErrRequest", err)
	}
}

// Rule: if a message needs a credit and there is none, TryStartTo returns ErrNoCredit at once, and does
// not call the sink. When there is a credit again, the operation can be started.
func TestTryStartNeverWaits(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 2}})
	sink, in := make(mailSink, 8), make(mailSink, 8)
	op := SendBytesOp([]byte("x"))
	for range 2 {
		if err := a.TryStartTo(&op, sink, 0); err != nil {
			t.Fatal(err)
		}
	}
	err := a.TryStartTo(&op, sink, 1)
	if !errors.Is(err, ErrNoCredit) || !errors.Is(err, ErrQueueFull) || !Retryable(err) {
		t.Fatalf("TryStartTo of a third message to a peer with two receives returned %v, want a retryable ErrNoCredit that matches ErrQueueFull", err)
	}
	for range 3 {
		b.RecvTo(in)
	}
	for range 2 {
		if err := (<-in).m.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.StartTo(t.Context(), &op, sink, 2); err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{0, 0, 2} {
		if got := <-sink; got.err != nil || got.r.Tag != want {
			t.Errorf("an operation ended with tag %d, error %v; want tag %d, no error", got.r.Tag, got.err, want)
		}
	}
	a.Abort()
	<-a.Gone()
	if err := (<-in).m.Release(); err != nil { // the third message arrived before Abort
		t.Error(err)
	}
	b.RecvTo(in)
	if got := <-in; !errors.Is(got.err, ErrPeerClosed) {
		t.Errorf("RecvTo after the peer aborted ended with %v, want ErrPeerClosed", got.err)
	}
	if err := a.TryStartTo(&op, sink, 0); !errors.Is(err, ErrConnClosed) {
		t.Errorf("TryStartTo after Abort returned %v, want ErrConnClosed", err)
	}
	a.RecvTo(in)
	if got := <-in; !errors.Is(got.err, ErrConnClosed) {
		t.Errorf("RecvTo after Abort ended with %v, want ErrConnClosed", got.err)
	}
}

// Rule: if an exported method M of Conn or Window returns a Future, there is a function MOp, so that an
// actor (package actor) can start the operation. The only exception is the method Start, which takes an
// Op as argument.
func TestEveryOperationHasItsOp(t *testing.T) {
	files := must.Get(filepath.Glob("*.go"))(t)
	starts, ops := map[string]bool{}, map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() {
				continue
			}
			if fn.Recv == nil {
				ops[fn.Name.Name] = true
			} else if of := receiver(fn); (of == "Conn" || of == "Window") && returnsFuture(fn) {
				starts[fn.Name.Name] = true
			}
		}
	}
	delete(starts, "Start")
	if len(starts) < 7 {
		t.Fatalf("the test found the methods %v, want 7 or more methods that return a Future", starts)
	}
	for m := range starts {
		if !ops[m+"Op"] {
			t.Errorf("there is no function %sOp for the method %s", m, m)
		}
	}
}

// receiver returns the type name of fn's receiver if the receiver is a pointer; otherwise "".
func receiver(fn *ast.FuncDecl) string {
	if p, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
		if id, ok := p.X.(*ast.Ident); ok {
			return id.Name
		}
	}
	return ""
}

func returnsFuture(fn *ast.FuncDecl) bool {
	if fn.Type.Results == nil {
		return false
	}
	for _, r := range fn.Type.Results.List {
		if id, ok := r.Type.(*ast.Ident); ok && id.Name == "Future" {
			return true
		}
	}
	return false
}

// started() starts op and waits for its result. If tag is even, it calls StartTo, otherwise TryStartTo.
func started(t *testing.T, c *Conn, op Op, tag uint64) {
	t.Helper()
	sink := make(mailSink, 1)
	start := c.TryStartTo
	if tag%2 == 0 {
		start = func(op *Op, s Sink, tag uint64) error { return c.StartTo(t.Context(), op, s, tag) }
	}
	if err := start(&op, sink, tag); err != nil {
		t.Fatalf("starting the operation with tag %d: %v", tag, err)
	}
	if got := <-sink; got.err != nil || got.r.Tag != tag {
		t.Fatalf("the operation ended with tag %d, error %v; want tag %d, no error", got.r.Tag, got.err, tag)
	}
}

// Rule: if an operation has several pieces of local memory, it moves the data of all pieces, in order.
func TestOpsGather(t *testing.T) {
	a, b := connected(t, Config{})
	region := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, 6))(t)
	pieces := []Slice{bufferOf(t, a.rt, []byte("abc")).Slice(), bufferOf(t, a.rt, []byte("def")).Slice()}
	for i := range uint64(2) {
		copy(region.Bytes(), "------")
		op := WriteVOp(pieces, remote)
		kept := op.Keep()
		started(t, a, kept, i)
		if got := region.Bytes()[:6]; string(got) != "abcdef" {
			t.Errorf("after a WRITE of two pieces the remote memory has %q, want %q", got, "abcdef")
		}
		copy(region.Bytes(), "ghijkl")
		started(t, a, ReadVOp(pieces, remote), i)
		if one, two := pieces[0].Bytes(), pieces[1].Bytes(); string(one) != "ghi" || string(two) != "jkl" {
			t.Errorf("after a READ into two pieces they have %q and %q, want %q and %q", one, two, "ghi", "jkl")
		}
		copy(pieces[0].Bytes(), "abc")
		copy(pieces[1].Bytes(), "def")
		started(t, a, SendVOp(pieces), i)
		started(t, a, WriteVOp(pieces, remote).Imm(9), i)
		m, err := b.RecvWait(testContext(t))
		if err != nil || string(m.Data) != "abcdef" {
			t.Errorf("a SEND of two pieces delivered %q, error %v; want %q", m.Data, err, "abcdef")
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
		if m, err = b.RecvWait(testContext(t)); err != nil || m.Written != 6 || m.Imm != 9 {
			t.Errorf("a WRITE of two pieces with immediate delivered Written %d, Imm %d, error %v; want 6, 9, no error", m.Written, m.Imm, err)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	}
}

// Rule: if an Op was made by Op.Keep, the caller may change the list of pieces before the Op is started,
// because Keep copies the list.
func TestKeptOpIsItsOwn(t *testing.T) {
	a, b := connected(t, Config{})
	pieces := []Slice{bufferOf(t, a.rt, []byte("abc")).Slice(), bufferOf(t, a.rt, []byte("def")).Slice()}
	op := SendVOp(pieces).Keep()
	pieces[0], pieces[1] = Slice{}, Slice{}
	started(t, a, op, 1)
	m, err := b.RecvWait(testContext(t))
	if err != nil || string(m.Data) != "abcdef" {
		t.Errorf("the Op that Keep returned delivered %q, error %v; want %q", m.Data, err, "abcdef")
	}
	if err := m.Release(); err != nil {
		t.Error(err)
	}
}

// Rule: an ATOMIC_WRITE stores its word, and a later FLUSH succeeds. If the descriptor does not permit
// a FLUSH, TryStartTo refuses the FLUSH with ErrPermission.
func TestOpsPersist(t *testing.T) {
	a, b := connected(t, Config{})
	region := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessFlushGlobal))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, 64))(t)
	for i := range uint64(2) {
		started(t, a, AtomicWriteOp(remote, 0x0101010101010101*(i+1)), i)
		started(t, a, FlushOp(remote, verbs.FlushGlobal), i)
		if want := bytes.Repeat([]byte{byte(i + 1)}, 8); !bytes.Equal(region.Bytes()[:8], want) {
			t.Errorf("the word is % x, want % x", region.Bytes()[:8], want)
		}
	}
	op := FlushOp(remote, verbs.FlushPersistent)
	if err := a.TryStartTo(&op, make(mailSink, 1), 0); !errors.Is(err, ErrPermission) {
		t.Errorf("a FLUSH that the descriptor does not permit returned %v, want %v", err, ErrPermission)
	}
}

// Rule: BindOp binds a window. InvalidateOp, or a SendInvalidateOp of the peer, invalidates the window.
// If BindOp or InvalidateOp is started on a connection other than the window's, it is refused with
// ErrRequest.
func TestOpsOpenAndShutWindows(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 4}})
	ctx := testContext(t)
	r, w := opened(t, b, 64)
	src := bufferOf(t, a.rt, []byte("12345678"))
	for i := range uint64(4) {
		if _, err := w.Remote(); !errors.Is(err, ErrWindowState) {
			t.Errorf("Remote of a window that is not bound returned %v, want %v", err, ErrWindowState)
		}
		started(t, b, BindOp(w, r, 8, 8, verbs.AccessRemoteWrite), i)
		at := must.Get(w.Remote())(t)
		started(t, a, WriteOp(src.Slice(), at), i)
		if got := r.Bytes()[8:16]; string(got) != "12345678" {
			t.Errorf("after a WRITE through the window the region has %q, want %q", got, "12345678")
		}
		clear(r.Bytes())
		if i < 2 {
			started(t, b, InvalidateOp(w), i)
			continue
		}
		started(t, a, SendInvalidateOp(src.Slice(), at), i)
		m, err := b.RecvWait(ctx)
		if err != nil || m.Invalidated != w {
			t.Fatalf("the message invalidated the window %p, error %v; want the window %p", m.Invalidated, err, w)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	}
	sink := make(mailSink, 1)
	for _, op := range []Op{BindOp(w, r, 0, 8, verbs.AccessRemoteRead), InvalidateOp(w), InvalidateOp(nil)} {
		if err := a.TryStartTo(&op, sink, 0); !errors.Is(err, reactor.ErrRequest) {
			t.Errorf("an operation on a window of another connection, or on no window, returned %v, want %v", err, reactor.ErrRequest)
		}
	}
	op := BindOp(w, nil, 0, 8, verbs.AccessRemoteRead)
	if err := b.TryStartTo(&op, sink, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("BindOp without a region returned %v, want %v", err, verbs.ErrInvalid)
	}
}

// Rule: if a receive of a raw connection has several pieces of memory, the message fills them in order.
func TestPostRecvOpScatters(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{Raw: true}})
	pieces := []Slice{bufferOf(t, b.rt, make([]byte, 3)).Slice(), bufferOf(t, b.rt, make([]byte, 3)).Slice()}
	in := make(mailSink, 2)
	op := PostRecvVOp(pieces)
	if err := b.TryStartTo(&op, in, 1); err != nil {
		t.Fatal(err)
	}
	started(t, a, SendBytesOp([]byte("abcdef")), 2)
	if got := <-in; got.err != nil || got.r.Bytes != 6 || got.r.Tag != 1 {
		t.Fatalf("the receive ended with %d bytes, tag %d, error %v; want 6 bytes, tag 1, no error", got.r.Bytes, got.r.Tag, got.err)
	}
	if one, two := pieces[0].Bytes(), pieces[1].Bytes(); string(one) != "abc" || string(two) != "def" {
		t.Errorf("the pieces have %q and %q, want %q and %q", one, two, "abc", "def")
	}
}
