package runtime

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// removalWatch is a connection manager identifier whose only purpose is to receive DEVICE_REMOVAL.
// It is bound to the device until the runtime is closed. A runtime without connections, or with
// connections of Prepare only, has no other identifier. Without the watch, only DEVICE_FATAL could
// report a removal to such a runtime. But the kernel does not send DEVICE_FATAL if the driver
// cannot revoke contexts (rxe of Linux 6.12 has no disassociate_ucontext). In this case the kernel
// waits until the process closes the device (ib_uverbs_remove_one,
// drivers/infiniband/core/uverbs_main.c).
//
// The watch belongs to the first shard (a reactor with its event channel). It is opened before all
// other identifiers, and closed after them, because there must be an identifier as long as librdmacm
// has the device open. For its first identifier, librdmacm opens the device a second time, and keeps
// the device open. Package ibv releases this second opening when an identifier gets DEVICE_REMOVAL
// (verbs/ibv/cmremoval.go).
//
// The holder of the turn (the goroutine that runs the reactor) owns the watch.
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

// watchRemoval binds the watch to the first of the device's addresses that the connection manager maps
// to the device. If there is no such address (for example, an InfiniBand port has no IP address, or
// the address is in another network namespace), there is no watch. A runtime without other
// identifiers then learns of a removal only from DEVICE_FATAL or from calls that fail. Holder only.
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

// elsewhere reports whether err, the error of binding to an address, means that the address cannot be
// used in this network namespace. There are three such errors:
//
//	EADDRNOTAVAIL   no interface has the address (rdma_translate_ip, drivers/infiniband/core/addr.c)
//	ENODEV          the interface with the address has no RDMA device (cma_acquire_dev_by_src_ip, cma.c)
//	EAFNOSUPPORT    the system does not support the address family
func elsewhere(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// unwatchRemoval ends the watch. All pending events must have been handled before. If
// unwatchRemoval fails, it may be called again. Holder only.
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
