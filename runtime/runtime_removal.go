package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// This file ends a runtime whose device is removed (ADR 5). The runtime learns of a removal in one of
// three ways: a pass of a reactor fails with ErrDeviceRemoved, the device reports DEVICE_FATAL, or an
// identifier gets DEVICE_REMOVAL. (If the device has a usable address, removalWatch always has such an
// identifier.) The first of these reports causes a call of deviceGone, which ends everything on every
// reactor. In the diagram, a target is the owner of an identifier (cmTarget):
//
//	deviceGone ──> each target gets DEVICE_REMOVAL ──> Conn.failRemoved, Listener.stop, …
//	          └──> after that SharedRecv.failRemoved closes the shared receives
//
// A removed device gives no completions, so no code waits for a completion. First the queue pairs and
// identifiers are closed. Then the outstanding operations complete with ErrDeviceRemoved. After that
// the program can only close the runtime.

// deviceGone ends everything that uses the device. Only the first call has an effect. Any
// goroutine may call deviceGone.
func (rt *Runtime) deviceGone() {
	if rt.gone.Swap(true) {
		return
	}
	for _, sh := range rt.shards {
		sh.r.Defer(sh.failRemoved)
	}
}

// failRemoved reports the removal to all targets of the shard (one reactor's part of the runtime).
// Only the holder of the turn (the goroutine that runs the reactor) calls it.
func (s *shard) failRemoved() {
	for _, id := range s.ordered() {
		if t := s.targets[id]; t != nil { // the event of an earlier target may have removed this target from the map
			t.onCM(&verbs.CMEvent{Type: verbs.CMDeviceRemoval})
		}
	}
	s.rt.mu.Lock()
	shared := slices.Collect(maps.Keys(s.rt.shared))
	s.rt.mu.Unlock()
	for _, r := range shared {
		if r.sh == s {
			r.failRemoved()
		}
	}
}

// asRemoved wraps err in ErrDeviceRemoved if the device is gone. The device is gone if a removal
// was reported, or if err is ErrUnknownDevice and the provider no longer lists the device.
func (rt *Runtime) asRemoved(err error) error {
	switch {
	case err == nil || errors.Is(err, verbs.ErrDeviceRemoved):
		return err
	case rt.gone.Load():
	case !errors.Is(err, verbs.ErrUnknownDevice) || rt.listed():
		return err
	}
	return fmt.Errorf("%w: %w", verbs.ErrDeviceRemoved, err)
}

// listed reports whether the provider lists the device.
func (rt *Runtime) listed() bool {
	devs, err := rt.provider.Devices()
	name := rt.dev.Device().Name
	return err == nil && slices.ContainsFunc(devs, func(d verbs.DeviceInfo) bool { return d.Name == name })
}

// shard.ordered returns the identifiers of the targets, in an order that is the same in every run of a
// simulation. Holder only.
func (s *shard) ordered() []connID {
	return slices.SortedFunc(maps.Keys(s.targets), func(a, b connID) int { return cmp.Compare(a.String(), b.String()) })
}

// failRemoved ends a connection whose device is gone. The device flushes nothing, so the runtime
// completes the outstanding operations itself, when the queue pair has been closed. Messages that
// have arrived can still be received until the connection is closed. Holder only; idempotent.
func (c *Conn) failRemoved() {
	if c.lost {
		return
	}
	c.lost = true
	switch c.state {
	case connConnecting:
		c.giveUp(verbs.ErrDeviceRemoved)
	case connDraining:
		c.destroy(nil)
	case connOpen, connLeft:
		c.setCause(verbs.ErrDeviceRemoved)
		c.state = connFailed
		c.refuseOps()
		c.detach()
	case connFailed:
		if c.disconnecting {
			c.destroy(nil)
			return
		}
		c.detach()
	}
}

// detach closes the identifier and its queue pair, and then completes the outstanding operations.
// Holder only.
func (c *Conn) detach() {
	c.closeErr = errors.Join(c.closeErr, c.closeWindows())
	c.opts.Shared.part(c)
	c.closeID(func(err error) {
		if c.state == connGone { // the connection was destroyed while the identifier was being closed
			return
		}
		c.id = nil
		c.closeErr = errors.Join(c.closeErr, err, c.q.Release(verbs.ErrDeviceRemoved))
		c.onDrained()
	})
}

// endCause returns the error for operations that are outstanding when the connection ends:
// ErrDeviceRemoved if the device is gone, and otherwise the connection's cause.
func (c *Conn) endCause() error {
	if c.lost {
		return verbs.ErrDeviceRemoved
	}
	return c.cause.Load()
}

// endCause is Conn.endCause for a PacketConn.
func (p *PacketConn) endCause() error {
	if p.rt.gone.Load() {
		return verbs.ErrDeviceRemoved
	}
	return p.cause.Load()
}

// endCause is Conn.endCause for a SharedRecv. If the device is not gone, it returns ErrClosed.
func (s *SharedRecv) endCause() error {
	if s.rt.gone.Load() {
		return verbs.ErrDeviceRemoved
	}
	return ErrClosed
}

// failRemoved closes the shared receive queue. If the queue is busy, because a connection that is
// being closed still uses the queue, failRemoved is called again after closeRetry. Holder only.
func (s *SharedRecv) failRemoved() {
	if s.gone {
		return
	}
	err := s.q.SRQ().Close()
	if errors.Is(err, verbs.ErrBusy) {
		s.sh.r.After(closeRetry, s.failRemoved)
		return
	}
	if err == nil { // otherwise SharedRecv.Close tries again, and reports the error
		_ = s.forget() // returns no error, because Release of a queue does not fail
	}
}
