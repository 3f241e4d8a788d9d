package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// How a device that is gone ends a runtime (ADR 5). Three may tell: a turn that
// answers ErrDeviceRemoved, the device's DEVICE_FATAL, an identifier's
// DEVICE_REMOVAL (removalWatch has one where the device has an address). Whoever tells first has
// everything ended, on every reactor:
//
//	deviceGone ──> each target gets DEVICE_REMOVAL ──> Conn.failRemoved, Listener.stop, …
//	          └──> then the shared receives
//
// No completion comes any more, so nothing waits for one: queue pairs and
// identifiers are closed, and what was out completes with ErrDeviceRemoved as soon
// as they are. The runtime is good for nothing else then, and is closed.

// deviceGone ends everything, once. Any goroutine.
func (rt *Runtime) deviceGone() {
	if rt.gone.Swap(true) {
		return
	}
	for _, sh := range rt.shards {
		sh.r.Defer(sh.failRemoved)
	}
}

// failRemoved tells all targets of the shard. Holder only.
func (s *shard) failRemoved() {
	for _, id := range s.ordered() {
		if t := s.targets[id]; t != nil { // an earlier one may have ended it
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

// asRemoved says of a failure that came of the device's being gone that it did: who
// begins something at that moment may be told so by what is missing, before
// anybody here has been told by the device.
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

// listed tells whether the provider knows the device.
func (rt *Runtime) listed() bool {
	devs, err := rt.provider.Devices()
	name := rt.dev.Device().Name
	return err == nil && slices.ContainsFunc(devs, func(d verbs.DeviceInfo) bool { return d.Name == name })
}

// ordered is the targets' identifiers in an order that is the same in every run of
// a simulation. Holder only.
func (s *shard) ordered() []connID {
	return slices.SortedFunc(maps.Keys(s.targets), func(a, b connID) int { return cmp.Compare(a.String(), b.String()) })
}

// failRemoved ends a connection whose device is gone: what is out completes when the
// queue pair is closed, which no flush precedes; what has arrived can still be
// received, if nobody has closed the connection. Holder only; idempotent.
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
		c.refuse()
		c.detach()
	case connFailed:
		if c.disconnecting {
			c.destroy(nil)
			return
		}
		c.detach()
	}
}

// detach closes the identifier with the queue pair, and completes what was out.
func (c *Conn) detach() {
	c.closeErr = errors.Join(c.closeErr, c.closeWindows())
	c.opts.Shared.part(c)
	c.sh.closeID(c.id, func(err error) {
		if c.state == connGone { // closed meanwhile
			return
		}
		c.id = nil
		c.closeErr = errors.Join(c.closeErr, err, c.q.Release(verbs.ErrDeviceRemoved))
		c.onDrained()
	})
}

// endCause is what operations complete with that are out at the end: the device's
// being gone comes before our closing.
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

// failRemoved ends the shared receives; connections that are still being closed use
// them for a moment more. Holder only.
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
