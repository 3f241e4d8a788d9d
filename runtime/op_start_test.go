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

// Rule: StartTo and TryStartTo carry out an Op, and the sink receives the result with the tag.
func TestOpsGoToTheirSink(t *testing.T) {
	a, b := connected(t, Config{})
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
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := <-sink; got.err != nil || got.r.Tag != uint64(i) || got.r.Value != c.value {
			t.Errorf("%s: tag %d, value %d, error %v; want %d, %d, none", c.name, got.r.Tag, got.r.Value, got.err, i, c.value)
		}
		if c.message >= 0 {
			got := <-in
			if got.err != nil || len(got.m.Data) != c.message {
				t.Errorf("%s: the peer has %d bytes, error %v, want %d", c.name, len(got.m.Data), got.err, c.message)
			}
			if err := got.m.Release(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := a.TryStartTo(&Op{}, sink, 0); !errors.Is(err, reactor.ErrRequest) {
		t.Errorf("the zero Op: %v, want ErrRequest", err)
	}
	op := SendOp(buf.Slice())
	if err := a.TryStartTo(&op, nil, 0); !errors.Is(err, reactor.ErrRequest) {
		t.Errorf("without a sink: %v, want ErrRequest", err)
	}
}

// Rule: if a credit is missing, TryStartTo does not wait, but returns ErrNoCredit. It does not call
// the sink. The operation can be started later.
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
		t.Fatalf("a third message to a peer with two receives: %v, want ErrNoCredit", err)
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
			t.Errorf("completion with tag %d, error %v, want tag %d", got.r.Tag, got.err, want)
		}
	}
	a.Abort()
	<-a.Gone()
	if err := (<-in).m.Release(); err != nil { // the third message arrived before Abort
		t.Error(err)
	}
	b.RecvTo(in)
	if got := <-in; !errors.Is(got.err, ErrPeerClosed) {
		t.Errorf("receiving from a peer that has gone: %v, want ErrPeerClosed", got.err)
	}
	if err := a.TryStartTo(&op, sink, 0); !errors.Is(err, ErrConnClosed) {
		t.Errorf("starting on a closed connection: %v, want ErrConnClosed", err)
	}
	a.RecvTo(in)
	if got := <-in; !errors.Is(got.err, ErrConnClosed) {
		t.Errorf("receiving from a closed connection: %v, want ErrConnClosed", got.err)
	}
}

// Rule: for every method M of Conn or Window that returns a Future there is a function MOp, so that
// an actor (package actor) can start the operation. (Start itself takes an Op and needs no
// StartOp.)
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
	delete(starts, "Start") // takes an Op
	if len(starts) < 7 {
		t.Fatalf("only %v start something: does this test still read the methods?", starts)
	}
	for m := range starts {
		if !ops[m+"Op"] {
			t.Errorf("%s has no %sOp", m, m)
		}
	}
}

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

// started() starts op and waits for its result. An even tag selects StartTo, an odd tag
// TryStartTo.
func started(t *testing.T, c *Conn, op Op, tag uint64) {
	t.Helper()
	sink := make(mailSink, 1)
	start := c.TryStartTo
	if tag%2 == 0 {
		start = func(op *Op, s Sink, tag uint64) error { return c.StartTo(t.Context(), op, s, tag) }
	}
	if err := start(&op, sink, tag); err != nil {
		t.Fatalf("operation %d: %v", tag, err)
	}
	if got := <-sink; got.err != nil || got.r.Tag != tag {
		t.Fatalf("operation %d: tag %d, error %v", tag, got.r.Tag, got.err)
	}
}

