//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: an object is hidden from events before C destroys it, but not while one is
// unacknowledged; a refused destroy restores it.
func TestClosingObjectMeetsNoEvent(t *testing.T) {
	c := &deviceContext{}
	q := &completionQueue{}
	if err := c.make("make", &q.node, nil, &c.counts.CQ, func() (string, syscall.Errno) {
		c.ids.add(q)
		return "CQ", 0
	}); err != nil {
		t.Fatal(err)
	}
	if c.ids.take(q.id) != registered(q) {
		t.Fatal("an event does not find its object")
	}
	never := func() syscall.Errno { t.Error("C was called"); return 0 }
	if err := q.shut("destroy", never); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing with an unacknowledged event: %v", err)
	}
	q.unacked.Add(-1)
	during := func() syscall.Errno {
		if c.ids.take(q.id) != nil {
			t.Error("an event found an object that is being destroyed")
		}
		return syscall.EPERM
	}
	if err := q.shut("destroy", during); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a refused destruction: %v", err)
	}
	if c.ids.take(q.id) != registered(q) || c.counts.CQ != 1 {
		t.Error("a refused destruction did not bring the object back")
	}
	q.unacked.Add(-1)
	if err := c.keep("child", &q.node); err != nil {
		t.Fatal(err)
	}
	if err := q.shut("destroy", never); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing with a child: %v", err)
	}
	c.release(&q.node)
	calls := 0
	for range 2 {
		if err := q.shut("destroy", func() syscall.Errno { calls++; return 0 }); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
	if calls != 1 || c.counts.CQ != 0 || c.ids.take(q.id) != nil {
		t.Errorf("closed twice: C was called %d times, %d queues are counted", calls, c.counts.CQ)
	}
	if err := q.use("query", never); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a call on a closed object: %v", err)
	}
}

// Objects may be made, used and closed from any goroutine; none is left.
func TestObjectsFromManyGoroutines(t *testing.T) {
	r := newRig(t, Config{})
	before := r.ctx.Objects()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if err := makeAndClose(r.ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := r.ctx.Objects(); got != before {
		t.Errorf("objects %v, before %v", got, before)
	}
}

func makeAndClose(ctx verbs.Context) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(4, nil, 0, 0)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return err
	}
	if err := pd.Close(); !errors.Is(err, verbs.ErrBusy) {
		return errors.Join(errors.New("a protection domain with a queue pair was closed"), err)
	}
	_, err = qp.Query()
	_, _, asyncErr := ctx.Async().Get()
	return errors.Join(err, asyncErr, qp.Close(), cq.Close(), pd.Close())
}
