package runtime

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// removalWatch is an identifier that is bound to the device for as long as its
// runtime is open, and does nothing but hear DEVICE_REMOVAL. Without one, a runtime
// that has no identifier (its connections are plain, or it has none) is told by
// nobody where the driver cannot take contexts away: such a kernel sends no
// DEVICE_FATAL either (ib_uverbs_remove_one, drivers/infiniband/core/uverbs_main.c,
// sends it where there is disassociate_ucontext, which rxe of 6.12 has not), and
// waits for the process to close the device.
//
// It belongs to the first shard, opened before any other identifier and closed
// after all of them: librdmacm, which keeps the device open itself from the first
// identifier on, lets go of it with the event (verbs/ibv/cmremoval.go). The holder's.
type removalWatch struct {
	rt *Runtime
	id verbs.CMID
}

// onCM implements cmTarget.
func (w *removalWatch) onCM(ev *verbs.CMEvent) {
	if ev.Type == verbs.CMDeviceRemoval {
		w.rt.deviceGone()
	}
}

// watchRemoval binds the watch to the first address that the connection manager
// takes for the device's. A device may have none that it does (InfiniBand without an
// address, an address of another network namespace): then there is no watch, and
// whoever has no identifier either learns of a removal by what fails. Holder only.
func (s *shard) watchRemoval() error {
	for _, addr := range s.rt.dev.Device().Addr {
		id, err := s.cm.CreateID(verbs.PSTCP, 0)
		if err != nil {
			return err
		}
		err = id.Bind(netip.AddrPortFrom(addr, 0))
		if err == nil && id.Device() == s.rt.dev.Device().Name {
			s.watch = &removalWatch{s.rt, id}
			s.targets[id] = s.watch
			return nil
		}
		s.closeID(id, nil)
		if err != nil && !elsewhere(err) {
			return err
		}
	}
	return nil
}

// elsewhere tells whether an address could not be bound because it is not here:
// no interface has it (rdma_translate_ip, drivers/infiniband/core/addr.c), that has
// no RDMA device (cma_acquire_dev_by_src_ip, cma.c), or the system has no such
// addresses.
func elsewhere(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// unwatchRemoval ends the watch; it may be repeated until it succeeds. The events
// have been taken. Holder only.
func (s *shard) unwatchRemoval() error {
	if s.watch == nil {
		return nil
	}
	if err := s.watch.id.Close(); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
		return err
	}
	delete(s.targets, s.watch.id)
	s.watch = nil
	return nil
}
