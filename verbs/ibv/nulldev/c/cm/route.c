/* Routes, and the options that they depend on. */
#include "cm.h"

void cm_way(const struct cm_id *id, int dev, struct vb_ah_attr *a)
{
	nulldev_path(id->id.verbs, dev, a);
	a->sl = id->path_sl;
	if (a->is_global)
		a->grh.traffic_class = id->path_tos;
}

CM_EXPORT int rdma_resolve_route(struct vb_rdma_cm_id *p, int timeout)
{
	struct cm_id *id = (struct cm_id *)p;
	int err = 0;

	(void)timeout;
	CM_CALL("rdma_resolve_route", p->verbs);
	pthread_mutex_lock(&cm_mu);
	if (id->state != CM_ADDR || !p->verbs) {
		err = EINVAL;
	} else {
		id->state = CM_ROUTE;
		/* cma.c, cma_resolve_iboe_route; the subnet manager's record does not depend on the option */
		id->path_life = nulldev_profile_of(p->verbs)->path_life;
		if (!id->path_life)
			id->path_life = id->timeout ? id->timeout - 1 : CM_PATH_LIFE;
		id->path_tos = id->tos; /* cma_resolve_iboe_route */
		/* On InfiniBand it is the class of the query, to which the subnet manager gives a service level
		 * (cma_query_ib_route): here its three upper bits. */
		id->path_sl = nulldev_profile_of(p->verbs)->infiniband ? id->tos >> 5 : 0;
		cm_push(id, VB_RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	}
	pthread_mutex_unlock(&cm_mu);
	return err ? cm_err(err) : 0;
}

CM_EXPORT int rdma_set_option(struct vb_rdma_cm_id *p, int level, int name, void *value, size_t len)
{
	CM_CALL("rdma_set_option", p->verbs);
	if (level == VB_RDMA_OPTION_ID && name == VB_RDMA_OPTION_ID_ACK_TIMEOUT) {
		if (len != sizeof(uint8_t) || (p->qp_type != VB_QPT_RC && p->qp_type != VB_QPT_XRC_SEND))
			return cm_err(EINVAL);
		((struct cm_id *)p)->timeout = *(uint8_t *)value;
		return 0;
	}
	if (level == VB_RDMA_OPTION_ID && name == VB_RDMA_OPTION_ID_TOS) {
		if (len != sizeof(uint8_t))
			return cm_err(EINVAL);
		((struct cm_id *)p)->tos = *(uint8_t *)value;
		return 0;
	}
	if (level != VB_RDMA_OPTION_ID || len != sizeof(int))
		return cm_err(ENOSYS);
	if (name == VB_RDMA_OPTION_ID_REUSEADDR)
		((struct cm_id *)p)->reuse = *(int *)value;
	return 0;
}
