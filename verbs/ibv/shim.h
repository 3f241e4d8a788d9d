/* The functions that Go calls: the tables of library functions, and one wrapper for each call
 * that is inline in the system's headers or whose result must be made uniform.
 *
 * Results. A wrapper that returns int returns 0 or a positive errno, whatever the library returns
 * (see shim_errno). One that returns a pointer returns NULL and sets errno. None calls back into
 * Go. */
#ifndef SHIM_H
#define SHIM_H

#include <errno.h>
#include <stdint.h>
#include "abi/vb_rdmacm.h"

/* SHIM_VERBS lists the functions of libibverbs: X(needed, version, result, name, arguments). The
 * version is the one to look up: some names exist twice, and the older one has another meaning. A
 * function that is not needed may be missing. */
#define SHIM_VERBS(X)                                                                                  \
	X(1, "IBVERBS_1.1", struct vb_device **, ibv_get_device_list, (int *n))                         \
	X(1, "IBVERBS_1.1", void, ibv_free_device_list, (struct vb_device **list))                      \
	X(1, "IBVERBS_1.1", const char *, ibv_get_device_name, (struct vb_device *d))                   \
	X(1, "IBVERBS_1.1", uint64_t, ibv_get_device_guid, (struct vb_device *d))                       \
	X(1, "IBVERBS_1.1", struct vb_context *, ibv_open_device, (struct vb_device *d))                \
	X(1, "IBVERBS_1.1", int, ibv_close_device, (struct vb_context *c))                              \
	X(1, "IBVERBS_1.1", int, ibv_get_async_event, (struct vb_context *c, struct vb_async_event *e)) \
	X(1, "IBVERBS_1.1", void, ibv_ack_async_event, (struct vb_async_event *e))                      \
	X(1, "IBVERBS_1.1", int, ibv_query_device, (struct vb_context *c, struct vb_device_attr *a))    \
	X(1, "IBVERBS_1.1", int, ibv_query_port,                                                        \
	  (struct vb_context *c, uint8_t port, struct vb_port_attr *a))                                 \
	X(1, "IBVERBS_1.1", int, ibv_query_gid,                                                         \
	  (struct vb_context *c, uint8_t port, int index, union vb_gid *g))                             \
	X(1, "IBVERBS_1.1", int, ibv_query_pkey,                                                        \
	  (struct vb_context *c, uint8_t port, int index, uint16_t *key))                               \
	X(1, "IBVERBS_1.1", struct vb_pd *, ibv_alloc_pd, (struct vb_context *c))                       \
	X(1, "IBVERBS_1.1", int, ibv_dealloc_pd, (struct vb_pd *p))                                     \
	X(1, "IBVERBS_1.1", struct vb_mr *, ibv_reg_mr,                                                 \
	  (struct vb_pd *p, void *addr, size_t length, int access))                                     \
	X(1, "IBVERBS_1.1", int, ibv_dereg_mr, (struct vb_mr *m))                                       \
	X(1, "IBVERBS_1.0", struct vb_comp_channel *, ibv_create_comp_channel, (struct vb_context *c))  \
	X(1, "IBVERBS_1.0", int, ibv_destroy_comp_channel, (struct vb_comp_channel *ch))                \
	X(1, "IBVERBS_1.1", struct vb_cq *, ibv_create_cq,                                              \
	  (struct vb_context *c, int cqe, void *ctx, struct vb_comp_channel *ch, int vector))           \
	X(1, "IBVERBS_1.1", int, ibv_resize_cq, (struct vb_cq *cq, int cqe))                            \
	X(1, "IBVERBS_1.1", int, ibv_destroy_cq, (struct vb_cq *cq))                                    \
	X(1, "IBVERBS_1.1", int, ibv_get_cq_event,                                                      \
	  (struct vb_comp_channel *ch, struct vb_cq **cq, void **ctx))                                  \
	X(1, "IBVERBS_1.1", void, ibv_ack_cq_events, (struct vb_cq *cq, unsigned int n))                \
	X(1, "IBVERBS_1.1", struct vb_srq *, ibv_create_srq,                                            \
	  (struct vb_pd *p, struct vb_srq_init_attr *a))                                                \
	X(1, "IBVERBS_1.1", int, ibv_modify_srq, (struct vb_srq *s, struct vb_srq_attr *a, int mask))   \
	X(1, "IBVERBS_1.1", int, ibv_query_srq, (struct vb_srq *s, struct vb_srq_attr *a))              \
	X(1, "IBVERBS_1.1", int, ibv_destroy_srq, (struct vb_srq *s))                                   \
	X(1, "IBVERBS_1.1", struct vb_qp *, ibv_create_qp,                                              \
	  (struct vb_pd *p, struct vb_qp_init_attr *a))                                                 \
	X(1, "IBVERBS_1.1", int, ibv_query_qp,                                                          \
	  (struct vb_qp *q, struct vb_qp_attr *a, int mask, struct vb_qp_init_attr *i))                 \
	X(1, "IBVERBS_1.1", int, ibv_modify_qp, (struct vb_qp *q, struct vb_qp_attr *a, int mask))      \
	X(1, "IBVERBS_1.1", int, ibv_destroy_qp, (struct vb_qp *q))                                     \
	X(1, "IBVERBS_1.1", struct vb_ah *, ibv_create_ah, (struct vb_pd *p, struct vb_ah_attr *a))     \
	X(1, "IBVERBS_1.1", int, ibv_destroy_ah, (struct vb_ah *a))                                     \
	X(1, "IBVERBS_1.1", int, ibv_attach_mcast,                                                      \
	  (struct vb_qp *q, const union vb_gid *g, uint16_t lid))                                       \
	X(1, "IBVERBS_1.1", int, ibv_detach_mcast,                                                      \
	  (struct vb_qp *q, const union vb_gid *g, uint16_t lid))                                       \
	X(0, "IBVERBS_1.1", int, ibv_fork_init, (void))                                                 \
	X(0, "IBVERBS_1.10", int, ibv_query_ece, (struct vb_qp *q, struct vb_ece *e))                   \
	X(0, "IBVERBS_1.10", int, ibv_set_ece, (struct vb_qp *q, struct vb_ece *e))                     \
	X(0, "IBVERBS_1.12", struct vb_mr *, ibv_reg_dmabuf_mr,                                         \
	  (struct vb_pd *p, uint64_t offset, size_t length, uint64_t iova, int fd, int access))         \
	X(0, "IBVERBS_1.13", vb_enum, ibv_is_fork_initialized, (void))                                  \
	X(0, "IBVERBS_1.14", int, ibv_query_qp_data_in_order,                                           \
	  (struct vb_qp *q, vb_enum op, uint32_t flags))                                                \
	X(0, "IBVERBS_1.6", struct vb_qp_ex *, ibv_qp_to_qp_ex, (struct vb_qp *q))                      \
	X(0, "IBVERBS_1.8", struct vb_mr *, ibv_reg_mr_iova2,                                           \
	  (struct vb_pd *p, void *addr, size_t length, uint64_t iova, unsigned int access))             \
	X(0, "IBVERBS_1.11", int, _ibv_query_gid_ex,                                                    \
	  (struct vb_context *c, uint32_t port, uint32_t index, struct vb_gid_entry *e,                 \
	   uint32_t flags, size_t size))                                                                \
	X(0, "IBVERBS_1.11", ssize_t, _ibv_query_gid_table,                                             \
	  (struct vb_context *c, struct vb_gid_entry *e, size_t n, uint32_t flags, size_t size))

