package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// session is one connection of the stress, and those who use it.
type session struct {
	s        *stress
	name     string
	ends     [2]*Conn // client, server
	region   *Region  // of the server: a part for each worker
	remote   Remote
	ctx      context.Context // of everything that may take as long as it takes
	streams  [2]stressStream // from the client, from the server
	budget   atomic.Int64    // operations until it ends
	stopping atomic.Bool     // the budget is used up: nobody starts anything new
	// excused is set before we do something that makes operations fail.
	excused atomic.Bool
	// lost is set by whoever sees a failure.
	lost    atomic.Bool
	retried atomic.Bool // retries were used up: the link's doing
}

// stressStream is one direction's messages. Written by the sender, who stores
// last before it counts; read by the receiver.
type stressStream struct {
	accepted atomic.Int64
	finished atomic.Bool // accepted is final
	received int64       // the receiver's
}

// link runs sessions until enough is done.
func (s *stress) link(i int) {
	for n := 0; !s.over(); n++ {
		ses := &session{s: s, name: fmt.Sprintf("session %d.%d", i, n)}
		ses.run(newSimRand(s.seed + uint64(i)<<32 + uint64(n)<<8))
	}
}

func (ses *session) fail(format string, args ...any) {
	ses.s.fail("%s: %s", ses.name, fmt.Sprintf(format, args...))
	ses.lost.Store(true)
}

func (ses *session) run(r simRand) {
	s := ses.s
	ctx, cancel := context.WithTimeout(context.Background(), stressHang)
	defer cancel()
	ses.ctx = ctx
	if !ses.connect() {
		return
	}
	s.sessions.Add(1)
	all := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	var err error
	if ses.region, err = s.server.NewRegion(stressWorkers*partSize, all); err != nil {
		ses.fail("%v", err)
		return
	}
	mem.Poison(ses.region.Bytes())
	if ses.remote, err = ses.region.Remote(0, ses.region.Len()); err != nil {
		ses.fail("%v", err)
		return
	}
	ses.budget.Store(int64(r.between(100, 4000)))
	ending := r.IntN(5)
	seed := r.Uint64()

	var using, receiving sync.WaitGroup
	workers := make([]*worker, stressWorkers)
	for i := range workers {
		workers[i] = newWorker(ses, i, newSimRand(seed+uint64(i)))
		using.Go(workers[i].run)
	}
	for side := range ses.ends {
		using.Go(func() { ses.send(side, newSimRand(seed+100+uint64(side))) })
		receiving.Go(func() { ses.receive(1-side, newSimRand(seed+200+uint64(side))) })
	}
	if ending > 0 {
		using.Go(func() { ses.kill(ending) })
	}
	using.Wait()
	if ses.lost.Load() || ses.excused.Load() {
		ses.abort()
	}
	receiving.Wait()
	ses.close(workers)
}

// connect dials and accepts; the link may lose what it likes, the connection
// manager repeats.
func (ses *session) connect() bool {
	s := ses.s
	l, err := s.server.Listen(":0")
	if err != nil {
		ses.fail("listening: %v", err)
		return false
	}
	var accepting sync.WaitGroup
	var aerr error
	accepting.Go(func() { ses.ends[1], aerr = l.Accept(ses.ctx) })
	c, err := s.client.Dial(ses.ctx, l.Addr().String())
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			ses.fail("dialing hangs: %v", err)
		}
		if cerr := l.Close(ses.ctx); cerr != nil {
			ses.fail("closing the listener: %v", cerr)
		}
	}
	ses.ends[0] = c
	accepting.Wait()
	if err == nil {
		if cerr := l.Close(ses.ctx); cerr != nil {
			ses.fail("closing the listener: %v", cerr)
		}
	}
	if err == nil && aerr == nil {
		return true
	}
	for _, c := range ses.ends {
		if c != nil {
			_ = c.Close(ses.ctx) // it never worked
		}
	}
	if !errors.Is(err, ErrConnectTimeout) && !errors.Is(err, ErrUnreachable) && !errors.Is(aerr, ErrConnectTimeout) && !errors.Is(aerr, ErrUnreachable) {
		ses.fail("connecting: %v; accepting: %v", err, aerr)
	}
	return false
}

// spend takes one operation from the budget; false when the session is over.
func (ses *session) spend() bool {
	if ses.lost.Load() || ses.stopping.Load() || ses.budget.Add(-1) < 0 || ses.s.over() {
		ses.stopping.Store(true)
		return false
	}
	return true
}

// failed judges the error of an operation on end side. It ends the session; a
// failure needs a reason.
func (ses *session) failed(what string, err error) {
	var wc *verbs.WCError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		ses.fail("%s hangs: %v", what, err)
	case errors.As(err, &wc) && wc.Status == verbs.WCRetryExcErr:
		ses.retried.Store(true)
	}
	ses.lost.Store(true)
}

// kill ends the session badly, in the middle of everything.
func (ses *session) kill(how int) {
	for !ses.stopping.Load() && !ses.lost.Load() {
		select {
		case <-ses.ctx.Done():
			return
		case <-time.After(time.Millisecond):
		}
		if ses.budget.Load() < 50 {
			break
		}
	}
	ses.excused.Store(true)
	ses.s.killed.Add(1)
	end := ses.ends[how%2]
	switch how {
	case 1, 2:
		end.Abort()
	case 3: // as if the device had given up
		err := end.sh.r.Do(ses.ctx, func() {
			if qp := end.q.QP(); end.state == connOpen {
				_ = qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState) // refused if it is gone
			}
		})
		if err != nil {
			ses.fail("holding the turn: %v", err)
		}
	default:
		ctx, cancel := context.WithTimeout(ses.ctx, time.Millisecond)
		defer cancel()
		if err := end.Close(ctx); err != nil {
			ses.fail("closing: %v", err)
		}
	}
}

// abort makes receivers see the end.
func (ses *session) abort() {
	for _, c := range ses.ends {
		c.Abort()
	}
}

// close ends the connection and looks at what it has left.
func (ses *session) close(workers []*worker) {
	for i, c := range ses.ends {
		if err := c.Close(ses.ctx); err != nil {
			ses.fail("closing end %d: %v", i, err)
		}
	}
	bad := ses.lost.Load()
	switch {
	case bad && ses.excused.Load():
	case bad && ses.retried.Load():
		ses.s.failed.Add(1)
	case bad:
		ses.fail("it failed without a reason: %v; %v", ses.ends[0].Err(), ses.ends[1].Err())
	}
	for _, w := range workers {
		w.check(bad)
	}
	if err := ses.region.Close(); err != nil {
		ses.fail("closing the region: %v", err)
	}
}
