package rdmacm

import "github.com/verbena-rdma/verbena/verbs"

// SetLocalECE sets the vendor's options that Connect or Accept sends, for a queue pair of the program's own: one that
// CreateQP has not made. The answer to a request has the vendor of the request. It does not block. Errors: EINVAL when
// the identifier has a queue pair, outside port space TCP, and for a vendor of 0 or of more than 24 bits;
// verbs.ErrNotSupported where librdmacm is older than rdma-core 31.
//
// Implements: rdma_set_local_ece.
func (id *ID) SetLocalECE(e verbs.ECE) error {
	if id == nil {
		return errNil("rdma_set_local_ece")
	}
	return named("rdma_set_local_ece", id, id.cm.SetLocalECE(e))
}

// RemoteECE returns the options that the peer sent with CONNECT_REQUEST or CONNECT_RESPONSE; zero if it sent none. It
// does not block. Errors as SetLocalECE.
//
// Implements: rdma_get_remote_ece.
func (id *ID) RemoteECE() (verbs.ECE, error) {
	if id == nil {
		return verbs.ECE{}, errNil("rdma_get_remote_ece")
	}
	e, err := id.cm.RemoteECE()
	return e, named("rdma_get_remote_ece", id, err)
}

// RejectECE refuses a request because of its options: the peer gets REJECTED with reason verbs.RejVendorOption and the
// private data. No event follows. Errors as Reject, and verbs.ErrNotSupported as SetLocalECE.
//
// Implements: rdma_reject_ece.
func (id *ID) RejectECE(private []byte) error {
	if id == nil {
		return errNil("rdma_reject_ece")
	}
	return named("rdma_reject_ece", id, id.cm.RejectECE(private))
}

// Notify reports an asynchronous event of a queue pair of the program's own. COMM_EST establishes an accepted
// connection whose last message from the peer is late or lost: event ESTABLISHED follows. It does not wait for that.
// Errors: EINVAL for other events and without such a connection, EISCONN if it is established.
//
// Implements: rdma_notify.
func (id *ID) Notify(event verbs.AsyncEventType) error {
	if id == nil {
		return errNil("rdma_notify")
	}
	return named("rdma_notify", id, id.cm.Notify(event))
}

// InitQPAttr returns the attributes, and their mask, with which the program moves a queue pair of its own to INIT, RTR
// or RTS; it may change them first. Those for RTR and RTS exist after CONNECT_REQUEST or CONNECT_RESPONSE. It may wait
// for the device. Errors: EINVAL for other states, before that, and without a device.
//
// Implements: rdma_init_qp_attr.
func (id *ID) InitQPAttr(to verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error) {
	if id == nil {
		return verbs.QPAttr{}, 0, errNil("rdma_init_qp_attr")
	}
	a, mask, err := id.cm.InitQPAttr(to)
	return a, mask, named("rdma_init_qp_attr", id, err)
}
