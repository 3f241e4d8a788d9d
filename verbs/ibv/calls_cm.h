/* Wrappers of librdmacm's calls; see calls.h. */
#ifndef CALLS_CM_H
#define CALLS_CM_H

#include "calls.h"

/* The length that the kernel wants of an address (rdma_addr_size). */
static inline socklen_t shim_addr_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : a->ss_family == VB_AF_IB ? sizeof(struct vb_sockaddr_ib) : sizeof(struct sockaddr_in6);
}

static inline struct vb_rdma_event_channel *shim_create_cm_channel(struct shim_cm *t) { return SHIM_PTR(t->rdma_create_event_channel()); }
static inline void shim_destroy_cm_channel(struct shim_cm *t, struct vb_rdma_event_channel *ch) { t->rdma_destroy_event_channel(ch); }
static inline int shim_create_id(struct shim_cm *t, struct vb_rdma_event_channel *ch, struct vb_rdma_cm_id **id, uint64_t ctx, vb_enum ps) { return SHIM_INT(t->rdma_create_id(ch, id, shim_id(ctx), ps)); }

/* Makes an identifier for queue pairs of a type, bound to an address, which rdma_create_id cannot. The library makes
 * it synchronous, with a channel of its own, so it is moved. */
static inline int shim_create_ep(struct shim_cm *t, struct vb_rdma_event_channel *ch, struct vb_rdma_cm_id **id, uint64_t ctx, vb_enum ps, vb_enum type, struct sockaddr_storage *a)
{
	struct vb_rdma_addrinfo ai = {
		.ai_flags = VB_RAI_PASSIVE, .ai_family = a->ss_family, .ai_qp_type = type, .ai_port_space = ps,
		.ai_src_addr = (struct sockaddr *)a, .ai_src_len = shim_addr_len(a),
	};
	struct vb_rdma_cm_id *made = NULL;
	int e = SHIM_INT(t->rdma_create_ep(&made, &ai, NULL, NULL));

	if (e)
		return e;
	made->context = shim_id(ctx);
	e = SHIM_INT(t->rdma_migrate_id(made, ch));
	if (e)
		t->rdma_destroy_id(made);
	else
		*id = made;
	return e;
}

static inline int shim_destroy_id(struct shim_cm *t, struct vb_rdma_cm_id *id) { return SHIM_INT(t->rdma_destroy_id(id)); }
static inline int shim_bind_addr(struct shim_cm *t, struct vb_rdma_cm_id *id, struct sockaddr_storage *a) { return SHIM_INT(t->rdma_bind_addr(id, (struct sockaddr *)a)); }

/* src may have no family: then the library chooses. */
static inline int shim_resolve_addr(struct shim_cm *t, struct vb_rdma_cm_id *id, struct sockaddr_storage *src, struct sockaddr_storage *dst, int ms)
{
	return SHIM_INT(t->rdma_resolve_addr(id, src->ss_family ? (struct sockaddr *)src : NULL, (struct sockaddr *)dst, ms));
}

static inline int shim_resolve_route(struct shim_cm *t, struct vb_rdma_cm_id *id, int ms) { return SHIM_INT(t->rdma_resolve_route(id, ms)); }
static inline int shim_listen(struct shim_cm *t, struct vb_rdma_cm_id *id, int backlog) { return SHIM_INT(t->rdma_listen(id, backlog)); }

/* The private data is a separate argument: C must not write a pointer to Go memory into Go
 * memory. */
static inline int shim_connect(struct shim_cm *t, struct vb_rdma_cm_id *id, const struct vb_rdma_conn_param *p, const void *data)
{
	struct vb_rdma_conn_param c = *p;
	c.private_data = data;
	return SHIM_INT(t->rdma_connect(id, &c));
}

static inline int shim_accept(struct shim_cm *t, struct vb_rdma_cm_id *id, const struct vb_rdma_conn_param *p, const void *data)
{
	struct vb_rdma_conn_param c = *p;
	c.private_data = data;
	return SHIM_INT(t->rdma_accept(id, &c));
}

