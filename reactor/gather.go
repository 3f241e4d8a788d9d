package reactor

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// readyQueue is a Queue on its reactor's ready list.
type readyQueue Queue

// InboxHook links the queue.
func (q *readyQueue) InboxHook() *ring.Hook[readyQueue] { return &q.hook }

// ready puts the queue on the ready list, unless it is there. Any goroutine.
func (q *Queue) ready() {
	if q.queued.Enter() {
		q.r.ready.Push((*readyQueue)(q))
	}
}

// gather takes what is submitted and puts it, one group per queue, into the
// turn. It reports whether there was anything. Holder only, as all that follows.
func (r *Reactor) gather(arm bool) bool {
	did := false
	keeps := r.cfg.FlushDelay > 0
	if keeps {
		r.beginKeeping(arm)
	}
	for l := r.ready.TakeAll(); l != nil; {
		q := (*Queue)(l)
		l = q.hook.Unlink()
		q.queued.Leave() // from here on it may be pushed again
		did = q.gatherSends() || did
		did = q.gatherRecvs() || did
	}
	if keeps && len(r.keeping) > 0 {
		did = r.gatherKept() || did
	}
	if r.own != nil {
		r.gatherOwn()
		did = true
	}
	return did
}

// gatherOwn gathers the queue of the holder's own request. A queue has one list in a turn:
// where its sends are in it already the request is there, or first in the next.
func (r *Reactor) gatherOwn() {
	q := r.own
	r.own = nil
	if q.recvStack != nil && !q.recvStack.Empty() && !slices.Contains(r.recvOwners, q) {
		q.gatherRecvs() // it is the next send, with which those go that were left
	}
	if len(r.sendOwners) > 0 && slices.Contains(r.sendOwners, q) {
		return
	}
	b, i := &q.backlog, q.backlog.first
	if b.n > 1 || !q.sendStack.Empty() || q.released || q.sealed || q.qp == nil {
		q.gatherSends()
		return
	}
	// It is alone: what list does, which costs a synchronous WRITE 8 of 260 ns more.
	b.n = 0
	w := &q.tab.sendWR[i]
	w.Next = 0
	w.Flags |= verbs.SendSignaled
	q.sincesig = 0
	q.tab.slots[i].posted = true
	q.order.push(i)
	r.turn.Sends = append(r.turn.Sends, verbs.SendGroup{QP: q.qp, Head: q.tab.sendWRAddr(i), Count: 1})
	r.sendOwners = append(r.sendOwners, q)
	q.listed(1)
}

func (q *Queue) gatherRecvs() bool {
	if q.recvStack == nil {
		return false
	}
	first, _, n := q.recvStack.TakeAll()
	if n == 0 {
		return false
	}
	if q.released || q.sealed || q.qp == nil && q.srq == nil {
		q.refuse(q.recvStack.Next, first, n)
		return true
	}
	t, base := q.tab, uint32(q.cfg.sends())
	for i, k := first, 0; k < n; k++ {
		w := &t.recvWR[i-base]
		w.Next = 0
		t.slots[i].posted = true
		if q.rec != nil {
			q.rec.posted(q.r, i, true)
		}
		if k < n-1 {
			next := q.recvStack.Next(i)
			w.Next = t.recvWRAddr(next - base)
			i = next
		}
	}
	q.recvs += n
	q.r.turn.Recvs = append(q.r.turn.Recvs, verbs.RecvGroup{QP: q.qp, SRQ: q.srq, Head: t.recvWRAddr(first - base), Count: n})
	q.r.recvOwners = append(q.r.recvOwners, q)
	q.r.recvFirst = append(q.r.recvFirst, first)
	return true
}

// refuse completes n submitted slots that never reached the device.
func (q *Queue) refuse(next func(uint32) uint32, first uint32, n int) {
	err := q.end
	if err == nil {
		err = q.failed.get()
	}
	if err == nil {
		err = errShut
	}
	for i := first; n > 0; n-- {
		after := uint32(0)
		if n > 1 {
			after = next(i)
		}
		q.finish(i, Completion{}, err)
		i = after
	}
	q.freeRetired()
	q.checkIdle()
}
