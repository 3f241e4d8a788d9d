package actor

import (
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Handler is an actor's behavior. A Handler may also implement the interfaces below. The methods of a
// Handler are called one at a time, possibly on different goroutines. Each call sees all effects of
// the calls before. On a reactor (Options.On) the methods must not block.
//
// A Handler is one instance of the actor. After a failure, the function given to Spawn makes the next
// instance.
type Handler[M any] interface {
	// Receive handles one message. The argument ctx is valid until Receive returns.
	Receive(ctx *Context[M], m M)
}

// Func is a Handler with only a Receive method.
type Func[M any] func(ctx *Context[M], m M)

// Receive implements Handler.
func (f Func[M]) Receive(ctx *Context[M], m M) { f(ctx, m) }

// Starter is a Handler with a method that is called before all others.
type Starter[M any] interface {
	// Started prepares the instance. If it returns an error or panics, this is a failure.
	Started(ctx *Context[M]) error
}

// Stopper is a Handler that cleans up at the end of its instance, when no operation, child, timer
// or connection is left.
type Stopper[M any] interface {
	// Stopped frees the resources of the instance. The argument cause is nil after Stop, ErrStopped
	// after StopNow, and the failure otherwise.
	Stopped(ctx *Context[M], cause error)
}

// Completion is the outcome of an operation that the actor started.
type Completion struct {
	Tag    uint64 // the tag given to Context.Start
	Conn   *verbena.Conn
	Result verbena.Result
	Err    error
}

// Completer is a Handler that gets the outcomes of its operations.
type Completer[M any] interface {
	// Completed is called once for every operation that Context.Start accepted. If the instance
	// winds up first, the Completion is reported as a dead letter instead.
	Completed(ctx *Context[M], c Completion)
}

// ConnEventKind is the kind of a connection event.
type ConnEventKind uint8

// Values of ConnEventKind.
const (
	ConnEstablished ConnEventKind = iota // Dial or Accept succeeded; the actor owns Conn
	ConnFailed                           // Dial or Accept failed with Err
	ConnMessage                          // Message has arrived; the handler must release it
	ConnClosed                           // no more messages come; Err is the reason
)

var connEventNames = [...]string{"established", "failed", "message", "closed"}

// String returns the name of the kind.
func (k ConnEventKind) String() string {
	if int(k) < len(connEventNames) {
		return connEventNames[k]
	}
	return "unknown"
}

// ConnEvent is an event of a connection that the actor owns, or the failure of Dial or Accept.
type ConnEvent struct {
	Kind    ConnEventKind
	Tag     uint64        // the tag given to Own, Dial or Accept
	Conn    *verbena.Conn // nil for ConnFailed
	Message verbena.Message
	Err     error
}

// Connector is a Handler that owns connections.
type Connector[M any] interface {
	// Connection is called for every event. The events of one connection come in the order
	// established, messages, closed.
	Connection(ctx *Context[M], ev ConnEvent)
}

// DeviceWatcher is a Handler that receives the events of the device and its ports: see
// Runtime.WatchDevice.
type DeviceWatcher[M any] interface {
	// Device is called for every event while the instance is up or stopping.
	Device(ctx *Context[M], ev verbena.DeviceEvent)
}

// Timed is a Handler that uses timers.
type Timed[M any] interface {
	// Timer is called when a timer is due, with the tag that was given to After or Every.
	Timer(ctx *Context[M], tag uint64)
}

// ChildEvent is a failure or the end of a child.
type ChildEvent struct {
	ID   uint64
	Name string
	// Err is the reason: nil for Stop, ErrStopped for StopNow, a *PanicError, ErrGoexit, the error of
	// Started, or ErrEscalated.
	Err error
	// If Restarts is false, the child has ended. If Restarts is true, the child restarts after
	// Delay, or its method Stopped has panicked. That panic changes nothing for the child.
	Restarts bool
	Delay    time.Duration
	// Failures is how many failures the event reports: 0 if the child has ended, otherwise 1, or more
	// if the child failed again before its parent handled the event. Err and Delay are then those of the
	// last of these failures; Err also has the panic of Stopped after it, if there was one.
	Failures int
}

// Supervisor is a Handler that receives the events of its children.
type Supervisor[M any] interface {
	// Child is called for every failure that does not end the child, and one time when the child
	// has ended. Failures of one child that happen while the parent is busy are reported by one call
	// (see ChildEvent.Failures), because restarts do not wait for the parent.
	Child(ctx *Context[M], ev ChildEvent)
}
