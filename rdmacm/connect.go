package rdmacm

import (
	"context"
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Listen accepts requests. Each arrives as event CONNECT_REQUEST, or by GetRequest. The argument
// backlog bounds the requests that are not answered; 0 selects the provider's default.
//
// Implements: rdma_listen.
func (id *ID) Listen(backlog int) error {
	if id == nil {
		return errNil("rdma_listen")
	}
	return named("rdma_listen", id, id.cm.Listen(backlog))
}

// GetRequest waits for the next connection request of a synchronous listener, and returns its
// identifier, which is synchronous, too. ID.Event returns the CONNECT_REQUEST with the peer's private
// data. If the listener is an endpoint with queue pair attributes, the identifier has a queue pair, so
// that receives can be posted before Accept.
//
// Implements: rdma_get_request.
func (id *ID) GetRequest(ctx context.Context) (*ID, error) {
	if id == nil {
		return nil, errNil("rdma_get_request")
	}
	const op = "rdma_get_request"
	if ctx == nil {
		return nil, ErrNilContext
	}
	if id.Channel() != nil {
		return nil, failure(op, id, syscall.EINVAL, ErrAsync)
	}
	var ev *Event
	for {
		var err error
		if ev, err = id.channel().GetEvent(ctx); err != nil {
			return nil, named(op, id, err)
		}
		if ev.Type == verbs.CMConnectRequest {
			id.taking.add()
			ev.Ack()
			break
		}
		ev.Ack()
		if ev.ID == id {
			return nil, failure(op, id, syscall.EINVAL, ev.Err())
		}
		// A peer has given up whose request another goroutine has just taken: that one finds out.
	}
	var err error
	c := ev.ID
	if err = c.MigrateID(ctx, nil); err != nil {
		err = errors.Join(named(op, id, err), c.Destroy(background))
		id.taking.done()
		return nil, err
	}
	id.taking.done()
	if id.makeQP != nil {
		attr := *id.makeQP
		err = c.CreateQP(id.makePD, &attr)
	}
	if err != nil {
		return nil, errors.Join(named(op, id, err), c.Destroy(background))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.event = ev
	return c, nil
}

// Connect asks the peer for a connection. Event ESTABLISHED follows, or REJECTED, UNREACHABLE or
// CONNECT_ERROR; without a queue pair CONNECT_RESPONSE, which Establish answers. In port space UDP it
// asks for the queue pair of the peer. With p nil the device's largest depths and 7 retries are asked
// for. The context matters to synchronous identifiers only.
//
// Implements: rdma_connect.
func (id *ID) Connect(ctx context.Context, p *verbs.ConnParam) error {
	if id == nil {
		return errNil("rdma_connect")
	}
	if p == nil && id.data != nil {
		p = &verbs.ConnParam{PrivateData: id.data, ResponderResources: maxDepth, InitiatorDepth: maxDepth, RetryCount: maxRetry, RNRRetryCount: maxRetry}
	}
	return id.await(ctx, "rdma_connect", func() error { return id.cm.Connect(p) }, verbs.CMEstablished)
}

// The values with which librdmacm replaces a missing rdma_conn_param.
const (
	maxDepth = 0xff // RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH: what the device supports
	maxRetry = 7
)

// Accept accepts the request of an identifier that CONNECT_REQUEST or GetRequest has brought. Event
// ESTABLISHED follows, except in port space UDP. With p nil the values are as for Connect.
//
// Implements: rdma_accept.
func (id *ID) Accept(ctx context.Context, p *verbs.ConnParam) error {
	if id == nil {
		return errNil("rdma_accept")
	}
	accept := func() error {
		err := id.cm.Accept(p)
		if err == nil {
			id.sendable()
		}
		return err
	}
	if id.ps == verbs.PSUDP {
		return named("rdma_accept", id, accept())
	}
	return id.await(ctx, "rdma_accept", accept, verbs.CMEstablished)
}

// Reject refuses a request, with private data for the peer. No event follows.
//
// Implements: rdma_reject.
func (id *ID) Reject(private []byte) error {
	if id == nil {
		return errNil("rdma_reject")
	}
	return named("rdma_reject", id, id.cm.Reject(private))
}

// Establish answers CONNECT_RESPONSE: the program has moved its own queue pair to RTS.
//
// Implements: rdma_establish.
func (id *ID) Establish() error {
	if id == nil {
		return errNil("rdma_establish")
	}
	return named("rdma_establish", id, id.cm.Accept(nil))
}

// Disconnect moves the queue pair to ERR, which flushes its requests, and notifies the peer. Event
// DISCONNECTED follows. Both ends should call it.
//
// Implements: rdma_disconnect.
func (id *ID) Disconnect(ctx context.Context) error {
	if id == nil {
		return errNil("rdma_disconnect")
	}
	return id.await(ctx, "rdma_disconnect", id.cm.Disconnect, verbs.CMDisconnected)
}

// noted is called for each event of the identifier, before the program has it.
func (id *ID) noted(ev *Event) {
	switch ev.Type {
	case verbs.CMEstablished:
		id.sendable()
	case verbs.CMMulticastJoin, verbs.CMMulticastError:
		id.mu.Lock()
		ev.Arg = id.joins.context(ev.join)
		id.mu.Unlock()
		if ev.Type == verbs.CMMulticastError {
			id.left(func(g joined) bool { return g.number == ev.join })
		}
	}
}
