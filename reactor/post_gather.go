package reactor

import (
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// The unposted sends of a queue are in its submission stack and in its backlog, which is in
// posting order:
//
//	any goroutine ──Push──> submission stack ──collect──┐
//	the holder: PostFromSink, TransferWait ──add────────┴──> backlog ──list──> posted
//
// The holder calls collect before it adds a request. So the requests of a goroutine stay in order,
// even if the goroutine submits some with Transfer and others with TransferWait.
//
// A pass serves all queues and delivers results only at its end, so no queue may make the pass
// long. A queue posts one list of at most turnRequests sends in a pass. The list ends earlier with
// the send that brings it to turnBytes. The rest stays in the backlog, and the queue goes on the
// ready list for the next pass.
//
// The software RNIC (verbs/soft) moves the bytes while a list is posted; turnBytes limits how long
// that takes. Other devices decide themselves how queue pairs share the wire.
const (
	// turnRequests is twice the list length at which the doorbell's cost is negligible. The
	// software RNIC takes some 30 µs for 256 requests, 0.12 µs for each, sender and receiver
	// together.
	turnRequests = 256
	// turnBytes is what the software RNIC moves in 16 µs, at 65 GB/s.
	turnBytes = 1 << 20
)

// backlog holds the unposted sends that the holder has taken off the submission stack or added
// itself, oldest first. The slots are linked by the stack's own links. Holder only.
//
//	          add, collect            list: all of it
//	empty ─────────────────> waiting ─────────────────> empty
//	                          │   ^
//	   delay (post_delay.go)  v   │ list: a part of it
//	                         delayed
//
// If a backlog is waiting, its queue is on the ready list or in Reactor.ownBacklog. If a backlog is
// delayed, its queue is in Reactor.delayed.
type backlog struct {
	first, last uint32
	n           int
	delayed     bool          // held back
	since       time.Duration // when the delay began, on the timers' clock
}

// readyQueue is a Queue on its reactor's ready list.
type readyQueue Queue

// InboxHook links the queue.
func (q *readyQueue) InboxHook() *ring.Hook[readyQueue] { return &q.hook }

// ready puts the queue on the ready list, unless it is there. Any goroutine may call it.
func (q *Queue) ready() {
	if q.queued.Enter() {
		q.r.ready.Push((*readyQueue)(q))
	}
}

// gather moves the requests of the ready queues into the pass: one list of sends and one of
// receives per queue. It reports whether there were any. Holder only, as everything below.
func (r *Reactor) gather(arm bool) bool {
	did := false
	keeps := r.cfg.FlushDelay > 0
	if keeps {
		r.beginDelays(arm)
	}
	for l := r.ready.TakeAll(); l != nil; {
		q := (*Queue)(l)
		l = q.hook.Unlink()
		q.queued.Leave() // from here on the method ready may push q again
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
	return did
}

// gatherOwn gathers Reactor.ownBacklog, the queue with the request of TransferWait. A queue has at
// most one list of sends in a pass. If this queue has one already, the request is in it, or remains
// in the backlog for the next pass.
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
	if b.n > 1 || !q.sendStack.Empty() || q.released || q.sealed || q.qp == nil {
		q.gatherSends()
		return
	}
	// A single request is handled here, without a call of the method list: the call would make a
	// synchronous WRITE, which takes 260 ns, 8 ns slower.
	b.n = 0
	w := &q.tab.sendWR[i]
	w.Next = 0
	w.Flags |= verbs.SendSignaled
	q.sincesig = 0
	q.tab.slots[i].posted = true
	q.order.push(i)
	r.batch.Sends = append(r.batch.Sends, verbs.SendGroup{QP: q.qp, Head: q.tab.sendWRAddr(i), Count: 1})
	r.sendOwners = append(r.sendOwners, q)
	q.listed(1)
}

// collect moves the requests of the submission stack to the backlog, and reports whether there were
// any.
func (q *Queue) collect() bool {
	first, last, n := q.sendStack.TakeAll()
	if n > 0 {
		q.join(first, last, n)
	}
	return n > 0
}

// add appends slot i, which the holder has filled, to the backlog, behind all requests submitted
// before. It reports whether the backlog was empty; if so, the caller must put the queue on the
// ready list or in Reactor.ownBacklog.
func (q *Queue) add(i uint32) (alone bool) {
	alone = q.backlog.n == 0
	if !q.sendStack.Empty() { // rare; checking here saves 1.4 ns of the 42 ns that a sink's request takes
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
		q.sendStack.Join(b.last, first)
	}
	b.last = last
	b.n += n
}

// gatherSends moves a list of the queue's sends into the pass, unless the sends are held back. It
// reports whether it moved a list or collected new requests.
func (q *Queue) gatherSends() bool {
	if q.sendStack == nil {
		return false
	}
	found := q.collect()
	if q.backlog.n == 0 || q.r.cfg.FlushDelay > 0 && q.delay() {
		return found
	}
	q.list()
	return true
}

// list moves the oldest requests of the backlog into the pass, up to turnRequests and turnBytes. If
// the queue must not post, list ends all requests of the backlog with an error.
func (q *Queue) list() {
	b, t := &q.backlog, q.tab
	first, all := b.first, b.n
	b.delayed = false
	if q.released || q.sealed || q.qp == nil {
		b.n = 0
		q.refuse(q.sendStack.Next, first, all)
		return
	}
	i := first
	extended := false
	bytes := uint64(0)
	n := min(all, turnRequests)
	sincesig, every := q.sincesig, q.cfg.SignalEvery
	for k := range n {
		w, sl := &t.sendWR[i], &t.slots[i]
		extended = extended || w.Opcode.ExtendedOnly()
		if bytes += uint64(t.bytes[i]); bytes >= turnBytes {
			n = k + 1
		}
		sincesig++
		w.Next = 0
		if sincesig >= every || k == n-1 {
			w.Flags |= verbs.SendSignaled // always for the last: it retires the others
			sincesig = 0
		}
		sl.posted = true
		q.order.push(i)
		if k == n-1 {
			break
		}
		next := q.sendStack.Next(i)
		w.Next = t.sendWRAddr(next)
		i = next
	}
	q.sincesig = sincesig
	if b.n -= n; b.n > 0 {
		b.first = q.sendStack.Next(i)
		q.r.stats.CarriedOver += uint64(b.n)
		q.ready() // the holder checks the ready list before it gives the turn up
	}
	q.r.batch.Sends = append(q.r.batch.Sends, verbs.SendGroup{QP: q.qp, Head: t.sendWRAddr(first), Count: n, Extended: extended})
	q.r.sendOwners = append(q.r.sendOwners, q)
	q.listed(n)
}

// listed records that the last n requests of q.order are in the pass.
func (q *Queue) listed(n int) {
	q.r.outstanding += n
	if q.rec != nil {
		q.rec.postedSends(q, n)
	}
}

// hasRecvs reports whether a receive waits to be posted.
func (q *Queue) hasRecvs() bool { return q.recvStack != nil && !q.recvStack.Empty() }

// noSends reports whether no send waits to be posted.
func (q *Queue) noSends() bool {
	return q.sendStack == nil || q.backlog.n == 0 && q.sendStack.Empty()
}

// fifo is a ring of slot indices in posting order. Holder only.
type fifo struct {
	at         []uint32
	head, tail uint32 // there are tail-head entries; head and tail wrap
	mask       uint32
}

func newFIFO(n int) fifo {
	size := uint32(1)
	for int(size) < n {
		size <<= 1
	}
	return fifo{at: make([]uint32, size), mask: size - 1}
}

func (f *fifo) push(i uint32)  { f.at[f.tail&f.mask] = i; f.tail++ }
func (f *fifo) pop() uint32    { i := f.at[f.head&f.mask]; f.head++; return i }
func (f *fifo) unpush() uint32 { f.tail--; return f.at[f.tail&f.mask] }
func (f *fifo) len() int       { return int(f.tail - f.head) }
