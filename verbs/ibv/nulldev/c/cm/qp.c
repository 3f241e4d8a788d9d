/* The queue pair of an identifier, and multicast. */
#include <arpa/inet.h>
#include "cm.h"

/* The kernel's attributes for a state (cma_ib_init_qp_attr, cm_init_qp_*_attr). Of datagrams they are those of INIT,
 * whatever the state. */
CM_EXPORT int rdma_init_qp_attr(struct vb_rdma_cm_id *p, struct vb_qp_attr *a, int *mask)
{
	struct cm_id *id = (struct cm_id *)p;
	int state = a->qp_state, err = 0;
	bool ud = cm_is_ud(id);

	CM_CALL("rdma_init_qp_attr", p->verbs);
	if (id->dev < 0)
		return cm_err(EINVAL);
	pthread_mutex_lock(&cm_mu);
	memset(a, 0, sizeof(*a));
	a->qp_state = state;
	*mask = VB_QP_STATE;
	switch (ud ? VB_QPS_INIT : state) {
	case VB_QPS_INIT:
		a->port_num = nulldev_port(p->verbs);
		*mask |= VB_QP_PKEY_INDEX | VB_QP_PORT | (ud ? VB_QP_QKEY : VB_QP_ACCESS_FLAGS);
		a->qkey = ud ? CM_QKEY : 0;
		if (!ud && id->state >= CM_ASKED) {
			a->qp_access_flags = VB_ACCESS_REMOTE_WRITE;
			if (id->responder) /* cm_init_qp_init_attr: FLUSH where the device has it */
				a->qp_access_flags |= VB_ACCESS_REMOTE_READ | VB_ACCESS_REMOTE_ATOMIC |
						      VB_ACCESS_FLUSH_GLOBAL | VB_ACCESS_FLUSH_PERSISTENT;
		}
		break;
	case VB_QPS_RTR:
		if (!id->peer) {
			err = EINVAL;
			break;
		}
		*mask |= VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN;
		if (p->qp_type != VB_QPT_XRC_SEND)
			*mask |= VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER;
		cm_way(id, id->peer->dev, &a->ah_attr);
		a->path_mtu = VB_MTU_4096;
		a->dest_qp_num = id->remote_qpn;
		a->rq_psn = id->remote_psn;
		a->max_dest_rd_atomic = id->responder;
		break;
	case VB_QPS_RTS:
		a->sq_psn = id->psn;
		*mask |= VB_QP_SQ_PSN | VB_QP_TIMEOUT;
		if (p->qp_type != VB_QPT_XRC_RECV)
			*mask |= VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC;
		a->timeout = id->timeout ? id->timeout : id->cm_timeout; /* cma.c, rdma_init_qp_attr: without the device's delay */
		a->retry_cnt = id->retry;
		a->rnr_retry = id->rnr_retry;
		a->max_rd_atomic = id->initiator;
		break;
	default:
		err = EINVAL;
	}
	pthread_mutex_unlock(&cm_mu);
	return err ? cm_err(err) : 0;
}

/* move moves the queue pair to a state and returns an errno. */
static int move(struct cm_id *id, int state)
{
	struct vb_qp_attr a = { .qp_state = state };
	int mask;

	if (!id->id.qp)
		return 0;
	if (rdma_init_qp_attr(&id->id, &a, &mask))
		return errno;
	return ibv_modify_qp(id->id.qp, &a, mask);
}

int cm_qp_rtr(struct cm_id *id)
{
	int err = move(id, VB_QPS_INIT); /* again: now the access is known */

	return err ? err : move(id, VB_QPS_RTR);
}

int cm_qp_rts(struct cm_id *id) { return move(id, VB_QPS_RTS); }

int cm_qp_err(struct cm_id *id)
{
	struct vb_qp_attr a = { .qp_state = VB_QPS_ERR };

	return id->id.qp ? ibv_modify_qp(id->id.qp, &a, VB_QP_STATE) : 0;
}

/* As ucma_init_ud_qp (cma.c), after INIT. */
static int ud_qp_rts(struct vb_qp *qp)
{
	struct vb_qp_attr a = { .qp_state = VB_QPS_RTR };
	int err = ibv_modify_qp(qp, &a, VB_QP_STATE);

	a.qp_state = VB_QPS_RTS;
	return err ? err : ibv_modify_qp(qp, &a, VB_QP_STATE | VB_QP_SQ_PSN);
}

/* The completion queues and the domain must be the caller's: the defaults are not implemented. */
CM_EXPORT int rdma_create_qp(struct vb_rdma_cm_id *p, struct vb_pd *pd, struct vb_qp_init_attr *a)
{
	struct cm_id *id = (struct cm_id *)p;
	struct vb_qp *qp;
	int err;

	CM_CALL("rdma_create_qp", p->verbs);
	if (p->qp || !p->verbs || !pd || pd->context != p->verbs || a->qp_type != p->qp_type)
		return cm_err(EINVAL);
	qp = ibv_create_qp(pd, a);
	if (!qp)
		return -1;
	p->qp = qp;
	p->pd = pd;
	err = move(id, VB_QPS_INIT);
	if (!err && cm_is_ud(id))
		err = ud_qp_rts(qp);
	if (!err)
		return 0;
	ibv_destroy_qp(qp);
	p->qp = NULL;
	return cm_err(err);
}

