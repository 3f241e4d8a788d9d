//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule (semantics 34): of a device that flushes a queue pair only when it is destroyed
// Cancel brings everything home, too, within its bound.
// Defence: runtime/conn_teardown.go, the timer of flushBound in fail.
func TestNullCancelWithoutAFlush(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1, Conn: Options{Raw: true}})
	a, b := d.connect()
	r, err := d.client.NewRegion(64, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	local, err := r.Slice(0, 64)
	if err != nil {
		t.Fatal(err)
	}
	stuck, err := a.Send(testContext(t), local) // the peer has no receive
	if err != nil {
		t.Fatal(err)
	}
	receive, err := a.PostRecv(local)
	if err != nil {
		t.Fatal(err)
	}
	d.fault(nulldev.Fault{Kind: nulldev.LateFlush})
	if err := a.Cancel(endedContext()); !errors.Is(err, endedContext().Err()) {
		t.Errorf("cancelling with a context that has ended: %v", err)
	}
	if err := r.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing the region while the device has it: %v, want %v", err, verbs.ErrBusy)
	}
	from := time.Now()
	if err := a.Cancel(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(from); took > flushBound+lateEvents {
		t.Errorf("cancelled after %v, the bound is %v", took, flushBound)
	}
	for what, f := range map[string]Future{"the send": stuck, "the receive": receive} {
		if _, err, ok := f.Poll(); !ok || !errors.Is(err, ErrCancelled) {
			t.Errorf("%s: %v (settled %v), want %v", what, err, ok, ErrCancelled)
		}
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing the region after Cancel: %v", err)
	}
	for _, c := range []*Conn{a, b} {
		if err := c.Close(testContext(t)); err != nil {
			t.Error(err)
		}
	}
}
