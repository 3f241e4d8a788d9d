package soft

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// state returns the state of a peer's queue pair.
func (e *peer) state() verbs.QPState {
	e.w.t.Helper()
	a := must.Get(e.qp.Query())(e.w.t)
	return a.State
}

// events takes and acknowledges all asynchronous events.
func (e *peer) events() (types []verbs.AsyncEventType) {
	for {
		ev, ok, err := e.ctx.Async().Get()
		must.Do(e.w.t, err)
		if !ok {
			return types
		}
		types = append(types, ev.Type)
		e.ctx.Async().Ack(ev)
	}
}

// first lets virtual time run until a completion arrives, and no further.
func (w *world) first(cq verbs.CQ) []verbs.WC {
	w.t.Helper()
	e := cq.Context().(*deviceContext)
	for {
		w.step()
		for _, p := range []*peer{w.a, w.b} {
			if p.ctx != e {
				continue
			}
			if wcs := p.poll(cq); len(wcs) > 0 {
				return wcs
			}
		}
		at, ok := w.fab.NextEvent()
		if !ok {
			w.t.Fatalf("nothing completes any more")
		}
		w.fab.AdvanceTo(at)
	}
}

// statuses formats the statuses of completions, by id.
func statuses(wcs []verbs.WC) string {
	s := ""
	for _, c := range wcs {
		s += fmt.Sprintf("%d:%v ", c.WRID, c.Status)
	}
	return s
}

// TestRemoteRefusals: a request that the peer may not make ends with the specified status, moves
// both queue pairs to ERR, flushes the following requests, and raises the responder's event.
func TestRemoteRefusals(t *testing.T) {
	const good = 4096
	for _, c := range []struct {
		name   string
		op     verbs.WROpcode
		target func(w *world) (addr uint64, key uint32)
		access verbs.AccessFlags
		status verbs.WCStatus
		event  verbs.AsyncEventType
	}{
		{"a key that does not exist", verbs.WRRDMAWrite, func(w *world) (uint64, uint32) { return w.b.at(0), w.b.mr.RKey() ^ 1 }, 0, verbs.WCRemAccessErr, verbs.EventQPAccessErr},
		{"key 0", verbs.WRRDMARead, func(w *world) (uint64, uint32) { return w.b.at(0), 0 }, 0, verbs.WCRemAccessErr, verbs.EventQPAccessErr},
		{"one byte before the region", verbs.WRRDMAWrite, func(w *world) (uint64, uint32) { return w.b.at(0) - 1, w.b.mr.RKey() }, 0, verbs.WCRemAccessErr, verbs.EventQPAccessErr},
		{"one byte beyond the region", verbs.WRRDMARead, func(w *world) (uint64, uint32) { return w.b.at(w.b.arena.Len()-good) + 1, w.b.mr.RKey() }, 0, verbs.WCRemAccessErr, verbs.EventQPAccessErr},
		{"a range that wraps around", verbs.WRRDMAWrite, func(w *world) (uint64, uint32) { return ^uint64(0) - 5, w.b.mr.RKey() }, 0, verbs.WCRemAccessErr, verbs.EventQPAccessErr},
		{"a closed region", verbs.WRRDMAWrite, func(w *world) (uint64, uint32) {
			m := w.b.register(allAccess)
			must.Do(w.t, m.Close())
			return w.b.at(0), m.RKey()
		}, 0, verbs.WCRemAccessErr, verbs.EventQPAccessErr},
		{"a region without REMOTE_WRITE", verbs.WRRDMAWrite, func(w *world) (uint64, uint32) {
			m := w.b.register(verbs.AccessLocalWrite | verbs.AccessRemoteRead)
			w.t.Cleanup(func() { m.Close() })
			return w.b.at(0), m.RKey()
		}, 0, verbs.WCRemAccessErr, verbs.EventQPAccessErr},
		{"a region without REMOTE_READ", verbs.WRRDMARead, func(w *world) (uint64, uint32) {
			m := w.b.register(verbs.AccessLocalWrite | verbs.AccessRemoteWrite)
			w.t.Cleanup(func() { m.Close() })
			return w.b.at(0), m.RKey()
		}, 0, verbs.WCRemAccessErr, verbs.EventQPAccessErr},
		{"a region of another domain", verbs.WRRDMAWrite, func(w *world) (uint64, uint32) {
			pd := must.Get(w.b.ctx.AllocPD())(w.t)
			m := must.Get(pd.RegMR(w.b.arena.Addr(), 8192, w.b.arena.Addr(), allAccess))(w.t)
			w.t.Cleanup(func() { m.Close(); pd.Close() })
			return w.b.at(0), m.RKey()
		}, 0, verbs.WCRemAccessErr, verbs.EventQPAccessErr},
		// rxe_resp.c, check_op_valid: the queue pair itself does not permit it.
		{"a queue pair without REMOTE_WRITE", verbs.WRRDMAWrite, func(w *world) (uint64, uint32) { return w.b.at(0), w.b.mr.RKey() }, verbs.AccessLocalWrite | verbs.AccessRemoteRead, verbs.WCRemInvReqErr, verbs.EventQPReqErr},
		{"a queue pair without REMOTE_READ", verbs.WRRDMARead, func(w *world) (uint64, uint32) { return w.b.at(0), w.b.mr.RKey() }, verbs.AccessLocalWrite | verbs.AccessRemoteWrite, verbs.WCRemInvReqErr, verbs.EventQPReqErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{attr: func(a *verbs.QPAttr) {
				if c.access != 0 {
					a.AccessFlags = c.access
				}
			}})
			mem.Poison(w.b.data())
			addr, key := c.target(w)
			w.b.recv(49)
			w.b.recv(50)
			bad := w.a.send(2, c.op, 0, w.a.sge(0, good))
			bad.SetRDMA(addr, key)
			ok := w.a.send(1, verbs.WRSend, 0)
			next := w.a.send(3, verbs.WRSend, 0, w.a.sge(0, 8))
			w.a.mustPost(ok, bad, next)
			w.settle()
			if got, want := statuses(w.a.poll(w.a.scq)), fmt.Sprintf("2:%v 3:WR_FLUSH_ERR ", c.status); got != want {
				t.Fatalf("completions %q, want %q: the error is the cause, the rest is flushed", got, want)
			}
			if got := statuses(w.b.poll(w.b.rcq)); got != "49:SUCCESS 50:WR_FLUSH_ERR " {
				t.Fatalf("the responder's receives complete as %q, want the second flushed", got)
			}
			if w.a.state() != verbs.QPSErr || w.b.state() != verbs.QPSErr {
				t.Fatalf("states %v and %v, want ERR on both sides", w.a.state(), w.b.state())
			}
			if ev := w.b.events(); len(ev) != 1 || ev[0] != c.event {
				t.Fatalf("events %v at the responder, want %v", ev, c.event)
			}
			if at := mem.Poisoned(w.b.data()); at >= 0 {
				t.Fatalf("a refused request wrote at offset %d", at)
			}
		})
	}
}

