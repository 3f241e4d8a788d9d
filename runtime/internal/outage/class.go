package outage

import (
	"context"
	"errors"

	"github.com/verbena-rdma/verbena/reactor"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// Class is the kind of an error to which a program can react.
type Class string

// Values of Class.
const (
	ClassRemoved     Class = "device removed"
	ClassPeerClosed  Class = "closed by the peer"
	ClassPeerTimeout Class = "peer did not answer"
	ClassRetries     Class = "retries exceeded"
	ClassNotReady    Class = "receiver not ready"
	ClassFlushed     Class = "flushed" // WR_FLUSH_ERR of unknown cause
	ClassQueuePair   Class = "queue pair failed"
	ClassClosed      Class = "closed here"
	ClassUnreachable Class = "unreachable"
	ClassTimeout     Class = "connecting took too long"
	ClassRejected    Class = "rejected"
	ClassContext     Class = "given up"
	ClassRemote      Class = "remote error"
	ClassInvalid     Class = "invalid request to the peer"
	ClassFatal       Class = "fatal error of the queue pair"
	ClassUnanswered  Class = "atomic without its answer"
	ClassBootstrap   Class = "no word of the peer's queue pair" // malformed data, without a connection manager
	ClassRefused     Class = "refused by the device"            // any other *verbs.OpError
	ClassBusy        Class = "the reactor did not respond"      // Close did not wait any longer
	ClassUnknown     Class = "of no type"
)

// classes are tried in this order. An error may match several of them: a flush comes after its
// causes.
var classes = []struct {
	class Class
	errs  []error
}{
	{ClassRemoved, []error{verbs.ErrDeviceRemoved}},
	{ClassPeerClosed, []error{verbena.ErrPeerClosed}},
	{ClassPeerTimeout, []error{verbena.ErrPeerTimeout}},
	{ClassRetries, []error{verbs.StatusError(verbs.WCRetryExcErr)}},
	{ClassNotReady, []error{verbs.StatusError(verbs.WCRNRRetryExcErr)}},
	{ClassRemote, []error{
		verbs.StatusError(verbs.WCRemAccessErr), verbs.StatusError(verbs.WCRemOpErr), verbs.StatusError(verbs.WCRemAbortErr),
	}},
	{ClassInvalid, []error{verbs.StatusError(verbs.WCRemInvReqErr)}},
	{ClassFatal, []error{verbs.StatusError(verbs.WCFatalErr)}},
	{ClassUnanswered, []error{reactor.ErrUnanswered}},
	{ClassUnreachable, []error{verbena.ErrUnreachable}},
	{ClassTimeout, []error{verbena.ErrConnectTimeout}},
	{ClassQueuePair, []error{verbena.ErrQueuePair}},
	{ClassClosed, []error{verbena.ErrConnClosed, verbena.ErrClosed, verbs.ErrClosed, reactor.ErrClosed, verbena.ErrWindowClosed}},
	{ClassFlushed, []error{verbs.StatusError(verbs.WCWRFlushErr)}},
	{ClassBusy, []error{verbena.ErrReactorBusy}},
	{ClassBootstrap, []error{bootstrap.ErrMalformed}},
	{ClassContext, []error{context.DeadlineExceeded, context.Canceled}},
}

// Classify returns the class of an error. It neither blocks nor allocates. Any goroutine may call
// it.
func Classify(err error) Class {
	var reject *verbena.RejectError
	if errors.As(err, &reject) {
		return ClassRejected
	}
	for _, c := range classes {
		for _, target := range c.errs {
			if errors.Is(err, target) {
				return c.class
			}
		}
	}
	var refused *verbs.OpError
	if errors.As(err, &refused) {
		return ClassRefused
	}
	return ClassUnknown
}
