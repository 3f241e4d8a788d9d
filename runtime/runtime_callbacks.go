package runtime

import (
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/seam"
	"github.com/verbena-rdma/verbena/verbs"
)

// DeviceEvent is an event of the device or of one of its ports.
type DeviceEvent struct {
	Type verbs.AsyncEventType
	Port uint8 // the port number of a port event
}

// watcher is one registration of WatchDevice.
type watcher struct{ fn func(DeviceEvent) }

// WatchDevice registers fn: from now on fn is called with every event of the device and its ports,
// for example port up, port down, a change of address, or removal. The goroutine that runs a
// reactor (the holder of its turn) calls fn, so fn must not block. A panic of fn goes to
// Config.OnPanic. A call of stop unregisters fn; an event that is being delivered at that time may
// still reach fn.
//
// WatchDevice does not report events of queue pairs, completion queues and shared receive queues.
// These events show in the results of operations. It panics if fn is nil.
func (rt *Runtime) WatchDevice(fn func(DeviceEvent)) (stop func()) {
	if fn == nil {
		panic("runtime: WatchDevice of a nil function")
	}
	w := &watcher{fn}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.watchers = append(rt.watchers, w)
	return func() {
		rt.mu.Lock()
		defer rt.mu.Unlock()
		kept := make([]*watcher, 0, len(rt.watchers)) // a new array, because tellWatchers may be reading the old array
		for _, o := range rt.watchers {
			if o != w {
				kept = append(kept, o)
			}
		}
		rt.watchers = kept
	}
}

// tellWatchers passes an event of the device or of a port to the watchers. It ignores all other
// events. Only the holder of the turn calls it.
func (s *shard) tellWatchers(ev *verbs.AsyncEvent) {
	rt := s.rt
	if ev.QP != nil || ev.CQ != nil || ev.SRQ != nil {
		return
	}
	rt.mu.Lock()
	all := rt.watchers
	rt.mu.Unlock()
	for _, w := range all {
		told := DeviceEvent{Type: ev.Type, Port: ev.Port}
		s.r.Notify(func() { w.fn(told) })
	}
}

// Now returns the time of the runtime's clock.
func (rt *Runtime) Now() time.Time { return rt.cfg.now() }

// After calls fn one time, when the duration d has passed on the runtime's clock. The holder of a
// reactor's turn calls fn, so fn must not block. A panic of fn goes to Config.OnPanic. If the runtime
// is closed before that time, fn is not called.
//
// A call of stop cancels the call of fn, unless fn has begun. A call of stop does not wait for the
// reactor, so fn may still begin shortly after stop has returned. Any goroutine may call After and
// stop. Both allocate. After panics if fn is nil.
func (rt *Runtime) After(d time.Duration, fn func()) (stop func()) {
	if fn == nil {
		panic("runtime: After of a nil function")
	}
	r := rt.shards[0].r
	t := r.After(d, func() { r.Notify(fn) })
	return func() { r.Defer(func() { r.StopTimer(t) }) }
}

// Loop identifies the goroutine of a reactor that runs the callbacks of futures (Future.Then). This
// goroutine does not run the reactor. An actor (package actor) can be placed on a Loop.
type Loop struct{ r *reactor.Reactor }

func init() {
	seam.EndConn = func(conn any) { conn.(*Conn).end(false) }
	seam.LoopReactor = func(loop any) *reactor.Reactor { return loop.(Loop).r }
	seam.ConnectError = eventError(verbs.CMConnectError)
}

// Loops returns one Loop for each reactor, always in the same order. There is at least one reactor.
func (rt *Runtime) Loops() []Loop {
	all := make([]Loop, len(rt.shards))
	for i, s := range rt.shards {
		all[i].r = s.r
	}
	return all
}

// Loop returns the Loop of the connection's reactor.
func (c *Conn) Loop() Loop { return Loop{c.sh.r} }

// Gone returns a channel that is closed when the connection is closed and has released all its
// resources.
func (c *Conn) Gone() <-chan struct{} { return c.closed }

// Raw reports whether the connection is raw: the program posts the receives (PostRecv).
func (c *Conn) Raw() bool { return c.opts.Raw }