// TestLocalProtection: a request with invalid local buffers never reaches the peer; those before
// it complete.
func TestLocalProtection(t *testing.T) {
	for _, c := range []struct {
		name string
		op   verbs.WROpcode
		sge  func(w *world) verbs.SGE
	}{
		{"SEND with a wrong lkey", verbs.WRSend, func(w *world) verbs.SGE { s := w.a.sge(0, 8); s.LKey++; return s }},
		{"WRITE beyond the region", verbs.WRRDMAWrite, func(w *world) verbs.SGE { return w.a.sge(w.a.arena.Len()-7, 8) }},
		{"READ into a region without LOCAL_WRITE", verbs.WRRDMARead, func(w *world) verbs.SGE {
			m := w.a.register(verbs.AccessRemoteRead)
			w.t.Cleanup(func() { m.Close() })
			s := w.a.sge(0, 8)
			s.LKey = m.LKey()
			return s
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{})
			w.b.recv(50, w.b.sge(0, 64))
			first := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 3000))
			first.SetRDMA(w.b.at(0), w.b.mr.RKey())
			bad := w.a.send(2, c.op, 0, c.sge(w))
			if c.op != verbs.WRSend {
				bad.SetRDMA(w.b.at(0), w.b.mr.RKey())
			}
			w.a.mustPost(first, bad, w.a.send(3, verbs.WRSend, 0))
			w.settle()
			if got := statuses(w.a.poll(w.a.scq)); got != "1:SUCCESS 2:LOC_PROT_ERR 3:WR_FLUSH_ERR " {
				t.Fatalf("completions %q", got)
			}
			if w.b.state() != verbs.QPSRTS || len(w.b.poll(w.b.rcq)) != 0 {
				t.Fatalf("the peer noticed: state %v", w.b.state())
			}
		})
	}
}

// TestReceiveFailures: a message that does not fit its receive, and a receive with an invalid
// key.
func TestReceiveFailures(t *testing.T) {
	for _, c := range []struct {
		name           string
		recv           func(w *world) verbs.SGE
		sender, reader verbs.WCStatus
	}{
		{"message longer than the receive", func(w *world) verbs.SGE { return w.b.sge(0, 2999) }, verbs.WCRemInvReqErr, verbs.WCLocLenErr},
		{"receive with a wrong lkey", func(w *world) verbs.SGE { s := w.b.sge(0, 4000); s.LKey++; return s }, verbs.WCRemOpErr, verbs.WCLocProtErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{})
			w.b.recv(50, c.recv(w))
			w.b.recv(51, w.b.sge(0, 10))
			w.a.mustPost(w.a.send(1, verbs.WRSend, 0, w.a.sge(0, 3000)))
			w.settle()
			if got, want := statuses(w.a.poll(w.a.scq)), fmt.Sprintf("1:%v ", c.sender); got != want {
				t.Fatalf("sender: %q, want %q", got, want)
			}
			if got, want := statuses(w.b.poll(w.b.rcq)), fmt.Sprintf("50:%v 51:WR_FLUSH_ERR ", c.reader); got != want {
				t.Fatalf("receiver: %q, want %q", got, want)
			}
			if ev := w.b.events(); len(ev) != 0 {
				t.Fatalf("events %v: the receive's completion tells already", ev)
			}
		})
	}
}

