package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience())
	t.Cleanup(cancel)
	return ctx
}

func mustOpen(t testing.TB, cfg Config) *Runtime {
	t.Helper()
	rt, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(testContext(t)); err != nil {
			t.Errorf("closing the runtime: %v", err)
		}
	})
	return rt
}

func done(t testing.TB, f Future, err error) Result {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Await(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Rule: messages arrive whole, in order, and more of them than there are
// credits: each release gives one back.
func TestMessagesFlowPastTheCredits(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 5, MessageSize: 1000}})
	ctx := testContext(t)
	const n = 500
	errs := make(chan error, 1)
	go func() {
		for i := range n {
			p := bytes.Repeat([]byte{byte(i)}, i*2%1001)
			if _, err := a.SendBytes(ctx, p); err != nil {
				errs <- fmt.Errorf("message %d: %w", i, err)
				return
			}
		}
		errs <- nil
	}()
	for i := range n {
		m, err := b.RecvWait(ctx)
		if err != nil {
			t.Fatal(err, a.Err(), <-errs)
		}
		if len(m.Data) != i*2%1001 || len(m.Data) > 0 && (m.Data[0] != byte(i) || m.Data[len(m.Data)-1] != byte(i)) {
			t.Fatalf("message %d has %d bytes, want %d of %d", i, len(m.Data), i*2%1001, byte(i))
		}
		if err := m.Release(); err != nil {
			t.Fatal(err)
		}
		if err := m.Release(); !errors.Is(err, ErrMessage) {
			t.Fatalf("second release: %v, want ErrMessage", err)
		}
	}
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
}

// Rule: one-sided operations move what they say; the descriptor survives the
// wire.
func TestOneSidedOperations(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	all := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	region, err := b.rt.NewRegion(1<<20, all)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	remote, err := region.Remote(0, region.Len())
	if err != nil {
		t.Fatal(err)
	}
	buf, err := a.rt.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	copy(buf.Bytes(), "written into remote memory")
	f, err := a.Write(ctx, buf.Slice(), remote)
	done(t, f, err)
	if !bytes.HasPrefix(region.Bytes(), []byte("written into remote memory")) {
		t.Fatalf("the region holds %q", region.Bytes()[:26])
	}
	f, err = a.Start(ctx, new(WriteOp(buf.Slice(), remote).Imm(77)))
	done(t, f, err)
	m, err := b.RecvWait(ctx)
	if err != nil || !m.HasImm || m.Imm != 77 || m.Written != 4096 {
		t.Fatalf("write with immediate arrived as %+v, %v", m, err)
	}
	m.Release()
	word, err := remote.At(64, 8)
	if err != nil {
		t.Fatal(err)
	}
	f, err = a.Start(ctx, new(FetchAndAddOp(word, 3)))
	old := done(t, f, err).Value
	f, err = a.Start(ctx, new(CompareAndSwapOp(word, old+3, 9)))
	if r := done(t, f, err); r.Value != old+3 {
		t.Fatalf("CAS found %d, want %d", r.Value, old+3)
	}
	mem := a.At(ctx, remote)
	src := make([]byte, 1<<20)
	for i := range src {
		src[i] = byte(i * 31)
	}
	if n, err := mem.WriteAt(src, 0); n != len(src) || err != nil {
		t.Fatalf("WriteAt: %d, %v", n, err)
	}
	got, err := io.ReadAll(io.NewSectionReader(mem, 0, mem.Size()))
	if err != nil || !bytes.Equal(got, src) {
		t.Fatalf("ReadAt gave %d bytes, equal %t, %v", len(got), bytes.Equal(got, src), err)
	}
}

// Rule: the peer's close is seen after everything that it sent.
func TestPeerCloseComesAfterTheMessages(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	for i := range 10 {
		if _, err := a.SendBytes(ctx, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		m, err := b.RecvWait(ctx)
		if err != nil || m.Data[0] != byte(i) {
			t.Fatalf("message %d after the peer closed: %v", i, err)
		}
		m.Release()
	}
	if _, err := b.RecvWait(ctx); !errors.Is(err, ErrPeerClosed) {
		t.Fatalf("after the last message: %v, want ErrPeerClosed", err)
	}
	if _, err := b.SendBytes(ctx, []byte("x")); !errors.Is(err, ErrPeerClosed) {
		t.Fatalf("sending to a closed peer: %v, want ErrPeerClosed", err)
	}
}
