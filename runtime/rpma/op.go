package rpma

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Flags say when an operation has a completion, and when it is posted.
type Flags uint8

// The flags of operations. One of CompletionOnError and CompletionAlways must be given.
const (
	// CompletionOnError gives the operation a completion only if it fails. Its places in the queues are free
	// when it has succeeded, which the runtime finds out with a later operation at the latest.
	CompletionOnError Flags = 1 << 0
	// CompletionAlways gives the operation a completion in any case.
	CompletionAlways Flags = 1<<1 | CompletionOnError
	// More announces another operation of the same connection. The device gets the operation with the next one that
	// is started without More, or with the next GetWC or Wait for a CQ of the connection that finds no completion;
	// without any of them, within a second. So a WRITE with More and a FLUSH behind it usually cost one doorbell and
	// one completion of the device. (The runtime may post the WRITE earlier.)
	More Flags = 1 << 2

	onSuccess = CompletionAlways &^ CompletionOnError
)

func (f Flags) check(op string) error {
	if f&^More != CompletionOnError && f&^More != CompletionAlways {
		return invalid(op, "the flags 0x%x, want CompletionOnError or CompletionAlways, and perhaps More", uint8(f))
	}
	return nil
}

// sendSink gets the results of operations with CompletionAlways, quietSink those of operations with
// CompletionOnError, recvSink those of receives. They are the connection under names with methods of their
// own, so that an operation takes no memory for its sink.
type (
	sendSink  Conn
	quietSink Conn
	recvSink  Conn
)

// Complete implements runtime.Sink.
func (s *sendSink) Complete(_ runtime.SinkContext, r runtime.Result, err error) {
	s.cq.push(&r, s.qpn, err, &s.sends)
}

// Complete implements runtime.Sink.
func (s *quietSink) Complete(_ runtime.SinkContext, r runtime.Result, err error) {
	if err == nil {
		s.sends.free()
		return
	}
	s.cq.push(&r, s.qpn, err, &s.sends)
}

// Complete implements runtime.Sink.
func (s *recvSink) Complete(_ runtime.SinkContext, r runtime.Result, err error) {
	(*Conn)(s).recvCQ().push(&r, s.qpn, err, &s.recvs)
}

// start starts an operation of the send queue. It may change o.
func (c *Conn) start(op string, o *runtime.Op, flags Flags, word uint64) error {
	conn, err := c.live(op)
	if err != nil {
		return err
	}
	if !c.sends.take() {
		c.post() // operations with More, which may have the places
		if !c.sends.take() {
			return fail(op, ErrProvider, runtime.ErrQueueFull)
		}
	}
	var sink runtime.Sink = (*quietSink)(c)
	if flags&onSuccess != 0 {
		sink, *o = (*sendSink)(c), o.Signaled()
	}
	err = conn.Batch().TryStartTo(o, sink, word)
	if errors.Is(err, runtime.ErrPieces) || errors.Is(err, runtime.ErrNoBuffer) { // it may take several requests, or memory
		err = conn.StartTo(background, o, sink, word)
	}
	return c.started(op, flags, &c.sends, conn.Err, err)
}

// started ends the start of an operation, which has a place in of. The argument ended returns why the
// connection has ended.
func (c *Conn) started(op string, flags Flags, of *places, ended func() error, err error) error {
	if err != nil {
		of.free()
		if ended() != nil {
			return fail(op, ErrProvider, fmt.Errorf("%w: %w", syscall.ENOTCONN, err))
		}
		return classified(op, err)
	}
	if flags&More == 0 {
		c.post()
	}
	return nil
}

// post posts the started operations, or wakes the reactor's goroutine, which posts them.
func (c *Conn) post() {
	if !c.r.TryPass() {
		c.r.Wake()
	}
}

// recv posts a receive.
func (c *Conn) recv(op string, dst *MR, off, n int, word uint64) error {
	local, err := piece(op, dst, off, n)
	if err != nil {
		return err
	}
	if c.isClosed() {
		return fail(op, ErrInvalid, verbs.ErrClosed)
	}
	if c.srq != nil {
		return fail(op, ErrProvider, fmt.Errorf("%w: the connection receives through an SRQ", runtime.ErrMode))
	}
	if !c.recvs.take() {
		return fail(op, ErrProvider, runtime.ErrRecvFull)
	}
	select {
	case <-c.ready:
		if c.conn != nil {
			o := runtime.PostRecvOp(local)
			return c.started(op, 0, &c.recvs, c.Err, c.conn.Batch().TryStartTo(&o, (*recvSink)(c), word))
		}
	default:
	}
	return c.started(op, 0, &c.recvs, c.Err, c.pending.PostRecvTo((*recvSink)(c), word, local))
}

// piece returns n bytes of a region from off on. Without a region off and n must be 0.
func piece(op string, m *MR, off, n int) (runtime.Slice, error) {
	if m == nil && (off != 0 || n != 0) {
		return runtime.Slice{}, invalid(op, "%d bytes at offset %d of no memory", n, off)
	}
	s, err := m.slice(off, n)
	return s, classified(op, err)
}

// pieces returns n bytes of a region, and as many of a peer's. Without one of them, the other and all
// numbers must be nothing, too. The argument access is what the peer's memory grants if it is nil.
func pieces(op string, local *MR, off int, remote *RemoteMR, at, n int, access verbs.AccessFlags) (s runtime.Slice, r runtime.Remote, err error) {
	if (local == nil) != (remote == nil) || local == nil && (off != 0 || at != 0 || n != 0) {
		return s, r, invalid(op, "%d bytes at offsets %d and %d: one memory is missing, or there is none for them", n, off, at)
	}
	if local == nil {
		return s, runtime.Remote{Access: access}, nil
	}
	if s, err = local.slice(off, n); err == nil {
		r, err = remote.at(at, n)
	}
	return s, r, classified(op, err)
}
