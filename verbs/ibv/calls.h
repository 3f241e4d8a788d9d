/* Wrappers of the calls that make, query and destroy objects; shim.h defines their results. */
#ifndef CALLS_H
#define CALLS_H

#include <fcntl.h>
#include <string.h>
#include "shim.h"

/* SHIM_PTR evaluates a call that returns a pointer. NULL without an errno becomes EINVAL. */
#define SHIM_PTR(p)                     \
	({                              \
		errno = 0;              \
		void *p_ = (p);         \
		if (!p_ && errno <= 0)  \
			errno = EINVAL; \
		p_;                     \
	})

#define SHIM_INT(call)              \
	({                          \
		errno = 0;          \
		shim_errno(call);   \
	})

static inline int shim_nonblock(int fd)
{
	int f = fcntl(fd, F_GETFL);
	return f < 0 || fcntl(fd, F_SETFL, f | O_NONBLOCK) < 0 ? errno : 0;
}

/* One of our ids as the context of an object: a number, never a Go pointer. */
static inline void *shim_id(uint64_t id) { return (void *)(uintptr_t)id; }

static inline struct vb_device **shim_devices(struct shim_verbs *t, int *n) { return SHIM_PTR(t->ibv_get_device_list(n)); }
static inline void shim_free_devices(struct shim_verbs *t, struct vb_device **l) { t->ibv_free_device_list(l); }
static inline struct vb_device *shim_device(struct vb_device **l, int i) { return l[i]; }
static inline const char *shim_device_name(struct shim_verbs *t, struct vb_device *d) { return t->ibv_get_device_name(d); }
static inline uint64_t shim_device_guid(struct shim_verbs *t, struct vb_device *d) { return t->ibv_get_device_guid(d); }
static inline struct vb_context *shim_open(struct shim_verbs *t, struct vb_device *d) { return SHIM_PTR(t->ibv_open_device(d)); }
static inline int shim_close(struct shim_verbs *t, struct vb_context *c) { return SHIM_INT(t->ibv_close_device(c)); }

static inline int shim_query_device(struct shim_verbs *t, struct vb_context *c, struct vb_device_attr_ex *a)
{
	struct vb_verbs_context *v = VB_CTX_OP(c, query_device_ex);
	int r = EOPNOTSUPP;

	memset(a, 0, sizeof(*a));
	if (v)
		r = SHIM_INT(v->query_device_ex(c, NULL, a, sizeof(*a)));
	if (r == EOPNOTSUPP || r == ENOSYS) { /* as ibv_query_device_ex */
		memset(a, 0, sizeof(*a));
		r = SHIM_INT(t->ibv_query_device(c, &a->orig_attr));
		a->device_cap_flags_ex = a->orig_attr.device_cap_flags;
	}
	return r;
}

/* The exported ibv_query_port writes an older, shorter structure. */
static inline int shim_query_port(struct shim_verbs *t, struct vb_context *c, uint8_t port, struct vb_port_attr *a)
{
	struct vb_verbs_context *v = VB_CTX_OP(c, query_port);

	memset(a, 0, sizeof(*a));
	if (v)
		return SHIM_INT(v->query_port(c, port, a, sizeof(*a)));
	return SHIM_INT(t->ibv_query_port(c, port, a));
}

static inline int shim_query_gid(struct shim_verbs *t, struct vb_context *c, uint8_t port, int i, union vb_gid *g) { return SHIM_INT(t->ibv_query_gid(c, port, i, g)); }

static inline int shim_query_gid_ex(struct shim_verbs *t, struct vb_context *c, uint32_t port, uint32_t i, struct vb_gid_entry *e)
{
	memset(e, 0, sizeof(*e));
	if (!t->_ibv_query_gid_ex)
		return EOPNOTSUPP;
	return SHIM_INT(t->_ibv_query_gid_ex(c, port, i, e, 0, sizeof(*e)));
}

/* Returns the number of entries, or a negative errno. */
static inline ssize_t shim_query_gid_table(struct shim_verbs *t, struct vb_context *c, struct vb_gid_entry *e, size_t n)
{
	return t->_ibv_query_gid_table ? t->_ibv_query_gid_table(c, e, n, 0, sizeof(*e)) : -EOPNOTSUPP;
}

static inline int shim_query_pkey(struct shim_verbs *t, struct vb_context *c, uint8_t port, int i, uint16_t *k) { return SHIM_INT(t->ibv_query_pkey(c, port, i, k)); }

static inline struct vb_pd *shim_alloc_pd(struct shim_verbs *t, struct vb_context *c) { return SHIM_PTR(t->ibv_alloc_pd(c)); }
static inline int shim_dealloc_pd(struct shim_verbs *t, struct vb_pd *p) { return SHIM_INT(t->ibv_dealloc_pd(p)); }

/* ibv_reg_mr is a macro over the function of that name and ibv_reg_mr_iova2. The latter is for a
 * separate iova and for the optional access bits. An old library without it masks those bits, as
 * it would itself. */
static inline struct vb_mr *shim_reg_mr(struct shim_verbs *t, struct vb_pd *p, uint64_t addr, uint64_t length, uint64_t iova, uint32_t access)
{
	void *at = (void *)(uintptr_t)addr;

	if (t->ibv_reg_mr_iova2)
		return SHIM_PTR(t->ibv_reg_mr_iova2(p, at, length, iova, access));
	if (iova != addr) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return SHIM_PTR(t->ibv_reg_mr(p, at, length, (int)(access & ~(uint32_t)VB_ACCESS_OPTIONAL_RANGE)));
}

