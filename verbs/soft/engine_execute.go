package soft

import (
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// Execute posts, arms and polls for one pass of a reactor; see [verbs.IOBatch]. Posting fills
// rings. The doorbell is rung once, after the last group, and usually runs this engine and then
// the peer's on the calling goroutine, so that the polls already find the completions. It takes no
// lock and allocates nothing.
//
// It returns [verbs.ErrClosed] for a closed context and [verbs.ErrDeviceRemoved] for a removed
// device, and then has done nothing.
func (c *deviceContext) Execute(t *verbs.IOBatch) error {
	if c.closed.Load() {
		return opError("execute", c.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	if err := c.checkPresent("execute"); err != nil {
		return err
	}
	ring := false
	for i := range t.Recvs {
		if c.postRecv(&t.Recvs[i]) {
			ring = true
		}
	}
	var last *queuePair // posted to, and not yet on the doorbell list
	for i := range t.Sends {
		if g := &t.Sends[i]; c.postSend(g) {
			if last != nil {
				last.ringDoorbell()
			}
			last, ring = g.QP.(*queuePair), true
		}
	}
	if ring {
		c.dev.kickFor(last)
	}
	armed := false // this batch arms a queue that was not armed
	for i := range t.Arms {
		g := &t.Arms[i]
		g.Errno = 0
		if q, ok := c.ownCQ(g.CQ); ok {
			armed = q.arm(g.Solicited) || armed
		} else {
			g.Errno = syscall.EINVAL
		}
	}
	c.poll(t.Polls, !armed || sys.Portable)
	return nil
}

// poll takes completions. If a queue has none and receive is true, it looks at the device's sockets, if there are some:
// once for all queues, because one look brings completions for each of them.
//
// After a batch that arms a queue, and so the hot sockets, it need not look: a datagram that is there makes the watching
// goroutine run, as soon as a processor is free for Go's poller. (Not so in the portable build. And a program that arms
// an armed queue again and again does not sleep, so its polls look.) A goroutine that has got its message arms before it
// goes on. Without the look a message between two processes takes 5.1 µs and
// not 5.8.
func (c *deviceContext) poll(groups []verbs.PollGroup, receive bool) {
	empty, again := false, false
	for i := range groups {
		g := &groups[i]
		g.N, g.Errno = 0, 0
		q, ok := c.ownCQ(g.CQ)
		if !ok {
			g.Errno = syscall.EINVAL
			continue
		}
		q.take(g)
		if g.N == 0 {
			empty = true
			again = again || q.armed.Load() == armNone
		}
	}
	if !empty || !receive {
		return
	}
	l := c.dev.link.Load()
	if l == nil {
		return
	}
	if l.Poll(again) {
		empty = false
		for i := range groups {
			g := &groups[i]
			if q, ok := c.ownCQ(g.CQ); ok {
				q.take(g)
				empty = empty || g.N == 0
			}
		}
	}
	if empty {
		c.dev.looked(l, again)
	}
}

// Rest notes that the caller polls no more for now; see [verbs.PollReceiver].
func (c *deviceContext) Rest() {
	if l := c.dev.link.Load(); l != nil {
		l.Arm()
		c.dev.rests(l)
	}
}

// Receives reports whether a socket of the device has traffic; see [verbs.PollReceiver].
func (c *deviceContext) Receives() bool {
	l := c.dev.link.Load()
	return l != nil && l.Hot()
}

// ownCQ returns cq if it is an open completion queue of this context.
func (c *deviceContext) ownCQ(cq verbs.CQ) (*completionQueue, bool) {
	q, ok := cq.(*completionQueue)
	return q, ok && q != nil && q.ctx == c && !q.closed.Load()
}

// ownSRQ returns srq if it is an open shared receive queue of this context.
func (c *deviceContext) ownSRQ(srq verbs.SRQ) (*sharedQueue, bool) {
	s, ok := srq.(*sharedQueue)
	return s, ok && s != nil && s.ctx == c && !s.closed.Load()
}

// ownQP returns qp if it is an open queue pair of this context.
func (c *deviceContext) ownQP(qp verbs.QP) (*queuePair, bool) {
	q, ok := qp.(*queuePair)
	return q, ok && q != nil && q.ctx == c && !q.closed.Load()
}
