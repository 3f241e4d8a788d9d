package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// How the removal of a device ends a runtime (ADR 5). Three sources report it:
// a pass that fails with ErrDeviceRemoved, the device's DEVICE_FATAL event, and
// an identifier's DEVICE_REMOVAL event (removalWatch has an identifier if the
// device has an address). The first report ends everything, on every reactor:
//
//	deviceGone ──> each target gets DEVICE_REMOVAL ──> Conn.failRemoved, Listener.stop, …
//	          └──> then the shared receives
//
// No completion will arrive any more, so no code waits for one: queue pairs
// and identifiers are closed, and then outstanding operations complete with
// ErrDeviceRemoved. After that the runtime cannot be used and must be closed.

// deviceGone ends everything, once. Any goroutine may call it.
func (rt *Runtime) deviceGone() {
	if rt.gone.Swap(true) {
		return
	}
	for _, sh := range rt.shards {
		sh.r.Defer(sh.failRemoved)
	}
}

// failRemoved reports the removal to all targets of the shard. Holder only.
func (s *shard) failRemoved() {
	for _, id := range s.ordered() {
		if t := s.targets[id]; t != nil { // an earlier target may have removed it
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

// asRemoved wraps err in ErrDeviceRemoved if the device is gone. A call made at the moment
// of removal may fail because the device is missing, before its removal is reported.
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

// ordered returns the identifiers of the targets in an order that is the
// same in every run of a simulation. Holder only.
func (s *shard) ordered() []connID {
	return slices.SortedFunc(maps.Keys(s.targets), func(a, b connID) int { return cmp.Compare(a.String(), b.String()) })
}

// failRemoved ends a connection whose device is gone. Outstanding operations complete
// when the queue pair is closed; there is no flush before. Messages that have arrived
// can still be received until the connection is closed. Holder only; idempotent.
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

// detach closes the identifier with the queue pair, and completes outstanding operations.
func (c *Conn) detach() {
	c.closeErr = errors.Join(c.closeErr, c.closeWindows())
	c.opts.Shared.part(c)
	c.sh.closeID(c.id, func(err error) {
		if c.state == connGone { // closed in the meantime
			return
		}
		c.id = nil
		c.closeErr = errors.Join(c.closeErr, err, c.q.Release(verbs.ErrDeviceRemoved))
		c.onDrained()
	})
}

// endCause returns the error of operations that are outstanding at the
// end: removal of the device takes precedence over the cause.
func (c *Conn) endCause() error {
	if c.lost {
		return verbs.ErrDeviceRemoved
	}
	return c.cause.Load()
}

// endCause is Conn.endCause for datagrams.
func (p *PacketConn) endCause() error {
	if p.rt.gone.Load() {
		return verbs.ErrDeviceRemoved
	}
	return p.cause.Load()
}

// endCause is Conn.endCause for shared receives.
func (s *SharedRecv) endCause() error {
	if s.rt.gone.Load() {
		return verbs.ErrDeviceRemoved
	}
	return ErrClosed
}

// failRemoved ends the shared receives; connections that are still being
// closed may use them for a moment. Holder only.
func (s *SharedRecv) failRemoved() {
	if s.gone {
		return
	}
	err := s.q.SRQ().Close()
	if errors.Is(err, verbs.ErrBusy) {
		s.sh.r.After(closeRetry, s.failRemoved)
		return
	}
	if err == nil { // else Close tries again, and reports it
		_ = s.forget() // Release of a queue does not fail
	}
}
