package runtime

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// removalWatch is an identifier that stays bound to the device as long as its runtime is
// open, only to receive DEVICE_REMOVAL. A runtime without an identifier (because it has
// no connections, or only plain ones) would get no report if the driver does not support
// disassociation. For such a driver the kernel sends no DEVICE_FATAL either, and waits until
// the process closes the device (ib_uverbs_remove_one, drivers/infiniband/core/uverbs_main.c;
// it looks for disassociate_ucontext, which rxe of 6.12 lacks).
//
// It belongs to the first shard, is opened before any other identifier and closed
// after all of them: librdmacm itself keeps the device open from the first identifier
// on, and releases it with the event (verbs/ibv/cmremoval.go). Owned by the holder.
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
// maps to the device. There may be none (InfiniBand without an address, an address
// of another network namespace). Then there is no watch, and a program without
// other identifiers learns of a removal only through failing calls. Holder only.
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

// elsewhere reports whether binding failed because the address is not usable here: no
// interface has it (rdma_translate_ip, drivers/infiniband/core/addr.c), its interface has no
// RDMA device (cma_acquire_dev_by_src_ip, cma.c), or the system does not support its family.
func elsewhere(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// unwatchRemoval ends the watch, after all events were handled; it may
// be repeated until it succeeds. Holder only.
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
