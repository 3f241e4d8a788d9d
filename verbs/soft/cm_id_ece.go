package soft

import (
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
)

// The device has no options of its own (ErrNotSupported of QueryECE), so a queue pair of CreateQP offers none and
// answers none; the identifier carries those of a queue pair of the program's own.
//
// Implements: init_ece, ucma_copy_ece_param_to_kern_req and _rep of librdmacm/cma.c.

// SetLocalECE sets the options that Connect or Accept sends. It does not block.
//
// Implements: rdma_set_local_ece.
func (id *cmID) SetLocalECE(e verbs.ECE) error {
	const op = "rdma_set_local_ece"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.checkECE(op); err != nil {
		return err
	}
	if e.Vendor == 0 || e.Vendor > max24 {
		return id.refuse(op, "vendor 0x%x", e.Vendor)
	}
	id.ece = e
	return nil
}

// RemoteECE returns the options that the peer sent. It does not block.
//
// Implements: rdma_get_remote_ece.
func (id *cmID) RemoteECE() (verbs.ECE, error) {
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.checkECE("rdma_get_remote_ece"); err != nil {
		return verbs.ECE{}, err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.peerECE, nil
}

// checkECE refuses a call about options. The caller holds api.
func (id *cmID) checkECE(op string) error {
	if _, _, closed := id.look(); closed {
		return opError(op, id.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	if id.qp != nil || id.datagrams() {
		return id.refuse(op, "the options are those of a connected queue pair of the program's own")
	}
	return nil
}

// localECE returns the options to send. The caller holds api.
func (id *cmID) localECE() verbs.ECE {
	if id.qp != nil {
		return verbs.ECE{}
	}
	return id.ece
}

// Reject refuses a CONNECT_REQUEST, with at most 148 bytes of private data. No event follows. It
// waits for a running Progress call of the device.
//
// Implements: rdma_reject.
func (id *cmID) Reject(private []byte) error {
	return id.reject("rdma_reject", cm.RejConsumer, private)
}

// RejectECE is Reject with another reason; in port space UDP it is the same.
//
// Implements: rdma_reject_ece.
func (id *cmID) RejectECE(private []byte) error {
	return id.reject("rdma_reject_ece", cm.RejVendorOption, private)
}

func (id *cmID) reject(op string, why cm.Reason, private []byte) error {
	id.api.Lock()
	defer id.api.Unlock()
	if id.datagrams() {
		return id.answer(op, cm.SIDRReject, &verbs.ConnParam{PrivateData: private})
	}
	if len(private) > verbs.MaxPrivateReject {
		return id.refuse(op, "%d bytes of private data, at most %d", len(private), verbs.MaxPrivateReject)
	}
	return id.exclusive(op, []idState{idAsked}, func(now time.Duration) error {
		id.become(idEnded)
		id.breakQP()
		return id.conn.Reject(now, why, private)
	})
}

// Notify establishes an accepted connection after COMM_EST. The first packet at a queue pair of CreateQP does that
// without it. It waits for a running Progress call of the device.
//
// Implements: rdma_notify; ib_cm_notify (kernel cm.c), without PATH_MIG, since connections have one path.
func (id *cmID) Notify(event verbs.AsyncEventType) error {
	const op = "rdma_notify"
	id.api.Lock()
	defer id.api.Unlock()
	if event != verbs.EventCommEst || id.datagrams() {
		return id.refuse(op, "event %v in port space 0x%04x", event, uint16(id.ps))
	}
	done := false
	err := id.exclusive(op, []idState{idAccepted, idEstablished}, func(time.Duration) error {
		done = id.conn.Established()
		return nil
	})
	if err == nil && !done {
		return opError(op, id.String(), syscall.EISCONN, "%w: the connection is established", verbs.ErrInvalid)
	}
	return err
}
