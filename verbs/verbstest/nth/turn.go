package nth

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// frame is the batch for the wrapped provider: the caller's, unwrapped, without the group that is
// made to fail. It is reused.
type frame struct {
	inner                 verbs.IOBatch
	recv, send, arm, poll skipped
}

// skipped is the group left out of a list; at is -1 for none.
type skipped struct {
	at    int
	errno syscall.Errno
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
	none := skipped{at: -1}
	f.recv, f.send, f.arm, f.poll = none, none, none, none
	for i, g := range t.Recvs {
		op := "ibv_post_recv"
		if g.SRQ != nil {
			op = "ibv_post_srq_recv"
		}
		if errno := p.hits(op, c.Context); errno != 0 {
			f.recv = skipped{i, errno}
			continue
		}
		g.QP, g.SRQ = innerQP(g.QP), innerSRQ(g.SRQ)
		f.inner.Recvs = append(f.inner.Recvs, g)
	}
	for i, g := range t.Sends {
		if errno := p.hits("ibv_post_send", c.Context); errno != 0 {
			f.send = skipped{i, errno}
			continue
		}
		g.QP = innerQP(g.QP)
		f.inner.Sends = append(f.inner.Sends, g)
	}
	for i, g := range t.Arms {
		if errno := p.hits("ibv_req_notify_cq", c.Context); errno != 0 {
			f.arm = skipped{i, errno}
			continue
		}
		g.CQ = innerCQ(g.CQ)
		f.inner.Arms = append(f.inner.Arms, g)
	}
	for i, g := range t.Polls {
		if errno := p.hits("ibv_poll_cq", c.Context); errno != 0 {
			f.poll = skipped{i, errno}
			continue
		}
		g.CQ = innerCQ(g.CQ)
		f.inner.Polls = append(f.inner.Polls, g)
	}
}

// answer copies the results into the caller's batch.
func (f *frame) answer(t *verbs.IOBatch) {
	at := 0
	for i := range t.Recvs {
		if i == f.recv.at {
			t.Recvs[i].Accepted, t.Recvs[i].Errno = 0, f.recv.errno
			continue
		}
		t.Recvs[i].Accepted, t.Recvs[i].Errno = f.inner.Recvs[at].Accepted, f.inner.Recvs[at].Errno
		at++
	}
	at = 0
	for i := range t.Sends {
		if i == f.send.at {
			t.Sends[i].Accepted, t.Sends[i].Errno = 0, f.send.errno
			continue
		}
		t.Sends[i].Accepted, t.Sends[i].Errno = f.inner.Sends[at].Accepted, f.inner.Sends[at].Errno
		at++
	}
	at = 0
	for i := range t.Arms {
		if i == f.arm.at {
			t.Arms[i].Errno = f.arm.errno
			continue
		}
		t.Arms[i].Errno = f.inner.Arms[at].Errno
		at++
	}
	at = 0
	for i := range t.Polls {
		if i == f.poll.at {
			t.Polls[i].N, t.Polls[i].Errno = 0, f.poll.errno
			continue
		}
		t.Polls[i].N, t.Polls[i].Errno = f.inner.Polls[at].N, f.inner.Polls[at].Errno
		at++
	}
}
