/* Wrappers of the calls about queue pairs, shared receive queues and XRC
 * domains; see calls.h. */
#ifndef CALLS_QP_H
#define CALLS_QP_H

#include "calls.h"

/* Makes a queue pair with extended posting of the operations in ops; 0: without. */
static inline struct vb_qp *shim_create_qp(struct shim_verbs *t, struct vb_pd *p, struct vb_qp_init_attr *a, uint64_t ops)
{
	struct vb_verbs_context *v = VB_CTX_OP(p->context, create_qp_ex);
	struct vb_qp_init_attr_ex x;
	struct vb_qp *q;

	if (ops == 0)
		return SHIM_PTR(t->ibv_create_qp(p, a));
	if (!v || !t->ibv_qp_to_qp_ex) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	memset(&x, 0, sizeof(x));
	memcpy(&x, a, sizeof(*a)); /* x begins with the members of a */
	x.comp_mask = VB_QP_INIT_ATTR_PD | VB_QP_INIT_ATTR_SEND_OPS_FLAGS;
	x.pd = p;
	x.send_ops_flags = ops;
	q = SHIM_PTR(v->create_qp_ex(p->context, &x));
	if (q)
		a->cap = x.cap;
	return q;
}

static inline struct vb_qp_ex *shim_qp_ex(struct shim_verbs *t, struct vb_qp *q) { return t->ibv_qp_to_qp_ex(q); }

static inline struct vb_qp *shim_create_xrc_recv(struct vb_xrcd *x, uint64_t id)
{
	struct vb_verbs_context *v = VB_CTX_OP(x->context, create_qp_ex);
	struct vb_qp_init_attr_ex a;

	if (!v) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	memset(&a, 0, sizeof(a));
	a.qp_context = shim_id(id);
	a.qp_type = VB_QPT_XRC_RECV;
	a.comp_mask = VB_QP_INIT_ATTR_XRCD;
	a.xrcd = x;
	return SHIM_PTR(v->create_qp_ex(x->context, &a));
}

static inline struct vb_qp *shim_open_qp(struct vb_xrcd *x, uint32_t num, uint64_t id)
{
	struct vb_verbs_context *v = VB_CTX_OP(x->context, open_qp);
	struct vb_qp_open_attr a;

	if (!v) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	memset(&a, 0, sizeof(a));
	a.comp_mask = VB_QP_OPEN_ATTR_NUM | VB_QP_OPEN_ATTR_XRCD | VB_QP_OPEN_ATTR_CONTEXT | VB_QP_OPEN_ATTR_TYPE;
	a.qp_num = num;
	a.xrcd = x;
	a.qp_context = shim_id(id);
	a.qp_type = VB_QPT_XRC_RECV;
	return SHIM_PTR(v->open_qp(x->context, &a));
}

static inline int shim_modify_qp(struct shim_verbs *t, struct vb_qp *q, struct vb_qp_attr *a, int mask) { return SHIM_INT(t->ibv_modify_qp(q, a, mask)); }

static inline int shim_query_qp(struct shim_verbs *t, struct vb_qp *q, struct vb_qp_attr *a, int mask)
{
	struct vb_qp_init_attr i;

	memset(a, 0, sizeof(*a));
	return SHIM_INT(t->ibv_query_qp(q, a, mask, &i));
}

static inline int shim_destroy_qp(struct shim_verbs *t, struct vb_qp *q) { return SHIM_INT(t->ibv_destroy_qp(q)); }
static inline int shim_attach(struct shim_verbs *t, struct vb_qp *q, union vb_gid *g, uint16_t lid) { return SHIM_INT(t->ibv_attach_mcast(q, g, lid)); }
static inline int shim_detach(struct shim_verbs *t, struct vb_qp *q, union vb_gid *g, uint16_t lid) { return SHIM_INT(t->ibv_detach_mcast(q, g, lid)); }

static inline struct vb_srq *shim_create_srq(struct shim_verbs *t, struct vb_pd *p, struct vb_srq_attr *a, uint64_t id)
{
	struct vb_srq_init_attr i = {.srq_context = shim_id(id), .attr = *a};
	struct vb_srq *s = SHIM_PTR(t->ibv_create_srq(p, &i));
	*a = i.attr;
	return s;
}

static inline struct vb_srq *shim_create_xrc_srq(struct vb_pd *p, struct vb_srq_attr *a, struct vb_xrcd *x, struct vb_cq *cq, uint64_t id)
{
	struct vb_verbs_context *v = VB_CTX_OP(p->context, create_srq_ex);
	struct vb_srq_init_attr_ex i;
	struct vb_srq *s;

	if (!v) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	memset(&i, 0, sizeof(i));
	i.srq_context = shim_id(id);
	i.attr = *a;
	i.comp_mask = VB_SRQ_INIT_ATTR_TYPE | VB_SRQ_INIT_ATTR_PD | VB_SRQ_INIT_ATTR_XRCD | VB_SRQ_INIT_ATTR_CQ;
	i.srq_type = VB_SRQT_XRC;
	i.pd = p;
	i.xrcd = x;
	i.cq = cq;
	s = SHIM_PTR(v->create_srq_ex(p->context, &i));
	*a = i.attr;
	return s;
}

static inline int shim_srq_num(struct vb_srq *s, uint32_t *num)
{
	struct vb_verbs_context *v = VB_CTX_OP(s->context, get_srq_num);
	return v ? SHIM_INT(v->get_srq_num(s, num)) : EOPNOTSUPP;
}

static inline int shim_modify_srq(struct shim_verbs *t, struct vb_srq *s, struct vb_srq_attr *a, int mask) { return SHIM_INT(t->ibv_modify_srq(s, a, mask)); }
static inline int shim_query_srq(struct shim_verbs *t, struct vb_srq *s, struct vb_srq_attr *a) { return SHIM_INT(t->ibv_query_srq(s, a)); }
static inline int shim_destroy_srq(struct shim_verbs *t, struct vb_srq *s) { return SHIM_INT(t->ibv_destroy_srq(s)); }

static inline struct vb_xrcd *shim_open_xrcd(struct vb_context *c, int fd, int oflags)
{
	struct vb_verbs_context *v = VB_CTX_OP(c, open_xrcd);
	struct vb_xrcd_init_attr a = {.comp_mask = VB_XRCD_INIT_ATTR_FD | VB_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags};

	if (!v) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return SHIM_PTR(v->open_xrcd(c, &a));
}

static inline int shim_close_xrcd(struct vb_xrcd *x)
{
	struct vb_verbs_context *v = VB_CTX_OP(x->context, close_xrcd);
	return v ? SHIM_INT(v->close_xrcd(x)) : EOPNOTSUPP;
}

#endif
