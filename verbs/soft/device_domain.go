package soft

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// AllocTD returns ErrNotSupported: posting to a queue pair of this device takes no lock that a
// thread domain could elide.
//
// Implements: ibv_alloc_td.
func (c *deviceContext) AllocTD() (verbs.TD, error) {
	return nil, notYet("ibv_alloc_td", c.String(), "thread domains: there is no lock to leave out")
}

// AllocParentDomain returns ErrNotSupported, as AllocTD does.
//
// Implements: ibv_alloc_parent_domain.
func (p *protectionDomain) AllocParentDomain(verbs.TD) (verbs.PD, error) {
	return nil, notYet("ibv_alloc_parent_domain", p.String(), "thread domains: there is no lock to leave out")
}

// DataInOrder reports no guarantee: data is copied packet by packet, and the order in which
// another goroutine sees the bytes of a copy is undefined.
//
// Implements: ibv_query_qp_data_in_order.
func (q *queuePair) DataInOrder(verbs.WROpcode) (verbs.DataOrder, error) {
	return 0, q.ctx.checkPresent("ibv_query_qp_data_in_order")
}

// QueryECE returns ErrNotSupported: this device has no vendor options to negotiate.
//
// Implements: ibv_query_ece.
func (q *queuePair) QueryECE() (verbs.ECE, error) { return noECE("ibv_query_ece", q) }

// SetECE returns ErrNotSupported, as QueryECE does.
//
// Implements: ibv_set_ece.
func (q *queuePair) SetECE(verbs.ECE) (verbs.ECE, error) { return noECE("ibv_set_ece", q) }

// DataInOrder reports no guarantee, as that of other queue pairs.
//
// Implements: ibv_query_qp_data_in_order.
func (r *xrcReceiver) DataInOrder(verbs.WROpcode) (verbs.DataOrder, error) {
	return 0, r.x.ctx.checkPresent("ibv_query_qp_data_in_order")
}

// QueryECE returns ErrNotSupported.
//
// Implements: ibv_query_ece.
func (r *xrcReceiver) QueryECE() (verbs.ECE, error) { return noECE("ibv_query_ece", r) }

// SetECE returns ErrNotSupported.
//
// Implements: ibv_set_ece.
func (r *xrcReceiver) SetECE(verbs.ECE) (verbs.ECE, error) { return noECE("ibv_set_ece", r) }

func noECE(op string, q verbs.QP) (verbs.ECE, error) {
	return verbs.ECE{}, opError(op, q.String(), syscall.EOPNOTSUPP, "%w: no options of a vendor", verbs.ErrNotSupported)
}
