package runtime

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: if a transfer needs several work requests, TryStartTo and StartFromSink refuse it with
// ErrPieces. They do not return ErrQueueFull, because a retry with more free slots would fail, too.
// Conn.Do accepts the transfer.
func TestPiecesAreNoFullQueue(t *testing.T) {
	a, b := connected(t, Config{})
	to, from := must.Get(b.rt.NewRegion(256, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t), must.Get(a.rt.NewRegion(256, 0))(t)
	defer mustClose(t, from, to)
	remote, local := must.Get(to.Remote(0, 256))(t), must.Get(from.Slice(0, 256))(t)
	a.oneWR = 64
	op := WriteOp(local, remote)
	never := func(how string, err error) {
		if !errors.Is(err, ErrPieces) || !errors.Is(err, ErrTooLarge) || errors.Is(err, ErrQueueFull) || RetryOf(err) != RetryNever {
			t.Errorf("%s: %v, for which RetryOf returns %v; want ErrPieces, which matches ErrTooLarge but not ErrQueueFull, and RetryNever", how, err, RetryOf(err))
		}
	}
	mail, told := make(mailSink, 1), make(chan error, 1)
	never("TryStartTo", a.TryStartTo(&op, mail, 0))
	one := WriteOp(must.Get(local.Sub(0, 8))(t), remote)
	sink := turnSink(func(in SinkContext, _ Result, _ error) { told <- a.StartFromSink(in, &op, mail, 0) })
	if err := a.StartTo(testContext(t), &one, sink, 0); err != nil {
		t.Fatal(err)
	}
	a.sh.r.Wake()
	select {
	case err := <-told:
		never("StartFromSink", err)
	case <-testContext(t).Done():
		t.Fatal("the sink was not called")
	}
	if _, err := a.Do(testContext(t), &op); err != nil {
		t.Errorf("Do of the same transfer: %v, want no error", err)
	}
}

// Rule: if a Conn, Listener or Runtime is closed, its methods return an error that matches
// net.ErrClosed. For this error RetryOf returns RetryNever, so that retry loops end.
func TestClosedIsNetErrClosed(t *testing.T) {
	a, b := connected(t, Config{})
	ln, err := b.rt.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	buf := must.Get(a.rt.Alloc(8))(t)
	closed := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, net.ErrClosed) || !errors.Is(err, os.ErrClosed) || !errors.Is(err, ErrClosed) || RetryOf(err) != RetryNever {
			t.Errorf("%s: %v, for which RetryOf returns %v; want an error that matches net.ErrClosed, os.ErrClosed and ErrClosed, and RetryNever", what, err, RetryOf(err))
		}
	}
	ctx := testContext(t)
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = a.Send(ctx, buf.Slice())
	closed("Send after Close", err)
	_, err = a.RecvWait(ctx)
	closed("RecvWait after Close", err)
	closed("Err after Close", a.Err())
	<-b.Done()
	if err := b.Err(); errors.Is(err, net.ErrClosed) || RetryOf(err) != RetryReconnect {
		t.Errorf("Err of the end that was not closed: %v, for which RetryOf returns %v; want an error that does not match net.ErrClosed, and RetryReconnect", err, RetryOf(err))
	}
	if err := ln.Close(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = ln.Accept(ctx)
	closed("Accept after Close", err)
	if err := buf.Release(); err != nil {
		t.Fatal(err)
	}
	if err := a.rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = a.rt.Dial(ctx, ":1")
	closed("Dial after Runtime.Close", err)
	_, err = a.rt.Alloc(8)
	closed("Alloc after Runtime.Close", err)
}

// Rule: for some error types, RetryOf depends on the error's fields. If a request for memory fits the
// limit, but not the memory that is left, RetryOf returns RetryLater. If the request is larger than the
// limit, RetryOf returns RetryNever. For a RejectError, RetryOf depends on the reason and the code.
func TestRetryByValue(t *testing.T) {
	refused := func(reason int, code uint8) error { return &RejectError{Reason: reason, Code: code} }
	for _, c := range []struct {
		err  error
		want Retry
	}{
		{&NoMemoryError{Limit: 10, Mapped: 5, Wanted: 10}, RetryLater},
		{&NoMemoryError{Limit: 10, Wanted: 11}, RetryNever},
		{&MemlockError{Limit: 10, Registered: 5, Wanted: 10}, RetryLater},
		{&MemlockError{Limit: 10, Wanted: 11}, RetryNever},
		{&MemlockError{Wanted: 11}, RetryLater}, // the system does not report the limit
		{refused(verbs.RejNoResources, 0), RetryLater},
		{refused(verbs.RejStaleConn, 0), RetryLater},
		{errPeerGaveUp, RetryLater},
		{refused(verbs.RejConsumer, proto.RejectResources), RetryLater},
		{refused(verbs.RejConsumer, proto.RejectClosed), RetryLater},
		{refused(verbs.RejConsumer, proto.RejectMode), RetryNever},
		{refused(verbs.RejConsumer, 0), RetryNever}, // rejected by a program without this package
		{refused(2, 0), RetryNever},
	} {
		if got := RetryOf(c.err); got != c.want {
			t.Errorf("RetryOf(%#v) returns %v, want %v", c.err, got, c.want)
		}
	}
}

// Rule: if the peer accepts the TCP connection and stays silent, DialPlain returns
// ErrConnectTimeout, which is a timeout error. If the context ends first, DialPlain returns the
// context's error.
func TestDialPlainTakesTooLong(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	rt := mainBed.open(t, Config{ConnectTimeout: 20 * time.Millisecond}, 0)
	_, err = rt.DialPlain(testContext(t), ln.Addr().String(), PlainOptions{})
	if !errors.Is(err, ErrConnectTimeout) || !errors.Is(err, os.ErrDeadlineExceeded) || !Retryable(err) {
		t.Errorf("DialPlain to a silent peer: %v; want ErrConnectTimeout, a retryable timeout", err)
	}
	if _, err = rt.DialPlain(endedContext(), ln.Addr().String(), PlainOptions{}); !errors.Is(err, context.Canceled) || Retryable(err) {
		t.Errorf("DialPlain with an ended context: %v; want context.Canceled, not retryable", err)
	}
}
