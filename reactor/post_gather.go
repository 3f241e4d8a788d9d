package reactor

import (
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// The unposted sends of a queue are in its submission stack and in its backlog. The backlog is in
// posting order:
//
//	any goroutine ──Push──> submission stack ──collect──┐
//	the holder: PostFromSink, TransferWait ──add────────┴──> backlog ──list──> posted
//
// Before the holder adds a request of its own to the backlog, it moves the requests of the submission
// stack there (collect). So the requests of one goroutine stay in order, even if the goroutine submits
// some of them with Transfer and others with TransferWait.
//
// A pass serves all queues and delivers results at its end, so a single queue must not make the
// pass long. In a pass, a queue posts one list of at most turnRequests sends. The list also ends with
// the send that brings its bytes to turnBytes. The remaining sends stay in the backlog, and the queue
// goes on the ready list for the next pass.
//
// The software RNIC (verbs/soft) moves the bytes of a list while it posts the list. turnBytes limits
// the time that this takes. Other devices decide themselves how queue pairs share the wire.
const (
	// turnRequests is twice the list length at which the doorbell's cost per request becomes
	// negligible. The software RNIC takes some 30 µs for 256 requests (0.12 µs each), sender and
	// receiver together.
	turnRequests = 256
	// turnBytes is how many bytes the software RNIC moves in 16 µs (at 65 GB/s).
	turnBytes = 1 << 20
)

// backlog holds the unposted sends that the holder has taken off the submission stack, and the sends
// that the holder has added itself. The oldest send comes first. The slots are linked by the links of
// the submission stack. Only the holder uses a backlog.
//
//	          add, collect            list: all of it
//	empty ─────────────────> waiting ─────────────────> empty
//	                          │   ^
//	   delay (post_delay.go)  v   │ list: a part of it
//	                         delayed
//
// If a backlog is waiting, its queue is on the ready list or in Reactor.ownBacklog, or unbindable is set. If a
// backlog is delayed, its queue is in Reactor.delayed.
type backlog struct {
	first, last uint32
	n           int
	unbindable  bool          // the first request waits until no send is outstanding (untilBind)
	delayed     bool          // the sends are held back (post_delay.go)
	since       time.Duration // when the delay began, on the timers' clock; valid if delayed is set
}

// readyQueue is a Queue on its reactor's ready list.
type readyQueue Queue

// InboxHook links the queue.
func (q *readyQueue) InboxHook() *ring.Hook[readyQueue] { return &q.hook }

// ready puts the queue on the ready list, unless the queue is there already. Any goroutine may call
// ready.
func (q *Queue) ready() {
	if q.queued.Enter() {
		q.r.ready.Push((*readyQueue)(q))
	}
}

// gather moves requests of the ready queues into the batch of the pass: for each queue at most one
// list of sends and one list of receives (of a SharedRecv at most two). It reports whether it found any
// requests. Only the holder calls the functions below.
func (r *Reactor) gather(arm bool) bool {
	did := false
	keeps := r.cfg.FlushDelay > 0
	if keeps {
		r.beginDelays(arm)
	}
	for l := r.ready.TakeAll(); l != nil; {
		q := (*Queue)(l)
		l = q.hook.Unlink()
		q.queued.Leave() // after this call, q.ready() may push q again
		did = q.gatherSends() || did
		if q.hasRecvs() {
			q.gatherRecvs()
			did = true
		}
	}
	if keeps && len(r.delayed) > 0 {
		did = r.gatherDelayed() || did
	}
	if r.ownBacklog != nil {
		r.gatherOwn()
		did = true
	}
	if did && len(r.shared) > 0 {
		r.gatherShared()
	}
	return did
}

// gatherOwn moves the request of TransferWait or TransferNow into the batch. Reactor.ownBacklog is the queue of this
// request. A queue has at most one list of sends in a pass. If the batch already has a list of this
// queue, the request is in that list, or it stays in the backlog for the next pass.
func (r *Reactor) gatherOwn() {
	q := r.ownBacklog
	r.ownBacklog = nil
	if q.hasRecvs() && !slices.Contains(r.recvOwners, q) {
		q.gatherRecvs() // receives of PostRecvLater are posted with the queue's next send
	}
	if len(r.sendOwners) > 0 && slices.Contains(r.sendOwners, q) {
		return
	}
	b, i := &q.backlog, q.backlog.first
	if b.n > 1 || !q.sendStack.Empty() || q.released() || q.sealed || q.qp == nil {
		q.gatherSends()
		return
	}
	// A single request is handled here. A call of q.list() instead would add 8 ns to the 260 ns of
	// a synchronous WRITE.
	b.n = 0
	ch := q.tab.chunk(i)
	w := &ch.requests[i%chunkSlots]
	w.Next = 0
	w.Flags |= verbs.SendSignaled
	q.sincesig = 0
	ch.slots[i%chunkSlots].posted = true
	q.order.push(i, i, 1)
	r.batch.Sends = append(r.batch.Sends, verbs.SendGroup{QP: q.qp, Head: ch.address(i), Count: 1})
	r.sendOwners = append(r.sendOwners, q)
	q.listed(i, 1)
}

// collect moves the requests of the submission stack to the backlog. It reports whether there were
// any requests.
func (q *Queue) collect() bool {
	first, last, n := q.sendStack.TakeAll()
	if n > 0 {
		q.join(first, last, n)
	}
	return n > 0
}

// add appends slot i to the backlog, behind all requests that were submitted earlier. The holder has
// filled the slot. If the backlog was empty, add returns true, and the caller must put the queue on
// the ready list or in Reactor.ownBacklog.
func (q *Queue) add(i uint32) (alone bool) {
	alone = q.backlog.n == 0
	if !q.sendStack.Empty() { // rarely true; without this check, PostFromSink would take 1.4 ns more than its 42 ns
		q.collect()
	}
	q.join(i, i, 1)
	return alone
}

func (q *Queue) join(first, last uint32, n int) {
	b := &q.backlog
	if b.n == 0 {
		b.first = first
	} else {
		q.links.Join(b.last, first)
	}
	b.last = last
	b.n += n
}

// gatherSends collects the queue's new sends, and moves a list of sends into the batch unless they
// are held back. It reports whether it collected or moved any sends.
func (q *Queue) gatherSends() bool {
	if q.sendStack == nil {
		return false
	}
	found := q.collect()
	if q.backlog.n == 0 || q.r.cfg.FlushDelay > 0 && q.delay() {
		return found
	}
	q.list()
	return found || !q.backlog.unbindable
}

// list moves the oldest requests of the backlog into the batch, up to turnRequests and turnBytes, and
// up to a binding that must wait (untilBind). But if the queue is released or sealed, or has no queue
// pair, all requests of the backlog end with an error.
func (q *Queue) list() {
	b, t := &q.backlog, q.tab
	first, all := b.first, b.n
	b.delayed, b.unbindable = false, false
	if q.released() || q.sealed || q.qp == nil {
		b.n = 0
		q.refuse(first, all)
		return
	}
	i := first
	extended := false
	bytes := uint64(0)
	n := min(all, turnRequests)
	if q.r.device.BindsAgain {
		if n = q.untilBind(n); n == 0 {
			b.unbindable = true // checkIdle continues
			return
		}
	}
	sincesig, every := q.sincesig, q.cfg.SignalEvery
	var before *verbs.SendWR // the request before i
	head := t.chunk(first).address(first)
	for k := range n {
		ch := t.chunk(i)
		w := &ch.requests[i%chunkSlots]
		extended = extended || w.Opcode.ExtendedOnly()
		if bytes += uint64(ch.bytes[i%chunkSlots]); bytes >= turnBytes {
			n = k + 1
		}
		sincesig++
		w.Next = 0
		if before != nil {
			before.Next = ch.address(i)
		}
		before = w
		if sincesig >= every || k == n-1 {
			w.Flags |= verbs.SendSignaled // the last request is always signaled: its completion retires the others
			sincesig = 0
		}
		ch.slots[i%chunkSlots].posted = true
		if k == n-1 {
			break
		}
		i = q.links.Next(i)
	}
	q.sincesig = sincesig
	if b.n -= n; b.n > 0 {
		b.first = q.links.Next(i)
		q.r.stats.CarriedOver += uint64(b.n)
		q.ready() // without a wake-up: the holder checks the ready list before it gives the turn up
	}
	q.r.batch.Sends = append(q.r.batch.Sends, verbs.SendGroup{QP: q.qp, Head: head, Count: n, Extended: extended})
	q.r.sendOwners = append(q.r.sendOwners, q)
	q.order.push(first, i, n)
	q.listed(first, n)
}

// untilBind returns how many of the oldest n requests of the backlog may be posted now. A BIND_MW may be posted only if no
// send is outstanding and no request is before it in the list: see verbs.DeviceAttr.BindsAgain.
func (q *Queue) untilBind(n int) int {
	i := q.backlog.first
	for k := range n {
		if q.tab.chunk(i).requests[i%chunkSlots].Opcode == verbs.WRBindMW && k+q.order.n > 0 {
			return k
		}
		if k < n-1 {
			i = q.links.Next(i)
		}
	}
	return n
}

// listed records that the last n requests of q.order, from slot first, are in the batch.
func (q *Queue) listed(first uint32, n int) {
	q.r.outstanding += n
	if q.rec != nil {
		q.rec.postedSends(q, first, n)
	}
}

// hasRecvs reports whether a receive waits to be posted.
func (q *Queue) hasRecvs() bool { return q.recvStack != nil && !q.recvStack.Empty() }

// noSends reports whether no send waits to be posted.
func (q *Queue) noSends() bool {
	return q.sendStack == nil || q.backlog.n == 0 && q.sendStack.Empty()
}
