/* Wrappers of the newer calls: on-demand memory, memory of other devices, thread domains, and
 * further attributes of a queue pair. A library may lack any of them; see calls.h. */
#ifndef CALLS_MORE_H
#define CALLS_MORE_H

#include "calls.h"

static inline int shim_advise_mr(struct vb_pd *p, vb_enum advice, uint32_t flags, struct vb_sge *list, uint32_t n)
{
	struct vb_verbs_context *v = VB_CTX_OP(p->context, advise_mr);
	return v ? SHIM_INT(v->advise_mr(p, advice, flags, list, n)) : EOPNOTSUPP;
}

static inline struct vb_mr *shim_reg_dmabuf(struct shim_verbs *t, struct vb_pd *p, uint64_t offset, uint64_t length, uint64_t iova, int fd, uint32_t access)
{
	if (!t->ibv_reg_dmabuf_mr) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return SHIM_PTR(t->ibv_reg_dmabuf_mr(p, offset, length, iova, fd, (int)access));
}

static inline struct vb_td *shim_alloc_td(struct vb_context *c)
{
	struct vb_verbs_context *v = VB_CTX_OP(c, alloc_td);
	struct vb_td_init_attr a = {0};

	if (!v) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return SHIM_PTR(v->alloc_td(c, &a));
}

static inline int shim_dealloc_td(struct vb_td *td)
{
	struct vb_verbs_context *v = VB_CTX_OP(td->context, dealloc_td);
	return v ? SHIM_INT(v->dealloc_td(td)) : EOPNOTSUPP;
}

static inline struct vb_pd *shim_parent_domain(struct vb_pd *p, struct vb_td *td)
{
	struct vb_verbs_context *v = VB_CTX_OP(p->context, alloc_parent_domain);
	struct vb_parent_domain_init_attr a = {.pd = p, .td = td};

	if (!v) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return SHIM_PTR(v->alloc_parent_domain(p->context, &a));
}

/* The call has no errors: for an unknown property it reports no guarantee. */
static inline int shim_data_in_order(struct shim_verbs *t, struct vb_qp *q, vb_enum op, uint32_t *order)
{
	if (!t->ibv_query_qp_data_in_order)
		return EOPNOTSUPP;
	*order = (uint32_t)t->ibv_query_qp_data_in_order(q, op, VB_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS);
	return 0;
}

static inline int shim_query_ece(struct shim_verbs *t, struct vb_qp *q, struct vb_ece *e)
{
	memset(e, 0, sizeof(*e));
	return t->ibv_query_ece ? SHIM_INT(t->ibv_query_ece(q, e)) : EOPNOTSUPP;
}

/* ibv_set_ece returns -1 or the errno, and writes the accepted options into e. */
static inline int shim_set_ece(struct shim_verbs *t, struct vb_qp *q, struct vb_ece *e) { return t->ibv_set_ece ? SHIM_INT(t->ibv_set_ece(q, e)) : EOPNOTSUPP; }

static inline int shim_fork_init(struct shim_verbs *t) { return t->ibv_fork_init ? SHIM_INT(t->ibv_fork_init()) : EOPNOTSUPP; }
static inline int shim_fork_status(struct shim_verbs *t) { return t->ibv_is_fork_initialized ? t->ibv_is_fork_initialized() : -1; }

#endif