static inline int shim_dereg_mr(struct shim_verbs *t, struct vb_mr *m) { return SHIM_INT(t->ibv_dereg_mr(m)); }

static inline struct vb_mw *shim_alloc_mw(struct vb_pd *p, vb_enum type)
{
	if (!p->context->ops.alloc_mw) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return SHIM_PTR(p->context->ops.alloc_mw(p, type));
}

static inline int shim_dealloc_mw(struct vb_mw *m) { return SHIM_INT(m->context->ops.dealloc_mw(m)); }
static inline uint32_t shim_mw_rkey(struct vb_mw *m) { return __atomic_load_n(&m->rkey, __ATOMIC_RELAXED); }

static inline struct vb_ah *shim_create_ah(struct shim_verbs *t, struct vb_pd *p, struct vb_ah_attr *a) { return SHIM_PTR(t->ibv_create_ah(p, a)); }
static inline int shim_destroy_ah(struct shim_verbs *t, struct vb_ah *a) { return SHIM_INT(t->ibv_destroy_ah(a)); }

static inline struct vb_comp_channel *shim_create_channel(struct shim_verbs *t, struct vb_context *c) { return SHIM_PTR(t->ibv_create_comp_channel(c)); }
static inline int shim_destroy_channel(struct shim_verbs *t, struct vb_comp_channel *ch) { return SHIM_INT(t->ibv_destroy_comp_channel(ch)); }

/* Reads the id through the queue, which lives until the event is acknowledged. */
static inline int shim_get_cq_event(struct shim_verbs *t, struct vb_comp_channel *ch, struct vb_cq **cq, uint64_t *id)
{
	void *ctx = NULL;
	int r = SHIM_INT(t->ibv_get_cq_event(ch, cq, &ctx));
	*id = (uint64_t)(uintptr_t)ctx;
	return r;
}

static inline void shim_ack_cq_events(struct shim_verbs *t, struct vb_cq *cq, unsigned int n) { t->ibv_ack_cq_events(cq, n); }

static inline struct vb_cq *shim_create_cq(struct shim_verbs *t, struct vb_context *c, int cqe, uint64_t id, struct vb_comp_channel *ch, int vector)
{
	return SHIM_PTR(t->ibv_create_cq(c, cqe, shim_id(id), ch, vector));
}

static inline struct vb_cq *shim_create_cq_ex(struct vb_context *c, int cqe, uint64_t id, struct vb_comp_channel *ch, int vector)
{
	struct vb_verbs_context *v = VB_CTX_OP(c, create_cq_ex);
	struct vb_cq_init_attr_ex a = {
		.cqe = (uint32_t)cqe, .cq_context = shim_id(id), .channel = ch,
		.comp_vector = (uint32_t)vector, .wc_flags = VB_WC_STANDARD_FLAGS,
	};
	if (!v) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return SHIM_PTR(v->create_cq_ex(c, &a));
}

static inline int shim_resize_cq(struct shim_verbs *t, struct vb_cq *cq, int cqe) { return SHIM_INT(t->ibv_resize_cq(cq, cqe)); }
static inline int shim_destroy_cq(struct shim_verbs *t, struct vb_cq *cq) { return SHIM_INT(t->ibv_destroy_cq(cq)); }

/* Takes an asynchronous event with the id of its object, or the number of its port. */
static inline int shim_get_async_event(struct shim_verbs *t, struct vb_context *c, struct vb_async_event *e, uint64_t *id)
{
	int r = SHIM_INT(t->ibv_get_async_event(c, e));
	*id = 0;
	if (r)
		return r;
	switch (e->event_type) {
	case VB_EVENT_CQ_ERR:
		*id = (uint64_t)(uintptr_t)e->element.cq->cq_context;
		break;
	case VB_EVENT_QP_FATAL:
	case VB_EVENT_QP_REQ_ERR:
	case VB_EVENT_QP_ACCESS_ERR:
	case VB_EVENT_COMM_EST:
	case VB_EVENT_SQ_DRAINED:
	case VB_EVENT_PATH_MIG:
	case VB_EVENT_PATH_MIG_ERR:
	case VB_EVENT_QP_LAST_WQE_REACHED:
		*id = (uint64_t)(uintptr_t)e->element.qp->qp_context;
		break;
	case VB_EVENT_SRQ_ERR:
	case VB_EVENT_SRQ_LIMIT_REACHED:
		*id = (uint64_t)(uintptr_t)e->element.srq->srq_context;
		break;
	default:
		*id = (uint64_t)(unsigned int)e->element.port_num;
	}
	return 0;
}

/* obj is the vb_cq, vb_qp or vb_srq of the event, or the number of its port. */
static inline void shim_ack_async(struct shim_verbs *t, uint64_t obj, vb_enum type)
{
	struct vb_async_event e = {.event_type = type};
	e.element.cq = (struct vb_cq *)(uintptr_t)obj;
	t->ibv_ack_async_event(&e);
}

static inline uint64_t shim_async_element(struct vb_async_event *e) { return (uint64_t)(uintptr_t)e->element.cq; }

#endif
