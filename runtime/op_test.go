package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// outcome is what a sink gets.
type outcome struct {
	r   Result
	m   Message
	err error
}

// mailSink passes on what it gets.
type mailSink chan outcome

func (s mailSink) Complete(_ Turn, r Result, err error) { s <- outcome{r: r, err: err} }
func (s mailSink) Received(m Message, err error)        { s <- outcome{m: m, err: err} }

// Rule: an operation as a value does what its method does, and its result goes
// to the sink with the tag.
func TestOpsGoToTheirSink(t *testing.T) {
	a, b := connected(t, Config{})
	region, err := b.rt.NewRegion(4096, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	remote, err := region.Remote(0, region.Len())
	if err != nil {
		t.Fatal(err)
	}
	buf, err := a.rt.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	buf.Bytes()[0] = 7
	sink, in := make(mailSink, 1), make(mailSink, 1)
	for i, c := range []struct {
		name    string
		op      Op
		value   uint64
		message int // of b; -1 none
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

// Rule: TryStart answers that it would have to wait, and which room is missing;
// what was refused reaches no sink, and goes later.
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
	if err := (<-in).m.Release(); err != nil { // the third had come
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
