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
	Port uint8 // for port events
}

// watcher is one registration of WatchDevice.
type watcher struct{ fn func(DeviceEvent) }

// WatchDevice calls fn with every later event of the device and its ports: port up and down,
// address changes, removal. fn runs holding a reactor's turn: it must not block. A panic of fn
// goes to Config.OnPanic. stop unregisters fn; an event that is being delivered may still arrive.
// Events of queues and connections are not reported: they show in the results of operations.
func (rt *Runtime) WatchDevice(fn func(DeviceEvent)) (stop func()) {
	w := &watcher{fn}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.watchers = append(rt.watchers, w)
	return func() {
		rt.mu.Lock()
		defer rt.mu.Unlock()
		kept := make([]*watcher, 0, len(rt.watchers)) // a copy: tellWatchers may be reading the old slice
		for _, o := range rt.watchers {
			if o != w {
				kept = append(kept, o)
			}
		}
		rt.watchers = kept
	}
}

// tellWatchers passes device and port events to the watchers.
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

// After calls fn once, after d on the runtime's clock, holding a reactor's turn:
// fn must not block. stop cancels the call if it has not begun; it takes effect
// soon and does not wait. Nothing runs after Close. A panic of fn goes to
// Config.OnPanic. After and stop allocate and may be called from any goroutine.
func (rt *Runtime) After(d time.Duration, fn func()) (stop func()) {
	r := rt.shards[0].r
	t := r.After(d, func() { r.Notify(fn) })
	return func() { r.Defer(func() { r.StopTimer(t) }) }
}

// Loop identifies the callback goroutine of one reactor, which is not the
// goroutine of the reactor's loop. Actors may be placed on it.
type Loop struct{ r *reactor.Reactor }

func init() {
	seam.EndConn = func(conn any) { conn.(*Conn).end(false) }
	seam.LoopReactor = func(loop any) *reactor.Reactor { return loop.(Loop).r }
}

// Loops returns one Loop per reactor, at least one, always in the same order.
func (rt *Runtime) Loops() []Loop {
	all := make([]Loop, len(rt.shards))
	for i, s := range rt.shards {
		all[i].r = s.r
	}
	return all
}

// Loop returns the Loop of the connection's reactor.
func (c *Conn) Loop() Loop { return Loop{c.sh.r} }

// Gone returns a channel that is closed when the connection has released everything.
func (c *Conn) Gone() <-chan struct{} { return c.closed }

// Raw reports whether the connection leaves receives to the caller.
func (c *Conn) Raw() bool { return c.opts.Raw }
