package reactor

import "github.com/verbena-rdma/verbena/verbs"

// gather takes what is submitted and puts it, one group per queue, into the
// turn. It reports whether there was anything. Holder only, as all of this file.
func (r *Reactor) gather(arm bool) bool {
	did := false
	keeps := r.cfg.FlushDelay > 0
	if keeps {
		r.beginKeeping(arm)
	}
	for q := r.ready.TakeAll(); q != nil; {
		next := q.hook.Unlink()
		q.queued.Leave() // from here on it may be pushed again
		did = q.gatherSends() || did
		did = q.gatherRecvs() || did
		q = next
	}
	if keeps && len(r.keeping) > 0 {
		did = r.gatherKept() || did
	}
	if r.lone != nil {
		r.gatherLone()
		did = true
	}
	return did
}

func (q *Queue) gatherSends() bool {
	if q.sendStack == nil {
		return false
	}
	first, all := q.takeSends()
	if q.r.cfg.FlushDelay > 0 {
		return q.listOrKeep(first, all)
	}
	if all > 0 {
		q.list(first, all)
	}
	return all > 0
}

// list puts of all submitted sends those that fit into the turn, as one list.
func (q *Queue) list(first uint32, all int) {
	if q.released || q.sealed || q.qp == nil {
		for ; all > 0; first, all = q.takeSends() {
			q.refuse(q.sendStack.Next, first, all)
		}
		return
	}
	t := q.tab
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
			w.Flags |= verbs.SendSignaled // the last one always: nothing is left without a completion
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
	if n < all {
		q.hold(q.sendStack.Next(i), all-n)
	}
	q.r.turn.Sends = append(q.r.turn.Sends, verbs.SendGroup{QP: q.qp, Head: t.sendWRAddr(first), Count: n, Extended: extended})
	q.r.sendOwners = append(q.r.sendOwners, q)
	q.listed(n)
}

// listed notes that the last n of the order are in the turn.
func (q *Queue) listed(n int) {
	r, out := q.r, q.order.len()
	r.outstanding += n
	r.stats.Occupancy.note(out)
	if uint64(out) > r.stats.MaxOut {
		r.stats.MaxOut = uint64(out)
	}
	if q.rec != nil {
		q.rec.postedSends(q, n)
	}
}

func (q *Queue) gatherRecvs() bool {
	if q.recvStack == nil {
		return false
	}
	first, n := q.recvStack.TakeAll()
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