/* SHIM_RDMACM lists the functions of librdmacm likewise. */
#define SHIM_RDMACM(X)                                                                                 \
	X(1, "RDMACM_1.0", struct vb_rdma_event_channel *, rdma_create_event_channel, (void))           \
	X(1, "RDMACM_1.0", void, rdma_destroy_event_channel, (struct vb_rdma_event_channel *ch))        \
	X(1, "RDMACM_1.0", int, rdma_create_id,                                                         \
	  (struct vb_rdma_event_channel *ch, struct vb_rdma_cm_id **id, void *ctx, vb_enum ps))         \
	X(1, "RDMACM_1.0", int, rdma_create_ep,                                                         \
	  (struct vb_rdma_cm_id **id, struct vb_rdma_addrinfo *res, struct vb_pd *pd,                   \
	   struct vb_qp_init_attr *init))                                                               \
	X(1, "RDMACM_1.0", int, rdma_destroy_id, (struct vb_rdma_cm_id *id))                            \
	X(1, "RDMACM_1.0", int, rdma_bind_addr, (struct vb_rdma_cm_id *id, struct sockaddr *a))         \
	X(1, "RDMACM_1.0", int, rdma_resolve_addr,                                                      \
	  (struct vb_rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int ms))               \
	X(1, "RDMACM_1.0", int, rdma_resolve_route, (struct vb_rdma_cm_id *id, int ms))                 \
	X(1, "RDMACM_1.0", int, rdma_listen, (struct vb_rdma_cm_id *id, int backlog))                   \
	X(1, "RDMACM_1.0", int, rdma_connect,                                                           \
	  (struct vb_rdma_cm_id *id, struct vb_rdma_conn_param *p))                                     \
	X(1, "RDMACM_1.0", int, rdma_accept,                                                            \
	  (struct vb_rdma_cm_id *id, struct vb_rdma_conn_param *p))                                     \
	X(1, "RDMACM_1.0", int, rdma_reject,                                                            \
	  (struct vb_rdma_cm_id *id, const void *data, uint8_t n))                                      \
	X(1, "RDMACM_1.0", int, rdma_notify, (struct vb_rdma_cm_id *id, vb_enum event))                 \
	X(1, "RDMACM_1.0", int, rdma_disconnect, (struct vb_rdma_cm_id *id))                            \
	X(1, "RDMACM_1.0", int, rdma_get_cm_event,                                                      \
	  (struct vb_rdma_event_channel *ch, struct vb_rdma_cm_event **e))                              \
	X(1, "RDMACM_1.0", int, rdma_ack_cm_event, (struct vb_rdma_cm_event *e))                        \
	X(1, "RDMACM_1.0", int, rdma_join_multicast,                                                    \
	  (struct vb_rdma_cm_id *id, struct sockaddr *a, void *ctx))                                    \
	X(1, "RDMACM_1.0", int, rdma_leave_multicast, (struct vb_rdma_cm_id *id, struct sockaddr *a))   \
	X(1, "RDMACM_1.0", int, rdma_migrate_id,                                                        \
	  (struct vb_rdma_cm_id *id, struct vb_rdma_event_channel *ch))                                 \
	X(1, "RDMACM_1.0", int, rdma_set_option,                                                        \
	  (struct vb_rdma_cm_id *id, int level, int name, void *value, size_t n))                       \
	X(0, "RDMACM_1.1", int, rdma_join_multicast_ex,                                                 \
	  (struct vb_rdma_cm_id *id, struct vb_rdma_cm_join_mc_attr_ex *a, void *ctx))                  \
	X(0, "RDMACM_1.3", int, rdma_set_local_ece, (struct vb_rdma_cm_id *id, struct vb_ece *e))       \
	X(0, "RDMACM_1.3", int, rdma_get_remote_ece, (struct vb_rdma_cm_id *id, struct vb_ece *e))      \
	X(0, "RDMACM_1.3", int, rdma_reject_ece,                                                        \
	  (struct vb_rdma_cm_id *id, const void *data, uint8_t n))                                      \
	X(1, "RDMACM_1.2", int, rdma_establish, (struct vb_rdma_cm_id *id))                             \
	X(1, "RDMACM_1.2", int, rdma_init_qp_attr,                                                      \
	  (struct vb_rdma_cm_id *id, struct vb_qp_attr *a, int *mask))

#define SHIM_FIELD(needed, version, result, name, args) result(*name) args;

/* A table holds the functions of one loaded library. It is filled once, before it is published,
 * and never changed or freed: device code that runs in threads of its own cannot be unloaded. */
struct shim_verbs {
	void *handle;
	SHIM_VERBS(SHIM_FIELD)
};

struct shim_cm {
	void *handle;
	SHIM_RDMACM(SHIM_FIELD)
};

/* The results of loading. */
enum {
	SHIM_LOADED = 0,
	SHIM_NO_LIBRARY = 1, /* what: the linker's message */
	SHIM_NO_SYMBOL = 2   /* what: the symbol and, after a space, its version */
};

enum { SHIM_WHAT = 512 };

int shim_load_verbs(const char *path, struct shim_verbs *t, char what[SHIM_WHAT]);
int shim_load_cm(const char *path, struct shim_cm *t, char what[SHIM_WHAT]);

/* shim_errno makes the result of a call uniform: libraries have returned 0 or an errno, -1 with
 * errno set, and the negative errno (semantics 23). */
static inline int shim_errno(int r)
{
	if (r == 0)
		return 0;
	if (r == -1)
		return errno > 0 ? errno : EIO;
	return r < 0 ? -r : r;
}

#endif
