/* Options beyond the standard, and what the program notices of its queue pair. */
#include "cm.h"

CM_EXPORT int rdma_reject_ece(struct vb_rdma_cm_id *p, const void *data, uint8_t len)
{
	CM_CALL("rdma_reject_ece", p->verbs);
	return cm_reject(p, data, len, CM_REJ_VENDOR_OPTION);
}

CM_EXPORT int rdma_set_local_ece(struct vb_rdma_cm_id *p, struct vb_ece *e)
{
	CM_CALL("rdma_set_local_ece", p->verbs);
	if (p->qp || !e || !e->vendor_id || e->comp_mask)
		return cm_err(EINVAL);
	((struct cm_id *)p)->local_ece = (struct vb_ece){ .vendor_id = e->vendor_id & CM_VENDOR_BITS, .options = e->options };
	return 0;
}

CM_EXPORT int rdma_get_remote_ece(struct vb_rdma_cm_id *p, struct vb_ece *e)
{
	CM_CALL("rdma_get_remote_ece", p->verbs);
	if (p->qp || !e)
		return cm_err(EINVAL);
	*e = ((struct cm_id *)p)->remote_ece;
	return 0;
}

/* The passive side's consumer has noticed data before the RTU (kernel cm.c, cm_establish). */
CM_EXPORT int rdma_notify(struct vb_rdma_cm_id *p, vb_enum event)
{
	struct cm_id *id = (struct cm_id *)p;
	int err = EINVAL;

	CM_CALL("rdma_notify", p->verbs);
	pthread_mutex_lock(&cm_mu);
	if (event == VB_EVENT_COMM_EST && !cm_is_ud(id) && id->state == CM_UP) {
		err = EISCONN;
	} else if (event == VB_EVENT_COMM_EST && id->state == CM_ANSWERED) {
		err = 0;
		id->state = CM_UP;
		cm_push(id, VB_RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
	}
	pthread_mutex_unlock(&cm_mu);
	return err ? cm_err(err) : 0;
}
