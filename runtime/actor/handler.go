package actor

import (
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Handler is an actor's behaviour. Its methods, those of the interfaces below
// included, are called one at a time, each after all effects of the one before are
// visible, not always on the same goroutine. On a reactor (Options.On) they
// must not block.
//
// A Handler is one instance: when it panics the next is made (Spawn's function).
type Handler[M any] interface {
	// Receive handles one message. The Context is valid until it returns.
	Receive(ctx *Context[M], m M)
}

// Func is a Handler that has nothing but Receive.
type Func[M any] func(ctx *Context[M], m M)

// Receive implements Handler.
func (f Func[M]) Receive(ctx *Context[M], m M) { f(ctx, m) }

// Starter is a Handler that is told when its instance begins, before anything else.
type Starter[M any] interface {
	// Started prepares the instance. An error is a failure, as a panic is.
	Started(ctx *Context[M]) error
}

// Stopper is a Handler that is told when its instance ends, after everything else:
// nothing is under way any more, no child, timer or connection is left.
type Stopper[M any] interface {
	// Stopped gives back what the instance has. cause is nil after Stop,
	// ErrStopped after StopNow, otherwise what failed.
	Stopped(ctx *Context[M], cause error)
}

// Completion is the outcome of an operation that the actor started.
type Completion struct {
	Tag    uint64 // as given to Context.Start
	Conn   *verbena.Conn
	Result verbena.Result
	Err    error
}

// Completer is a Handler that gets the outcomes of its operations.
type Completer[M any] interface {
	// Completed is called once for every operation that Context.Start accepted.
	Completed(ctx *Context[M], c Completion)
}

// ConnEventKind is what happened to a connection.
type ConnEventKind uint8

// What happens to connections.
const (
	ConnEstablished ConnEventKind = iota // by Dial or Accept; it is the actor's own now
	ConnFailed                           // Dial or Accept ended with Err
	ConnMessage                          // Message has arrived: Release it
	ConnClosed                           // no message will come any more; Err says why
)

var connEventNames = [...]string{"established", "failed", "message", "closed"}

// String is the kind in a word.
func (k ConnEventKind) String() string {
	if int(k) < len(connEventNames) {
		return connEventNames[k]
	}
	return "unknown"
}

// ConnEvent is something that happened to a connection of the actor's.
type ConnEvent struct {
	Kind    ConnEventKind
	Tag     uint64        // as given to Own, Dial or Accept
	Conn    *verbena.Conn // nil for ConnFailed
	Message verbena.Message
	Err     error
}

// Connector is a Handler that owns connections.
type Connector[M any] interface {
	// Connection is called for every event, those of one connection in their
	// order: established, messages, closed.
	Connection(ctx *Context[M], ev ConnEvent)
}

// DeviceWatcher is a Handler that is told of the device's events: ports that go
// up and down, the device's end.
type DeviceWatcher[M any] interface {
	// Device is called for every event that comes while the instance lives.
	Device(ctx *Context[M], ev verbena.DeviceEvent)
}

// Timed is a Handler with timers.
type Timed[M any] interface {
	// Timer is called when a timer is due; tag as given to After or Every.
	Timer(ctx *Context[M], tag uint64)
}

// ChildEvent is something that happened to a child.
type ChildEvent struct {
	ID   uint64
	Name string
	// Err is why it failed or stopped: nil for Stop, ErrStopped for StopNow, a
	// *PanicError, what Started returned, ErrEscalated.
	Err error
	// Restarts tells that the child comes back, after Delay; else it has ended.
	Restarts bool
	Delay    time.Duration
}

// Supervisor is a Handler that is told what becomes of its children.
type Supervisor[M any] interface {
	// Child is called for every failure, and once when the child has ended.
	Child(ctx *Context[M], ev ChildEvent)
}
