package nth

import (
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

func (i *cmID) SetReuseAddr(reuse bool) error {
	if err := i.w.plan.fails("rdma_set_option", i.CMID); err != nil {
		return err
	}
	return i.CMID.SetReuseAddr(reuse)
}

func (i *cmID) SetAFOnly(only bool) error {
	if err := i.w.plan.fails("rdma_set_option", i.CMID); err != nil {
		return err
	}
	return i.CMID.SetAFOnly(only)
}

func (i *cmID) BindIB(local verbs.IBAddr) error {
	if err := i.w.plan.fails("rdma_bind_addr", i.CMID); err != nil {
		return err
	}
	return i.CMID.BindIB(local)
}

func (i *cmID) ResolveIB(src, dst verbs.IBAddr, timeout time.Duration) error {
	if err := i.w.plan.fails("rdma_resolve_addr", i.CMID); err != nil {
		return err
	}
	return i.CMID.ResolveIB(src, dst, timeout)
}

// DestroyQP forgets the queue pair.
func (i *cmID) DestroyQP() error {
	q := i.CMID.QP()
	return i.w.plan.closes("rdma_destroy_qp", i.CMID, func() error {
		err := i.CMID.DestroyQP()
		if err == nil && q != nil {
			i.w.forget(q)
		}
		return err
	})
}

func (i *cmID) InitQPAttr(to verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error) {
	if err := i.w.plan.fails("rdma_init_qp_attr", i.CMID); err != nil {
		return verbs.QPAttr{}, 0, err
	}
	return i.CMID.InitQPAttr(to)
}

func (i *cmID) SetLocalECE(e verbs.ECE) error {
	if err := i.w.plan.fails("rdma_set_local_ece", i.CMID); err != nil {
		return err
	}
	return i.CMID.SetLocalECE(e)
}

func (i *cmID) RemoteECE() (verbs.ECE, error) {
	if err := i.w.plan.fails("rdma_get_remote_ece", i.CMID); err != nil {
		return verbs.ECE{}, err
	}
	return i.CMID.RemoteECE()
}

func (i *cmID) RejectECE(private []byte) error {
	if err := i.w.plan.fails("rdma_reject_ece", i.CMID); err != nil {
		return err
	}
	return i.CMID.RejectECE(private)
}

func (i *cmID) Notify(event verbs.AsyncEventType) error {
	if err := i.w.plan.fails("rdma_notify", i.CMID); err != nil {
		return err
	}
	return i.CMID.Notify(event)
}

func (i *cmID) JoinMulticastSendOnly(group netip.Addr, userData uint64) error {
	if err := i.w.plan.fails("rdma_join_multicast_ex", i.CMID); err != nil {
		return err
	}
	return i.CMID.JoinMulticastSendOnly(group, userData)
}

func (i *cmID) JoinMulticastIB(group verbs.IBAddr, sendOnly bool, userData uint64) error {
	if err := i.w.plan.fails("rdma_join_multicast", i.CMID); err != nil {
		return err
	}
	return i.CMID.JoinMulticastIB(group, sendOnly, userData)
}

func (i *cmID) LeaveMulticastIB(group verbs.IBAddr) error {
	if err := i.w.plan.fails("rdma_leave_multicast", i.CMID); err != nil {
		return err
	}
	return i.CMID.LeaveMulticastIB(group)
}
