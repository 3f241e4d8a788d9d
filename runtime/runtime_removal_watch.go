package runtime

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// removalWatch is a connection manager identifier that stays bound to the device until the runtime
// is closed, only to receive DEVICE_REMOVAL. The runtime may have no other identifier, because it
// has no connections, or only plain ones (Prepare). Without the watch, only DEVICE_FATAL could
// report a removal to it. The kernel does not send DEVICE_FATAL if the driver cannot revoke
// contexts (rxe of 6.12 has no disassociate_ucontext). Instead the kernel waits until the process
// closes the device (ib_uverbs_remove_one, drivers/infiniband/core/uverbs_main.c).
//
// The watch belongs to the first shard (a reactor with its event channel). It is opened before any
// other identifier and closed after all of them. The reason is that librdmacm opens the device a
// second time for the first identifier, and keeps it open. Package ibv releases this second opening
// when an identifier gets DEVICE_REMOVAL (verbs/ibv/cmremoval.go). So there must always be an
// identifier. The holder of the turn (the goroutine that runs the reactor) owns the watch.
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

// watchRemoval binds the watch to the first address that the connection manager maps to the device.
// There may be no such address (InfiniBand without an address, an address of another network
// namespace). Then there is no watch, and a program without other identifiers learns of a removal
// only from DEVICE_FATAL or from calls that fail. Holder only.
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

// elsewhere reports whether binding has failed because the address cannot be used in this network
// namespace: no interface has the address (rdma_translate_ip, drivers/infiniband/core/addr.c), its
// interface has no RDMA device (cma_acquire_dev_by_src_ip, cma.c), or the system does not support
// its address family.
func elsewhere(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// unwatchRemoval ends the watch. The caller has handled all events before. If unwatchRemoval fails,
// it may be called again. Holder only.
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
