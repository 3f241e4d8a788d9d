package runtime

import (
	"fmt"
	"sync"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// PostRecv posts a receive into locals on a raw connection. The result of the future has the number
// of bytes received and the immediate data. PostRecv does not block. If Options.RecvCredits receives
// are posted and not completed, it returns ErrRecvFull. The device owns the memory until the future
// is settled. Receives complete in the order in which they were posted. A receive may have room for more
// than any message.
//
// Implements: ibv_post_recv.
func (c *Conn) PostRecv(locals ...Slice) (Future, error) { return c.postRecv(locals, submitOpts{}) }

// postRecv posts a receive. If w has no sink, postRecv returns the receive's future.
func (c *Conn) postRecv(locals []Slice, w submitOpts) (f Future, err error) {
	s := newRawRecv(c, w.sink)
	if w.sink == nil {
		s.promise, f = c.sh.r.Futures().New(c.sh.r.Driver())
	}
	if err := c.postRecvFor(s, locals, w); err != nil {
		if w.sink == nil {
			s.promise.Settle(Result{}, err)
			f.Discard()
		}
		s.give()
		return Future{}, err
	}
	return f, nil
}

// postRecvFor posts a receive whose sink is s. If postRecvFor fails, the caller still owns s.
func (c *Conn) postRecvFor(s *rawRecv, locals []Slice, w submitOpts) (err error) {
	if !c.opts.Raw {
		return fmt.Errorf("%w: a managed connection posts its receives itself", ErrMode)
	}
	if c.opts.Shared != nil {
		return fmt.Errorf("%w: the connection receives through Options.Shared", ErrMode)
	}
	if err := c.Err(); err != nil {
		return err
	}
	for i := range locals {
		if l := &locals[i]; !l.writable() { // a Slice has 64 bytes
			return fmt.Errorf("%w: the memory of a receive is not registered for LOCAL_WRITE", ErrPermission)
		}
	}
	var space [stackSGEs]verbs.SGE
	r := reactor.Recv{Sink: s, Tag: w.tag}
	var sges []verbs.SGE
	if sges, r.Lease, err = leaseAll(c.rt.mem, space[:0], locals); err != nil {
		return err
	}
	if err = c.q.PostRecv(&r, sges, w.mode); err != nil && r.Lease != nil {
		r.Lease.End()
	}
	return err
}

// rawRecv is the sink of one receive of a raw connection. It settles the receive's future, or
// calls the user's sink. The goroutine that posts the receive owns the rawRecv until the receive
// is posted. From then on Complete owns the rawRecv, and puts it back into the pool rawRecvs.
type rawRecv struct {
	c       *Conn
	promise futures.Promise[Result]
	sink    Sink // if nil, the promise gets the result
}

// rawRecvs is the pool of unused rawRecv values.
var rawRecvs = sync.Pool{New: func() any { return new(rawRecv) }}

// newRawRecv takes a rawRecv from the pool. The method rawRecv.give puts the rawRecv back.
func newRawRecv(c *Conn, sink Sink) *rawRecv {
	s := rawRecvs.Get().(*rawRecv)
	s.c, s.sink = c, sink
	return s
}

func (s *rawRecv) give() {
	*s = rawRecv{}
	rawRecvs.Put(s)
}

// Complete implements reactor.Sink.
func (s *rawRecv) Complete(t SinkContext, r Result, err error) {
	of := *s
	s.give() // before the sink is called: if the sink posts the next receive, that receive can reuse s
	if r.Flags&verbs.WCWithInv != 0 {
		of.c.invalidated(r.Imm)
	}
	if of.sink != nil {
		of.sink.Complete(t, r, err)
		return
	}
	of.promise.Settle(r, err)
}
