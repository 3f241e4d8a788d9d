package rdmacm

import (
	"context"
	"errors"
	"net"
	"os"
	"reflect"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: each error of the package answers whether trying again may help, and with which errno it comes.
func TestErrorsAnswer(t *testing.T) {
	for _, c := range []struct {
		err   error
		retry verbs.Retry
		errno syscall.Errno
	}{
		{ErrQueueFull, verbs.RetryLater, syscall.ENOMEM},
		{ErrNotConnected, verbs.RetryLater, syscall.EINVAL},
		{ErrNoQP, verbs.RetryNever, syscall.EINVAL},
		{ErrRange, verbs.RetryNever, syscall.EINVAL},
		{ErrShared, verbs.RetryNever, syscall.EINVAL},
		{ErrAsync, verbs.RetryNever, syscall.EINVAL},
		{verbs.ErrBusy, verbs.RetryLater, syscall.EBUSY},
		{verbs.ErrNotSupported, verbs.RetryNever, syscall.EOPNOTSUPP},
		{verbs.ErrDeviceRemoved, verbs.RetryNever, syscall.ENODEV},
		{verbs.ErrUnknownDevice, verbs.RetryNever, syscall.ENODEV},
	} {
		err := named("rdma_call", nil, c.err)
		op, ok := errors.AsType[*verbs.OpError](err)
		if !ok || op.Op != "rdma_call" || op.Errno != c.errno || !errors.Is(err, c.err) || !errors.Is(err, c.errno) || verbs.RetryOf(err) != c.retry {
			t.Errorf("%v: error %v with errno %v, retry %v; want %v and %v", c.err, err, op.Errno, verbs.RetryOf(err), c.errno, c.retry)
		}
	}
	if closed := named("rdma_call", nil, verbs.ErrClosed); !errors.Is(closed, net.ErrClosed) || !errors.Is(closed, os.ErrClosed) || !errors.Is(closed, syscall.EBADF) {
		t.Errorf("%v does not match the errors of closed things", closed)
	}
}

// Rule: a call that waits refuses a nil context, and returns the context's error when that ends.
func TestContextsOfCalls(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(attr())
	c := r.dialer(at, attr())
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	for what, call := range map[string]func(context.Context) error{
		"GetRequest":  func(ctx context.Context) error { _, err := l.GetRequest(ctx); return err },
		"GetSendComp": func(ctx context.Context) error { _, err := c.GetSendComp(ctx); return err },
		"Next":        func(ctx context.Context) error { _, err := c.RecvCQ().Next(ctx); return err },
		"GetEvent":    func(ctx context.Context) error { _, err := c.channel().GetEvent(ctx); return err },
	} {
		if err := call(nil); !errors.Is(err, ErrNilContext) {
			t.Errorf("%s with a nil context returned %v, want ErrNilContext", what, err)
		}
		if err := call(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%s whose context has ended returned %v, want that error", what, err)
		}
	}
	must.Do(t, c.Destroy(r.ctx))
	must.Do(t, c.Destroy(r.ctx)) // idempotent
}

// Rule: the end of a context is no error of the C function, so it has no errno, and is the error of the context.
// A region for a destroyed identifier is refused. (The bugs: GetRequest also said EINVAL; RegMsgs succeeded.)
func TestEndsOfContextsHaveNoErrno(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(attr())
	id := r.dialer(at, attr())
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	_, err := l.GetRequest(ended)
	for what, err := range map[string]error{"GetRequest": err, "Connect": id.Connect(ended, nil)} {
		if _, c := errors.AsType[*verbs.OpError](err); c || !errors.Is(err, context.Canceled) || errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want the end of the context and no errno", what, err)
		}
	}
	must.Do(t, id.Destroy(r.ctx))
	if _, err := id.RegMsgs(make([]byte, 1)); !errors.Is(err, verbs.ErrClosed) || !errors.Is(err, syscall.EBADF) {
		t.Errorf("RegMsgs of a destroyed identifier: %v, want EBADF", err)
	}
}

// Rule: each method of a nil pointer that returns an error returns EINVAL. (The bug: it panicked, where C functions
// that return errors check for NULL.)
func TestNilPointers(t *testing.T) {
	var id *ID
	var mr *MR
	var srq *SRQ
	var cq *CQ
	var ch *EventChannel
	calls := map[string]reflect.Value{"MR.Dereg": reflect.ValueOf(mr.Dereg), "MR.Close": reflect.ValueOf(mr.Close), "RegMR": reflect.ValueOf(RegMR)}
	for _, p := range []reflect.Value{reflect.ValueOf(id), reflect.ValueOf(srq), reflect.ValueOf(cq), reflect.ValueOf(ch)} {
		for i := range p.NumMethod() {
			calls[p.Type().String()+"."+p.Type().Method(i).Name] = p.Method(i)
		}
	}
	ctx := context.Background()
	tried := 0
	for name, call := range calls {
		n := call.Type().NumOut()
		if n == 0 || call.Type().Out(n-1) != reflect.TypeFor[error]() {
			continue
		}
		args := make([]reflect.Value, call.Type().NumIn())
		for i := range args {
			if args[i] = reflect.Zero(call.Type().In(i)); call.Type().In(i) == reflect.TypeFor[context.Context]() {
				args[i] = reflect.ValueOf(ctx)
			}
		}
		tried++
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%s panics: %v", name, p)
				}
			}()
			if err, _ := call.Call(args)[n-1].Interface().(error); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s returned %v, want EINVAL", name, err)
			}
		}()
	}
	if tried < 50 {
		t.Errorf("%d methods tried, want 50 or more", tried)
	}
	if n := cq.Poll(make([]verbs.WC, 1)); n != 0 {
		t.Errorf("Poll took %d completions, want none", n)
	}
}