static inline int shim_reject(struct shim_cm *t, struct vb_rdma_cm_id *id, const void *data, uint8_t n) { return SHIM_INT(t->rdma_reject(id, data, n)); }
static inline int shim_reject_ece(struct shim_cm *t, struct vb_rdma_cm_id *id, const void *data, uint8_t n) { return t->rdma_reject_ece ? SHIM_INT(t->rdma_reject_ece(id, data, n)) : EOPNOTSUPP; }
static inline int shim_has_ece(struct shim_cm *t) { return t->rdma_set_local_ece && t->rdma_get_remote_ece; }
static inline int shim_set_local_ece(struct shim_cm *t, struct vb_rdma_cm_id *id, struct vb_ece *e) { return SHIM_INT(t->rdma_set_local_ece(id, e)); }
static inline int shim_get_remote_ece(struct shim_cm *t, struct vb_rdma_cm_id *id, struct vb_ece *e) { return SHIM_INT(t->rdma_get_remote_ece(id, e)); }
static inline int shim_notify(struct shim_cm *t, struct vb_rdma_cm_id *id, vb_enum event) { return SHIM_INT(t->rdma_notify(id, event)); }
static inline int shim_disconnect(struct shim_cm *t, struct vb_rdma_cm_id *id) { return SHIM_INT(t->rdma_disconnect(id)); }
static inline int shim_establish(struct shim_cm *t, struct vb_rdma_cm_id *id) { return SHIM_INT(t->rdma_establish(id)); }
static inline int shim_init_qp_attr(struct shim_cm *t, struct vb_rdma_cm_id *id, struct vb_qp_attr *a, int *mask) { return SHIM_INT(t->rdma_init_qp_attr(id, a, mask)); }
static inline int shim_get_cm_event(struct shim_cm *t, struct vb_rdma_event_channel *ch, struct vb_rdma_cm_event **e) { return SHIM_INT(t->rdma_get_cm_event(ch, e)); }
static inline int shim_ack_cm_event(struct shim_cm *t, struct vb_rdma_cm_event *e) { return SHIM_INT(t->rdma_ack_cm_event(e)); }
static inline int shim_migrate(struct shim_cm *t, struct vb_rdma_cm_id *id, struct vb_rdma_event_channel *ch) { return SHIM_INT(t->rdma_migrate_id(id, ch)); }
static inline int shim_tos(struct shim_cm *t, struct vb_rdma_cm_id *id, uint8_t tos) { return SHIM_INT(t->rdma_set_option(id, VB_RDMA_OPTION_ID, VB_RDMA_OPTION_ID_TOS, &tos, sizeof tos)); }
static inline int shim_ack_timeout(struct shim_cm *t, struct vb_rdma_cm_id *id, uint8_t code) { return SHIM_INT(t->rdma_set_option(id, VB_RDMA_OPTION_ID, VB_RDMA_OPTION_ID_ACK_TIMEOUT, &code, sizeof code)); }
/* The kernel's REUSEADDR and AFONLY are an int (ucma.c, ucma_set_option_id). */
static inline int shim_option(struct shim_cm *t, struct vb_rdma_cm_id *id, int name, int on) { return SHIM_INT(t->rdma_set_option(id, VB_RDMA_OPTION_ID, name, &on, sizeof on)); }

static inline int shim_join_send_only(struct shim_cm *t, struct vb_rdma_cm_id *id, struct sockaddr_storage *a, uint64_t key)
{
	struct vb_rdma_cm_join_mc_attr_ex ex = {
		.comp_mask = VB_RDMA_CM_JOIN_MC_ATTR_ADDRESS | VB_RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = VB_RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = (struct sockaddr *)a,
	};

	return t->rdma_join_multicast_ex ? SHIM_INT(t->rdma_join_multicast_ex(id, &ex, shim_id(key))) : EOPNOTSUPP;
}

static inline int shim_join(struct shim_cm *t, struct vb_rdma_cm_id *id, struct sockaddr_storage *a, uint64_t key) { return SHIM_INT(t->rdma_join_multicast(id, (struct sockaddr *)a, shim_id(key))); }
static inline int shim_leave(struct shim_cm *t, struct vb_rdma_cm_id *id, struct sockaddr_storage *a) { return SHIM_INT(t->rdma_leave_multicast(id, (struct sockaddr *)a)); }

static inline uint64_t shim_id_context(struct vb_rdma_cm_id *id) { return id ? (uint64_t)(uintptr_t)id->context : 0; }
static inline void shim_id_set_context(struct vb_rdma_cm_id *id, uint64_t v) { id->context = shim_id(v); }
static inline struct sockaddr_storage *shim_src(struct vb_rdma_cm_id *id) { return &id->route.addr.src_storage; }
static inline struct sockaddr_storage *shim_dst(struct vb_rdma_cm_id *id) { return &id->route.addr.dst_storage; }

/* The two forms of an event's parameters; the port space decides which one is valid. */
static inline struct vb_rdma_conn_param *shim_event_conn(struct vb_rdma_cm_event *e) { return &e->param.conn; }
static inline struct vb_rdma_ud_param *shim_event_ud(struct vb_rdma_cm_event *e) { return &e->param.ud; }

/* A multicast event carries the context of its join in the place of private data. */
static inline uint64_t shim_join_context(struct vb_rdma_cm_event *e) { return (uint64_t)(uintptr_t)e->param.ud.private_data; }

#endif