// TestRetryExceeded: a request to a silent peer fails after retry_cnt retries.
func TestRetryExceeded(t *testing.T) {
	w := newWorld(t, options{attr: func(a *verbs.QPAttr) { a.RetryCnt, a.Timeout = 3, 10 }})
	w.fab.Partition([]verbs.GID{w.a.gid}, []verbs.GID{w.b.gid})
	from := w.fab.Now()
	wr := w.a.send(1, verbs.WRRDMAWrite, 0, w.a.sge(0, 9000))
	wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
	w.a.mustPost(wr, w.a.send(2, verbs.WRSend, 0))
	if got := statuses(w.first(w.a.scq)); got != "1:RETRY_EXC_ERR 2:WR_FLUSH_ERR " {
		t.Fatalf("completions %q", got)
	}
	if took, want := w.fab.Now()-from, 4*verbs.AckTimeout(10); took != want {
		t.Fatalf("gave up after %v, want %v", took, want)
	}
}

// TestAPeerThatDoesNotRunIsNotGivenUp: packets that wait for an engine that does not run are not
// lost, however long that takes: at most one retry is used up.
func TestAPeerThatDoesNotRunIsNotGivenUp(t *testing.T) {
	w := newWorld(t, options{attr: func(a *verbs.QPAttr) { a.RetryCnt, a.Timeout = 1, 10 }})
	w.b.qp.dev.p.Exclusive(func() { // Step finds the engine running
		w.a.mustPost(w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled))
		for range 10 {
			w.fab.Step()
			w.fab.AdvanceTo(w.fab.Now() + verbs.AckTimeout(10))
		}
	})
	w.a.ok(w.a.want(w.a.scq, 1), 1)
	w.fab.Partition([]verbs.GID{w.a.gid}, []verbs.GID{w.b.gid})
	from := w.fab.Now()
	w.a.mustPost(w.a.send(2, verbs.WRRDMAWrite, 0), w.a.send(3, verbs.WRRDMAWrite, 0))
	if got := statuses(w.first(w.a.scq)); got != "2:RETRY_EXC_ERR 3:WR_FLUSH_ERR " {
		t.Fatalf("completions %q", got)
	}
	if took, want := w.fab.Now()-from, 2*verbs.AckTimeout(10); took != want {
		t.Fatalf("gave up after %v, want %v", took, want)
	}
}

// TestTimeoutZeroWaitsForEver: code 0 disables the timer.
func TestTimeoutZeroWaitsForEver(t *testing.T) {
	w := newWorld(t, options{attr: func(a *verbs.QPAttr) { a.Timeout = 0 }})
	w.fab.Partition([]verbs.GID{w.a.gid}, []verbs.GID{w.b.gid})
	w.a.mustPost(w.a.send(1, verbs.WRSend, 0))
	w.settle()
	w.fab.AdvanceTo(time.Hour)
	w.settle()
	if got := w.a.poll(w.a.scq); len(got) != 0 || w.a.state() != verbs.QPSRTS {
		t.Fatalf("completions %+v in %v, want none in RTS", got, w.a.state())
	}
}

// TestBadWRSplitsTheList: for each position of the bad request, those before it are posted and
// complete, and it and the following ones are not posted.
func TestBadWRSplitsTheList(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(w *world, wr request)
		errno syscall.Errno
	}{
		{"opcode", func(_ *world, wr request) { wr.Opcode = verbs.WRTSO }, syscall.EINVAL},
		{"elements", func(_ *world, wr request) { wr.NumSGE = 5 }, syscall.EINVAL},
		{"inline length", func(w *world, wr request) {
			wr.Flags |= verbs.SendInline
			wr.SGList, wr.NumSGE = w.a.list([]verbs.SGE{w.a.sge(0, 257)}), 1
		}, syscall.EINVAL},
		{"elements outside any arena", func(_ *world, wr request) { wr.SGList, wr.NumSGE = 8, 1 }, syscall.EFAULT},
	} {
		for at := range 4 {
			t.Run(fmt.Sprintf("%s/%d", c.name, at), func(t *testing.T) {
				w := newWorld(t, options{})
				var wrs []request
				for i := range 4 {
					wr := w.a.send(uint64(i), verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 8))
					wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
					wrs = append(wrs, wr)
				}
				c.spoil(w, wrs[at])
				n, err := w.a.post(wrs...)
				if n != at || !errors.Is(err, c.errno) {
					t.Fatalf("%d accepted, %v; want %d and %v", n, err, at, c.errno)
				}
				w.a.ok(w.a.want(w.a.scq, at), 0)
				if w.a.state() != verbs.QPSRTS {
					t.Fatalf("a refused request moved the queue pair to %v", w.a.state())
				}
			})
		}
	}
}