// Rule: an operation on several pieces of memory moves all pieces, in order.
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
			t.Errorf("a gathering write left %q", got)
		}
		copy(region.Bytes(), "ghijkl")
		started(t, a, ReadVOp(pieces, remote), i)
		if one, two := pieces[0].Bytes(), pieces[1].Bytes(); string(one) != "ghi" || string(two) != "jkl" {
			t.Errorf("a scattering read left %q and %q", one, two)
		}
		copy(pieces[0].Bytes(), "abc")
		copy(pieces[1].Bytes(), "def")
		started(t, a, SendVOp(pieces), i)
		started(t, a, WriteVOp(pieces, remote).Imm(9), i)
		m, err := b.RecvWait(testContext(t))
		if err != nil || string(m.Data) != "abcdef" {
			t.Errorf("a gathering send brought %q, %v", m.Data, err)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
		if m, err = b.RecvWait(testContext(t)); err != nil || m.Written != 6 || m.Imm != 9 {
			t.Errorf("a gathering write with immediate brought %d bytes, immediate %d, %v", m.Written, m.Imm, err)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	}
}

// Rule: Op.Keep copies the list of pieces. So the caller may change the list before the operation
// is started.
func TestKeptOpIsItsOwn(t *testing.T) {
	a, b := connected(t, Config{})
	pieces := []Slice{bufferOf(t, a.rt, []byte("abc")).Slice(), bufferOf(t, a.rt, []byte("def")).Slice()}
	op := SendVOp(pieces).Keep()
	pieces[0], pieces[1] = Slice{}, Slice{}
	started(t, a, op, 1)
	m, err := b.RecvWait(testContext(t))
	if err != nil || string(m.Data) != "abcdef" {
		t.Errorf("the kept operation sent %q, %v", m.Data, err)
	}
	if err := m.Release(); err != nil {
		t.Error(err)
	}
}

// Rule: an ATOMIC_WRITE stores its word, and a later FLUSH succeeds. A FLUSH that the descriptor
// does not permit is refused.
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
		t.Errorf("a flush that the descriptor does not grant: %v, want %v", err, ErrPermission)
	}
}

// Rule: BindOp binds a window. InvalidateOp, or a SendInvalidateOp of the peer, invalidates the
// window. BindOp and InvalidateOp are refused on any connection other than the window's own.
func TestOpsOpenAndShutWindows(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	r, w := opened(t, b, 64)
	src := bufferOf(t, a.rt, []byte("12345678"))
	for i := range uint64(4) {
		if _, err := w.Remote(); !errors.Is(err, ErrWindowState) {
			t.Errorf("the descriptor of a free window: %v, want %v", err, ErrWindowState)
		}
		started(t, b, BindOp(w, r, 8, 8, verbs.AccessRemoteWrite), i)
		at := must.Get(w.Remote())(t)
		started(t, a, WriteOp(src.Slice(), at), i)
		if got := r.Bytes()[8:16]; string(got) != "12345678" {
			t.Errorf("through the window came %q", got)
		}
		clear(r.Bytes())
		if i < 2 {
			started(t, b, InvalidateOp(w), i)
			continue
		}
		started(t, a, SendInvalidateOp(src.Slice(), at), i)
		m, err := b.RecvWait(ctx)
		if err != nil || m.Invalidated != w {
			t.Fatalf("the message shut %p, %v, want %p", m.Invalidated, err, w)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	}
	sink := make(mailSink, 1)
	for _, op := range []Op{BindOp(w, r, 0, 8, verbs.AccessRemoteRead), InvalidateOp(w), InvalidateOp(nil)} {
		if err := a.TryStartTo(&op, sink, 0); !errors.Is(err, reactor.ErrRequest) {
			t.Errorf("a window of another connection: %v, want %v", err, reactor.ErrRequest)
		}
	}
	op := BindOp(w, nil, 0, 8, verbs.AccessRemoteRead)
	if err := b.TryStartTo(&op, sink, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a window on no region: %v, want %v", err, verbs.ErrInvalid)
	}
}

// Rule: on a raw connection, a message fills the pieces of its receive in order.
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
		t.Fatalf("%d bytes, tag %d, error %v", got.r.Bytes, got.r.Tag, got.err)
	}
	if one, two := pieces[0].Bytes(), pieces[1].Bytes(); string(one) != "abc" || string(two) != "def" {
		t.Errorf("the pieces have %q and %q", one, two)
	}
}
