package verbs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// An OpError unwraps to its cause and its errno, and its text holds all its fields.
func TestOpError(t *testing.T) {
	full := &OpError{Op: "ibv_modify_qp", Object: "QP 0x000011 on soft0", Errno: syscall.EINVAL, Err: ErrInvalidTransition}
	for _, target := range []error{ErrInvalidTransition, syscall.EINVAL} {
		if !errors.Is(full, target) {
			t.Errorf("%v is not %v", full, target)
		}
	}
	for _, not := range []error{ErrBusy, syscall.ENOMEM} {
		if errors.Is(full, not) {
			t.Errorf("%v is %v", full, not)
		}
	}
	for _, c := range []struct {
		e    *OpError
		want string
	}{
		{full, "ibv_modify_qp on QP 0x000011 on soft0: verbs: illegal queue pair transition: invalid argument (errno 22)"},
		{&OpError{Op: "ibv_alloc_pd"}, "ibv_alloc_pd"},
		{&OpError{Op: "ibv_poll_cq", Errno: syscall.EIO}, "ibv_poll_cq: input/output error (errno 5)"},
		{&OpError{Op: "ibv_dereg_mr", Object: "MR 3", Err: ErrBusy}, "ibv_dereg_mr on MR 3: verbs: object in use"},
	} {
		if got := c.e.Error(); got != c.want {
			t.Errorf("says %q, want %q", got, c.want)
		}
	}
	if u := (&OpError{Op: "x"}).Unwrap(); len(u) != 0 {
		t.Errorf("an error without a cause unwraps to %v", u)
	}
	var op *OpError
	if !errors.As(fmt.Errorf("conn 4: %w", full), &op) || op.Errno != syscall.EINVAL {
		t.Error("errors.As does not find the OpError")
	}
}

// A WCError is matched by its status alone, and statuses differ from one another.
func TestWCError(t *testing.T) {
	for s := WCStatus(0); s < NumWCStatus; s++ {
		wc := WC{WRID: 77, Status: s, QPNum: 0x11, VendorErr: 0x32}
		err := wc.Err()
		if s == WCSuccess {
			if err != nil {
				t.Errorf("a success is the error %v", err)
			}
			continue
		}
		for other := WCStatus(1); other < NumWCStatus; other++ {
			if got := errors.Is(err, StatusError(other)); got != (s == other) {
				t.Errorf("%v matches %v: %v", s, other, got)
			}
		}
		var w *WCError
		if !errors.As(fmt.Errorf("read: %w", err), &w) || w.WRID != 77 || w.QPNum != 0x11 || w.VendorErr != 0x32 {
			t.Errorf("errors.As gives %+v", w)
		}
		if w.Flushed() != (s == WCWRFlushErr) {
			t.Errorf("%v: Flushed is %v", s, w.Flushed())
		}
		if !strings.Contains(err.Error(), s.String()) {
			t.Errorf("%q does not name %v", err, s)
		}
	}
	e := &WCError{Status: WCRemAccessErr, Op: "RDMA_READ", QPNum: 0x1a, VendorErr: 0x88}
	if got, want := e.Error(), "RDMA_READ on QP 0x00001a completed with REM_ACCESS_ERR (vendor error 0x88)"; got != want {
		t.Errorf("says %q, want %q", got, want)
	}
	e = &WCError{Status: WCRetryExcErr, Op: "FLUSH", QPNum: 0x1a, VendorErr: 0x20}
	if got, want := e.Error(), "FLUSH on QP 0x00001a completed with RETRY_EXC_ERR (vendor error 0x20): a peer does not answer while it writes"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want it to begin with %q", got, want)
	}
	if errors.Is(e, ErrBusy) {
		t.Error("a WCError matches a sentinel")
	}
}

func TestDeviceError(t *testing.T) {
	err := error(&DeviceError{Name: "mlx9", Known: []string{"soft0", "soft1"}})
	if !errors.Is(err, ErrUnknownDevice) || errors.Is(err, ErrInvalid) {
		t.Error("is not ErrUnknownDevice only")
	}
	if got, want := err.Error(), `unknown RDMA device "mlx9"; known: soft0, soft1`; got != want {
		t.Errorf("says %q, want %q", got, want)
	}
	if got, want := (&DeviceError{Name: "x"}).Error(), `unknown RDMA device "x"; known: none`; got != want {
		t.Errorf("says %q, want %q", got, want)
	}
}
