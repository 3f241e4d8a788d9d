package rpma

import (
	"errors"
	"fmt"
	"math"
	"net"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: codes have the numbers and the texts of librpma. An unknown number has the text of ErrUnknown.
func TestErrorTexts(t *testing.T) {
	for n, text := range map[Code]string{
		0: "Success", -100000: "Unknown error", -100001: "Not supported", -100002: "Provider error occurred", -100003: "Out of memory",
		-100004: "Invalid argument", -100005: "No next completion available", -100006: "No next event available",
		-100007: "Temporary error, try again", -100008: "Completion channel is shared", -100009: "Completion channel is not shared", -100010: "Unknown error", 1: "Unknown error",
	} {
		if got := n.Error(); got != text {
			t.Errorf("code %d has the text %q, want %q", n, got, text)
		}
	}
	for i, c := range []Code{ErrUnknown, ErrNotSupported, ErrProvider, ErrNoMemory, ErrInvalid, ErrNoCompletion, ErrNoEvent, ErrAgain, ErrSharedChannel, ErrNotSharedChannel} {
		if want := Code(-100000 - i); c != want {
			t.Errorf("%v has the number %d, want %d", c, c, want)
		}
	}
}

// Rule: an error matches its code, its errno and its reason, and names the call. It says whether the same call may
// succeed later.
func TestErrorsMatch(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", fail("rpma_read", ErrProvider, fmt.Errorf("%w: %w", verbs.ErrBusy, syscall.EBUSY)))
	for _, target := range []error{ErrProvider, syscall.EBUSY, verbs.ErrBusy} {
		if !errors.Is(err, target) {
			t.Errorf("%v does not match %v", err, target)
		}
	}
	for _, target := range []error{ErrInvalid, syscall.EIO, net.ErrClosed} {
		if errors.Is(err, target) {
			t.Errorf("%v matches %v", err, target)
		}
	}
	if code, ok := errors.AsType[Code](err); !ok || code != ErrProvider {
		t.Errorf("the code of %v is %v, %v, want ErrProvider", err, code, ok)
	}
	if err := fail("f", ErrNotSupported, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v does not match errors.ErrUnsupported, which its errno matches", err)
	}
	if errno, ok := errors.AsType[syscall.Errno](fail("f", ErrUnknown, nil)); ok || errors.Is(fail("f", ErrUnknown, nil), syscall.Errno(0)) {
		t.Errorf("an error without an errno has or matches errno %d", errno)
	}
	for _, x := range []struct {
		err   error
		code  Code
		errno syscall.Errno
		retry verbs.Retry
	}{
		{classified("f", runtime.ErrQueueFull), ErrProvider, syscall.ENOMEM, verbs.RetryLater},
		{classified("f", runtime.ErrRecvFull), ErrProvider, syscall.ENOMEM, verbs.RetryLater},
		{classified("f", runtime.ErrReleased), ErrInvalid, syscall.EINVAL, verbs.RetryNever},
		{classified("f", verbs.ErrInvalid), ErrInvalid, syscall.EINVAL, verbs.RetryNever},
		{classified("f", runtime.ErrPermission), ErrInvalid, syscall.EINVAL, verbs.RetryNever},
		{classified("f", runtime.ErrMode), ErrProvider, syscall.EINVAL, verbs.RetryNever},
		{classified("f", verbs.ErrNotSupported), ErrNotSupported, syscall.EOPNOTSUPP, verbs.RetryNever},
		{classified("f", &runtime.NoMemoryError{}), ErrNoMemory, syscall.ENOMEM, verbs.RetryOf(&runtime.NoMemoryError{})},
		{classified("f", runtime.ErrPeerClosed), ErrProvider, syscall.EIO, verbs.RetryReconnect},
		{classified("f", &verbs.OpError{Op: "ibv_reg_mr", Errno: syscall.EINVAL, Err: verbs.ErrInvalid}), ErrProvider, syscall.EINVAL, verbs.RetryNever},
		{classified("f", &verbs.OpError{Op: "ibv_reg_mr", Errno: syscall.ENOMEM}), ErrProvider, syscall.ENOMEM, verbs.RetryLater},
		{fail("f", ErrNoEvent, nil), ErrNoEvent, syscall.EAGAIN, verbs.RetryLater},
		{fail("f", ErrSharedChannel, nil), ErrSharedChannel, syscall.EINVAL, verbs.RetryNever},
		{errNone, ErrNoCompletion, syscall.EAGAIN, verbs.RetryLater},
	} {
		e, ok := errors.AsType[*Error](x.err)
		if !ok || e.Code != x.code || e.Errno != x.errno || verbs.RetryOf(x.err) != x.retry {
			t.Errorf("%v has code %v, errno %v, retry %v; want %v, %v, %v", x.err, e.Code, e.Errno, verbs.RetryOf(x.err), x.code, x.errno, x.retry)
		}
	}
	if classified("f", nil) != nil {
		t.Error("no error was made an error")
	}
}

// Rule: each function answers wrong arguments with the code that its manual lists. Arguments that C can leave
// out and Go cannot are not here. (Operations: TestContract2, 3, 4 and 5.)
func TestErrorsOfArguments(t *testing.T) {
	r := newRig(t)
	p := r.peer[0]
	is := func(what string, err error, want Code) {
		t.Helper()
		t.Run(what, func(t *testing.T) { isCode(t, what, err, want) })
	}
	ep, port := r.listen()
	c, s := r.connectTo(ep, port, nil, nil)
	_ = s
	_, err := NewPeer(nil)
	is("rpma_peer_new: no runtime", err, ErrInvalid)
	for what, args := range map[string]struct {
		addr string
		side Side
		want Code
	}{
		"no address": {"", Local, ErrInvalid}, "an unknown side": {"127.0.0.1", 2, ErrInvalid}, "a negative side": {"127.0.0.1", -1, ErrInvalid},
		"no such name": {"no such host", Local, ErrProvider}, "an address of no device": {"198.51.100.1", Local, ErrProvider},
	} {
		_, err := FindDevice(r.ctx, nil, args.addr, args.side)
		is("rpma_utils_get_ibv_context: "+what, err, args.want)
	}
	_, err = FindDevice(nil, nil, "127.0.0.1", Local) //nolint:staticcheck // the mistake
	is("rpma_utils_get_ibv_context: no context", err, ErrInvalid)
	for what, err := range map[string]error{
		"no bytes":                second(p.RegMR(nil, ReadSrc)),
		"no uses":                 second(p.RegMR(make([]byte, 8), 0)),
		"memory of the Go heap":   second(p.RegMR(make([]byte, 8), ReadSrc)),
		"NewMR of no bytes":       second(p.NewMR(0, ReadSrc)),
		"NewMR of negative bytes": second(p.NewMR(-1, ReadSrc)),
		"NewMR for no uses":       second(p.NewMR(8, 0)),
		"no region":               second(p.RegRegion(nil, ReadSrc)),
	} {
		is("rpma_mr_reg: "+what, err, ErrInvalid)
	}
	for what, cfg := range map[string]ConnConfig{
		"a negative timeout": {Timeout: -1}, "a negative CQ": {CQSize: -1}, "a negative receive CQ": {RCQSize: -1}, "a negative SQ": {SQSize: -1}, "a negative RQ": {RQSize: -1},
	} {
		is("rpma_conn_req_new: "+what, second(p.NewConnReq(r.ctx, r.addr[1], port, &cfg)), ErrInvalid)
		is("rpma_ep_next_conn_req: "+what, second(ep.NextConnReq(r.ctx, &cfg)), ErrInvalid)
		is("rpma_ep_next_conn_req, not waiting: "+what, second(ep.TryNextConnReq(r.ctx, &cfg)), ErrInvalid)
	}
	is("rpma_conn_req_new: no address", second(p.NewConnReq(r.ctx, "", port, nil)), ErrInvalid)
	is("rpma_conn_req_new: no port", second(p.NewConnReq(r.ctx, r.addr[1], "", nil)), ErrInvalid)
	is("rpma_conn_req_new: an unknown service", second(p.NewConnReq(r.ctx, r.addr[1], "no such service", nil)), ErrProvider)
	is("rpma_conn_req_new: no such host", second(p.NewConnReq(r.ctx, "no such host", port, nil)), ErrProvider)
	is("rpma_ep_listen: no such host", second(p.Listen(r.ctx, "no such host", "0")), ErrProvider)
	is("rpma_ep_listen: no address", second(p.Listen(r.ctx, "", "0")), ErrInvalid)
	is("rpma_ep_listen: no port", second(p.Listen(r.ctx, r.addr[0], "")), ErrInvalid)
	is("rpma_ep_listen: an unknown service", second(p.Listen(r.ctx, r.addr[0], "no such service")), ErrProvider)
	is("rpma_ep_listen: an address of no device", second(p.Listen(r.ctx, "198.51.100.1", "0")), ErrProvider)
	err = second(r.peer[1].Listen(r.ctx, r.addr[1], port))
	if is("rpma_ep_listen: a port in use", err, ErrProvider); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening at a port in use returned %v, want EADDRINUSE", err)
	}
	is("rpma_ep_next_conn_req: no request", second(ep.TryNextConnReq(r.ctx, nil)), ErrNoEvent)
	e, err := c.TryNextEvent()
	if is("rpma_conn_next_event: no event", err, ErrNoEvent); e != Undefined {
		t.Errorf("without an event TryNextEvent returned %v, want Undefined", e)
	}
	for what, cfg := range map[string]SRQConfig{"a negative RQ": {RQSize: -1}, "a receive CQ below -1": {RCQSize: -2}} {
		is("rpma_srq_new: "+what, second(p.NewSRQ(&cfg)), ErrInvalid)
	}
	most := p.Runtime().DeviceAttr().MaxCQE
	for what, cfg := range map[string]ConnConfig{"a CQ larger than the device's": {CQSize: most + 1}, "a receive CQ larger than the device's": {RCQSize: math.MaxInt}} {
		for op, err := range map[string]error{
			"rpma_conn_req_new: ":     second(p.NewConnReq(r.ctx, r.addr[1], port, &cfg)),
			"rpma_ep_next_conn_req: ": second(ep.TryNextConnReq(r.ctx, &cfg)),
		} {
			if is(op+what, err, ErrProvider); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s%s: the error is %v, want EINVAL", op, what, err)
			}
		}
	}
	is("rpma_srq_new: a receive CQ larger than the device's", second(p.NewSRQ(&SRQConfig{RCQSize: most + 1})), ErrProvider)
	q := must.Get(p.NewConnReq(r.ctx, r.addr[1], port, nil))(t)
	r.closes(q)
	is("rpma_conn_req_recv: no memory", q.Recv(nil, 0, 0, 1), ErrInvalid)
	is("rpma_conn_disconnect: not connected", q.conn.Disconnect(), ErrProvider)
	is("rpma_conn_next_event: no context", second(c.NextEvent(nil)), ErrInvalid)          //nolint:staticcheck // the mistake
	is("rpma_ep_next_conn_req: no context", second(ep.NextConnReq(nil, nil)), ErrInvalid) //nolint:staticcheck // the mistake
	is("rpma_conn_req_delete: no context", q.Close(nil), ErrInvalid)                      //nolint:staticcheck // the mistake
	is("rpma_ep_shutdown: no context", ep.Close(nil), ErrInvalid)                         //nolint:staticcheck // the mistake
	is("rpma_cq_wait: no context", c.CQ().Wait(nil), ErrInvalid)                          //nolint:staticcheck // the mistake
	is("rpma_conn_delete: no context", c.Close(nil), ErrInvalid)                          //nolint:staticcheck // the mistake
}

func second[T any](_ T, err error) error { return err }
