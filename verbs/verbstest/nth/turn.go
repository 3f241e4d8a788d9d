package nth

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// frame is the batch for the wrapped provider: the caller's, unwrapped, without the groups that are
// made to fail. It is reused.
type frame struct {
	inner verbs.IOBatch
	// The errno of each group of the caller's lists; 0 for a group that is carried out.
	recv, send, arm, poll []syscall.Errno
}

// opTurn is the name of a batch as a call; C has none.
const opTurn = "turn"

// Execute carries out a batch; each of its groups is a call. A group that is made to fail is left
// out and gets the errno: nothing was posted, armed or polled.
func (c *context) Execute(t *verbs.IOBatch) error {
	if p := c.w.plan; p.Removed {
		if c.removed.Load() || p.strikes(opTurn, c.Context) != 0 {
			c.removed.Store(true)
			return &verbs.OpError{Op: opTurn, Object: c.Context.String(), Errno: syscall.EIO, Err: verbs.ErrDeviceRemoved}
		}
	}
	f, _ := c.w.turns.Get().(*frame)
	if f == nil {
		f = &frame{}
	}
	defer func() {
		f.inner.Reset()
		c.w.turns.Put(f)
	}()
	f.fill(c, t)
	if err := c.Context.Execute(&f.inner); err != nil {
		return err
	}
	f.answer(t)
	return nil
}

func (f *frame) fill(c *context, t *verbs.IOBatch) {
	p := c.w.plan
	f.recv, f.send, f.arm, f.poll = f.recv[:0], f.send[:0], f.arm[:0], f.poll[:0]
	for _, g := range t.Recvs {
		op := "ibv_post_recv"
		if g.SRQ != nil {
			op = "ibv_post_srq_recv"
		}
		errno := p.hits(op, c.Context)
		if f.recv = append(f.recv, errno); errno != 0 {
			continue
		}
		g.QP, g.SRQ = innerQP(g.QP), innerSRQ(g.SRQ)
		f.inner.Recvs = append(f.inner.Recvs, g)
	}
	for _, g := range t.Sends {
		errno := p.hits("ibv_post_send", c.Context)
		if f.send = append(f.send, errno); errno != 0 {
			continue
		}
		g.QP = innerQP(g.QP)
		f.inner.Sends = append(f.inner.Sends, g)
	}
	for _, g := range t.Arms {
		errno := p.hits("ibv_req_notify_cq", c.Context)
		if f.arm = append(f.arm, errno); errno != 0 {
			continue
		}
		g.CQ = innerCQ(g.CQ)
		f.inner.Arms = append(f.inner.Arms, g)
	}
	for _, g := range t.Polls {
		errno := p.hits("ibv_poll_cq", c.Context)
		if f.poll = append(f.poll, errno); errno != 0 {
			continue
		}
		g.CQ = innerCQ(g.CQ)
		f.inner.Polls = append(f.inner.Polls, g)
	}
}

// answer copies the results into the caller's batch.
func (f *frame) answer(t *verbs.IOBatch) {
	at := 0
	for i, errno := range f.recv {
		if errno != 0 {
			t.Recvs[i].Accepted, t.Recvs[i].Errno = 0, errno
			continue
		}
		t.Recvs[i].Accepted, t.Recvs[i].Errno = f.inner.Recvs[at].Accepted, f.inner.Recvs[at].Errno
		at++
	}
	at = 0
	for i, errno := range f.send {
		if errno != 0 {
			t.Sends[i].Accepted, t.Sends[i].Errno = 0, errno
			continue
		}
		t.Sends[i].Accepted, t.Sends[i].Errno = f.inner.Sends[at].Accepted, f.inner.Sends[at].Errno
		at++
	}
	at = 0
	for i, errno := range f.arm {
		if errno != 0 {
			t.Arms[i].Errno = errno
			continue
		}
		t.Arms[i].Errno = f.inner.Arms[at].Errno
		at++
	}
	at = 0
	for i, errno := range f.poll {
		if errno != 0 {
			t.Polls[i].N, t.Polls[i].Errno = 0, errno
			continue
		}
		t.Polls[i].N, t.Polls[i].Errno = f.inner.Polls[at].N, f.inner.Polls[at].Errno
		at++
	}
}
