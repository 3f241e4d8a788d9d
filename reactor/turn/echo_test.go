//go:build !verbena_model

package turn

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/sys"
)

// job is an operation whose result is job.value. The submitter owns a job until the push, and again
// after the job is settled.
type job struct {
	hook    ring.Hook[job]
	promise futures.Promise[uint64]
	value   uint64
}

func (j *job) InboxHook() *ring.Hook[job] { return &j.hook }

// echo is a minimal reactor with a token, a poller and a device. Either the device has a goroutine of
// its own, or Pass completes each job when it posts the job.
type echo struct {
	tok    *Token
	poller *sys.Poller
	sleep  *PollerSleeper
	pool   *futures.Pool[uint64]
	inbox  ring.Inbox[job, *job]
	calls  atomic.Int64  // number of submitted loop tasks
	ended  chan struct{} // closed when the loop has returned

	// The device.
	wire  chan *job             // carries posted jobs to the device's goroutine; nil if there is none
	cq    ring.Inbox[job, *job] // completed jobs
	armed atomic.Bool           // set by the holder, cleared by the device when it raises an event
	event *sys.Event

	// Owned by the holder.
	isArmed     bool
	outstanding int
	settled     int   // jobs settled
	refused     int   // calls of Settle on a settled promise
	ran         int64 // loop tasks run
	inTurn      int   // written without synchronization, so the race detector reports a second holder
}

// eventKey is the key of the device's event in the poller.
const eventKey = 7

func newEcho(tb testing.TB, cfg Config, device bool) *echo {
	tb.Helper()
	e := &echo{ended: make(chan struct{})}
	var err error
	if e.poller, err = sys.NewPoller(); err != nil {
		tb.Fatal(err)
	}
	e.event = must.Get(sys.NewEvent())(tb)
	must.Do(tb, e.poller.Attach(e.event, eventKey))
	e.sleep = NewPollerSleeper(e.poller)
	e.tok = New(e, e.sleep, cfg)
	if device {
		e.wire = make(chan *job, 1<<14)
		go e.device()
	}
	go func() {
		defer close(e.ended)
		e.tok.Loop()
	}()
	return e
}

// close ends the loop and the device; no job may be outstanding.
func (e *echo) close(tb testing.TB) {
	tb.Helper()
	e.tok.WithTurn(func() {
		if e.outstanding != 0 || !e.inbox.Empty() {
			tb.Errorf("%d jobs are outstanding, and submitted jobs are left = %t; want 0 and false", e.outstanding, !e.inbox.Empty())
		}
	})
	if e.wire != nil {
		close(e.wire)
	}
	if err := e.poller.Detach(eventKey); err != nil {
		tb.Error(err)
	}
	if err := e.poller.Close(); err != nil {
		tb.Error(err)
	}
	<-e.ended
	if err := e.sleep.Err(); err != nil {
		tb.Error(err)
	}
	if err := e.event.Close(); err != nil {
		tb.Error(err)
	}
}

// device completes the posted jobs, on the device's own goroutine.
func (e *echo) device() {
	for j := range e.wire {
		e.cq.Push(j)
		if e.armed.Swap(false) {
			e.event.Signal()
		}
	}
}

func (e *echo) Pass(arm bool) (did bool) {
	e.inTurn++
	for j := e.inbox.TakeAll(); j != nil; {
		next := j.hook.Unlink()
		did = true
		e.outstanding++
		if e.wire == nil {
			e.settle(j)
		} else {
			e.wire <- j
		}
		j = next
	}
	if arm && e.outstanding > 0 && !e.isArmed {
		e.isArmed = true
		e.armed.Store(true)
	}
	for j := e.cq.TakeAll(); j != nil; {
		next := j.hook.Unlink()
		did = true
		e.settle(j)
		j = next
	}
	return did
}

func (e *echo) settle(j *job) {
	e.outstanding--
	e.settled++
	if !j.promise.Settle(j.value, nil) {
		e.refused++
	}
}

func (e *echo) Pending() bool       { return !e.inbox.Empty() || e.calls.Load() > 0 }
func (e *echo) Armed() bool         { return e.isArmed || e.outstanding == 0 }
func (e *echo) Quiet() bool         { return false }
func (e *echo) Outstanding() bool   { return e.outstanding > 0 }
func (e *echo) NeedsLoop() bool     { return e.sleep.Ready() || e.calls.Load() > 0 }
func (e *echo) Deadline() time.Time { return time.Time{} }

func (e *echo) RunLoopTasks() (after func()) {
	e.inTurn++
	if e.sleep.Ready() {
		e.sleep.Take()
		e.event.Drain()
		e.isArmed = false
	}
	e.ran += e.calls.Swap(0)
	return nil
}

// Drive implements futures.Driver.
func (e *echo) Drive(done <-chan struct{}, w *futures.Waiter) error {
	e.tok.Drive(done, Waiter(w))
	return nil
}

// push submits j. If quiet is set, push does not wake the loop, and the caller must await j next.
func (e *echo) push(j *job, value uint64, quiet bool) futures.Future[uint64] {
	var f futures.Future[uint64]
	j.promise, f = e.pool.New(e)
	j.value = value
	e.inbox.Push(j)
	if quiet {
		e.tok.SubmittedBeforeDrive()
	} else {
		e.tok.Submitted()
	}
	return f
}
