/* Instant mode: the baseline for the cost of the software above a device.
 *
 * It does only the work that a device with its queues in memory requires of a driver: each
 * request writes 64 bytes into a ring; each post writes one doorbell, a store that a full fence
 * orders after the ring; each signaled request is answered by a completion of 64 bytes, at once.
 * It never reads the payload. The locks are those of drivers: one of the send queue, one of the
 * completion queue. Receives are kept and complete only when they are flushed.
 *
 * Measurements with it are compared over time. A change here changes their meaning: do not tune
 * it. */
#include "nd.h"

/* entry writes a request as four segments of 16 bytes; it omits the rest, as in a device's first
 * entry. */
static void entry(struct nd_wqe *e, const struct vb_send_wr *wr, uint32_t qpn, uint32_t n)
{
	e->ctrl[0] = n << 8 | (uint32_t)wr->opcode;
	e->ctrl[1] = qpn << 8 | (uint32_t)wr->num_sge;
	e->ctrl[2] = wr->send_flags;
	e->ctrl[3] = wr->imm_data;
	e->remote[0] = wr->wr.rdma.remote_addr;
	e->remote[1] = wr->wr.rdma.rkey;
	for (int i = 0; i < 2; i++)
		e->data[i] = i < wr->num_sge ? wr->sg_list[i] : (struct vb_sge){ 0 };
}

/* ring writes the doorbell: all earlier writes are visible before it. */
static void ring(volatile uint64_t *bell, uint64_t value)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*bell = value;
}

static uint8_t wc_opcode(int op)
{
	switch (op) {
	case VB_WR_RDMA_WRITE: case VB_WR_RDMA_WRITE_WITH_IMM: return VB_WC_RDMA_WRITE;
	case VB_WR_RDMA_READ: return VB_WC_RDMA_READ;
	case VB_WR_ATOMIC_CMP_AND_SWP: return VB_WC_COMP_SWAP;
	case VB_WR_ATOMIC_FETCH_AND_ADD: return VB_WC_FETCH_ADD;
	case VB_WR_LOCAL_INV: return VB_WC_LOCAL_INV;
	case VB_WR_BIND_MW: return VB_WC_BIND_MW;
	case VB_WR_FLUSH: return VB_WC_FLUSH;
	case VB_WR_ATOMIC_WRITE: return VB_WC_ATOMIC_WRITE;
	default: return VB_WC_SEND;
	}
}

int nd_instant_send(struct nd_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad, int at, int fault)
{
	int err = 0, n = 0, state;
	uint32_t first;

	pthread_spin_lock(&qp->sq_lock);
	state = qp->state;
	first = qp->sq_tail;
	qp->n_sends++;
	for (; wr; wr = wr->next, n++) {
		struct nd_cqe c;

		if (n == at)
			err = fault;
		else if (state < VB_QPS_RTS || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
			err = EINVAL;
		else if (!nd_send_room(qp))
			err = ENOMEM;
		if (err) {
			*bad = wr;
			break;
		}
		entry(&qp->wqes[qp->sq_tail & qp->sq_mask], wr, qp->qp.qp_base.qp_num, qp->sq_tail);
		qp->sq_tail++;
		qp->unsignaled++;
		if (!(wr->send_flags & VB_SEND_SIGNALED) && !qp->sig_all && state == VB_QPS_RTS)
			continue;
		c = (struct nd_cqe){ .wr_id = wr->wr_id, .qp = qp, .retire = qp->unsignaled, .qp_num = qp->qp.qp_base.qp_num,
			.opcode = wc_opcode(wr->opcode) };
		if (state != VB_QPS_RTS) {
			c.status = VB_WC_WR_FLUSH_ERR;
			c.vendor_err = ND_VENDOR_ERR | VB_WC_WR_FLUSH_ERR;
		}
		qp->unsignaled = 0;
		qp->last_wr_id = wr->wr_id;
		nd_cq_push(qp->scq, &c);
	}
	qp->n_send_wrs += n;
	if (qp->sq_tail != first) {
		ring(&qp->doorbell[0], qp->sq_tail);
		qp->n_doorbells++;
	}
	pthread_spin_unlock(&qp->sq_lock);
	if (__builtin_expect(__atomic_load_n(&nd_died, __ATOMIC_RELAXED), 0)) {
		nd_lock();
		nd_unlock();
	}
	return err;
}

int nd_instant_recv(struct nd_qp *qp, struct vb_recv_wr *wr, struct vb_recv_wr **bad, int at, int fault)
{
	int err = 0, n = 0;

	pthread_spin_lock(&qp->rq_lock);
	qp->n_recvs++;
	for (; wr; wr = wr->next, n++) {
		struct nd_wqe *e = &qp->rwqes[qp->rq.tail & qp->rq.mask];

		if (n == at)
			err = fault;
		else if (qp->state == VB_QPS_RESET || qp->srq)
			err = EINVAL;
		else
			err = nd_rq_put(&qp->rq, wr);
		if (err) {
			*bad = wr;
			break;
		}
		for (int i = 0; i < 2; i++)
			e->data[i] = i < wr->num_sge ? wr->sg_list[i] : (struct vb_sge){ 0 };
	}
	qp->n_recv_wrs += n;
	if (n) {
		ring(&qp->doorbell[4], qp->rq.tail);
		qp->n_rdoorbells++;
	}
	pthread_spin_unlock(&qp->rq_lock);
	if (__builtin_expect(qp->state == VB_QPS_ERR, 0)) {
		nd_lock();
		if (!qp->late)
			nd_flush_recvs(qp);
		nd_unlock();
	}
	return err;
}