CM_EXPORT void rdma_destroy_qp(struct vb_rdma_cm_id *p)
{
	ibv_destroy_qp(p->qp);
	p->qp = NULL;
}

/* group_of reads the way to a group, of whose GID the kernel makes the one of the link layer
 * (cma_iboe_set_mgid, cma_set_mgid). */
static int group_of(struct vb_rdma_cm_id *p, const struct sockaddr *sa, struct vb_ah_attr *to)
{
	union vb_gid buf, *gid = &buf;
	const struct sockaddr_in6 *six = (const void *)sa;

	memset(gid, 0, sizeof(*gid));
	if (sa->sa_family == VB_AF_IB) {
		*gid = ((const struct vb_sockaddr_ib *)sa)->sib_addr;
	} else if (sa->sa_family == AF_INET) {
		memcpy(gid->raw + 10, "\xff\xff", 2);
		memcpy(gid->raw + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	} else if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
		memcpy(gid->raw, &six->sin6_addr, 16);
	} else {
		return EAFNOSUPPORT;
	}
	nulldev_group(p->verbs, gid, to);
	return 0;
}

static int join(struct vb_rdma_cm_id *p, struct sockaddr *sa, bool send_only, void *context)
{
	struct cm_id *id = (struct cm_id *)p;
	struct vb_rdma_ud_param u = { .qp_num = CM_MCAST_QPN, .qkey = CM_QKEY };
	struct cm_event *e;
	struct cm_mc *mc;
	int err;

	if (id->dev < 0 || !p->verbs || !cm_is_ud(id))
		return cm_err(EINVAL);
	err = group_of(p, sa, &u.ah_attr);
	if (err)
		return cm_err(err);
	mc = calloc(1, sizeof(*mc));
	if (!mc)
		return cm_err(ENOMEM);
	mc->id = id;
	mc->gid = u.ah_attr.grh.dgid;
	mc->send_only = send_only;
	mc->context = context;
	u.private_data = context;
	e = cm_event_new();
	e->mc = mc;
	e->event.param.ud = u;
	pthread_mutex_lock(&cm_mu);
	mc->next = id->mcs;
	id->mcs = mc;
	cm_push(id, VB_RDMA_CM_EVENT_MULTICAST_JOIN, 0, e);
	pthread_mutex_unlock(&cm_mu);
	return 0;
}

CM_EXPORT int rdma_join_multicast(struct vb_rdma_cm_id *p, struct sockaddr *sa, void *context)
{
	CM_CALL("rdma_join_multicast", p->verbs);
	return join(p, sa, false, context);
}

CM_EXPORT int rdma_join_multicast_ex(struct vb_rdma_cm_id *p, struct vb_rdma_cm_join_mc_attr_ex *a, void *context)
{
	const uint32_t all = VB_RDMA_CM_JOIN_MC_ATTR_ADDRESS | VB_RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	CM_CALL("rdma_join_multicast_ex", p->verbs);
	if (a->comp_mask >= VB_RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return cm_err(ENOTSUP);
	if (a->comp_mask != all || a->join_flags >= VB_RDMA_MC_JOIN_FLAG_RESERVED)
		return cm_err(EINVAL);
	return join(p, a->addr, a->join_flags == VB_RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context);
}

CM_EXPORT int rdma_leave_multicast(struct vb_rdma_cm_id *p, struct sockaddr *sa)
{
	struct cm_id *id = (struct cm_id *)p;
	struct cm_mc **at, *mc;
	struct vb_ah_attr group;

	CM_CALL("rdma_leave_multicast", p->verbs);
	if (!p->verbs || group_of(p, sa, &group))
		return cm_err(EADDRNOTAVAIL);
	pthread_mutex_lock(&cm_mu);
	for (at = &id->mcs; (mc = *at) && memcmp(&mc->gid, &group.grh.dgid, sizeof(mc->gid)); at = &mc->next)
		;
	if (!mc) {
		pthread_mutex_unlock(&cm_mu);
		return cm_err(EADDRNOTAVAIL);
	}
	*at = mc->next;
	for (struct cm_event *e = cm_channel_of(id)->first; e; e = e->next)
		if (e->mc == mc)
			e->id = NULL;
	pthread_mutex_unlock(&cm_mu);
	if (mc->attached && p->qp)
		ibv_detach_mcast(p->qp, &mc->gid, 0);
	pthread_mutex_lock(&id->mu);
	while (mc->completed < mc->reported)
		pthread_cond_wait(&id->cond, &id->mu);
	pthread_mutex_unlock(&id->mu);
	free(mc);
	return 0;
}
