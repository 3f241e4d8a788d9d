/* Our own declarations of the stable ABI of libibverbs.so.1, as far as this
 * library uses it: facts of layout, taken from rdma-core v44 to v64
 * (libibverbs/verbs.h). Nothing of the system's headers is needed to compile.
 *
 * A name here is the system's with vb_ for ibv_ (vb_verbs_context for
 * verbs_context), so that both can stand in one translation unit; the members
 * are named alike. TestABI compares every size, offset and value.
 */
#ifndef VB_VERBS_H
#define VB_VERBS_H

#include "vb_objects.h"

struct vb_device {
	void *_ops[2]; /* never used */
	vb_enum node_type;
	vb_enum transport_type;
	char name[VB_SYSFS_NAME_MAX];
	char dev_name[VB_SYSFS_NAME_MAX];
	char dev_path[VB_SYSFS_PATH_MAX];
	char ibdev_path[VB_SYSFS_PATH_MAX];
};

/* What the system's headers call from inline functions. The other places of the
 * table are history and must not be called. */
struct vb_context_ops {
	void *_compat_query_device;
	void *_compat_query_port;
	void *_compat_alloc_pd;
	void *_compat_dealloc_pd;
	void *_compat_reg_mr;
	void *_compat_rereg_mr;
	void *_compat_dereg_mr;
	struct vb_mw *(*alloc_mw)(struct vb_pd *pd, vb_enum type);
	int (*bind_mw)(struct vb_qp *qp, struct vb_mw *mw,
		       struct vb_mw_bind *mw_bind);
	int (*dealloc_mw)(struct vb_mw *mw);
	void *_compat_create_cq;
	int (*poll_cq)(struct vb_cq *cq, int num_entries, struct vb_wc *wc);
	int (*req_notify_cq)(struct vb_cq *cq, int solicited_only);
	void *_compat_cq_event;
	void *_compat_resize_cq;
	void *_compat_destroy_cq;
	void *_compat_create_srq;
	void *_compat_modify_srq;
	void *_compat_query_srq;
	void *_compat_destroy_srq;
	int (*post_srq_recv)(struct vb_srq *srq, struct vb_recv_wr *recv_wr,
			     struct vb_recv_wr **bad_recv_wr);
	void *_compat_create_qp;
	void *_compat_query_qp;
	void *_compat_modify_qp;
	void *_compat_destroy_qp;
	int (*post_send)(struct vb_qp *qp, struct vb_send_wr *wr,
			 struct vb_send_wr **bad_wr);
	int (*post_recv)(struct vb_qp *qp, struct vb_recv_wr *wr,
			 struct vb_recv_wr **bad_wr);
	void *_compat_create_ah;
	void *_compat_destroy_ah;
	void *_compat_attach_mcast;
	void *_compat_detach_mcast;
	void *_compat_async_event;
};

struct vb_context {
	struct vb_device *device;
	struct vb_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat; /* VB_ABI_IS_EXTENDED: a vb_verbs_context is around */
};

#define VB_ABI_IS_EXTENDED ((void *)UINTPTR_MAX)

/* The extended context stands around the plain one and grows at its front:
 * members are found from the end, and only those within sz are there. What is
 * not used here is a void *. The oldest supported library begins at query_port.
 */
struct vb_verbs_context {
	int (*query_port)(struct vb_context *context, uint8_t port_num,
			  struct vb_port_attr *port_attr, size_t port_attr_len);
	int (*advise_mr)(struct vb_pd *pd, vb_enum advice, uint32_t flags,
			 struct vb_sge *sg_list, uint32_t num_sges);
	void *alloc_null_mr;
	void *read_counters;
	void *attach_counters_point_flow;
	void *create_counters;
	void *destroy_counters;
	void *reg_dm_mr;
	void *alloc_dm;
	void *free_dm;
	void *modify_flow_action_esp;
	void *destroy_flow_action;
	void *create_flow_action_esp;
	void *modify_qp_rate_limit;
	struct vb_pd *(*alloc_parent_domain)(struct vb_context *context,
					     struct vb_parent_domain_init_attr *attr);
	int (*dealloc_td)(struct vb_td *td);
	struct vb_td *(*alloc_td)(struct vb_context *context,
				  struct vb_td_init_attr *init_attr);
	void *modify_cq;
	void *post_srq_ops;
	void *destroy_rwq_ind_table;
	void *create_rwq_ind_table;
	void *destroy_wq;
	void *modify_wq;
	void *create_wq;
	void *query_rt_values;
	struct vb_cq_ex *(*create_cq_ex)(struct vb_context *context,
					 struct vb_cq_init_attr_ex *init_attr);
	void *priv;
	int (*query_device_ex)(struct vb_context *context,
			       const struct vb_query_device_ex_input *input,
			       struct vb_device_attr_ex *attr,
			       size_t attr_size);
	void *ibv_destroy_flow;
	void *ABI_placeholder2;
	void *ibv_create_flow;
	void *ABI_placeholder1;
	struct vb_qp *(*open_qp)(struct vb_context *context,
				 struct vb_qp_open_attr *attr);
	struct vb_qp *(*create_qp_ex)(struct vb_context *context,
				      struct vb_qp_init_attr_ex *attr);
	int (*get_srq_num)(struct vb_srq *srq, uint32_t *srq_num);
	struct vb_srq *(*create_srq_ex)(struct vb_context *context,
					struct vb_srq_init_attr_ex *attr);
	struct vb_xrcd *(*open_xrcd)(struct vb_context *context,
				     struct vb_xrcd_init_attr *attr);
	int (*close_xrcd)(struct vb_xrcd *xrcd);
	uint64_t _ABI_placeholder3;
	size_t sz; /* bytes of the whole, as the library knows it */
	struct vb_context context;
};

/* vb_verbs_ctx is the extended context around c; NULL when there is none. */
static inline struct vb_verbs_context *vb_verbs_ctx(struct vb_context *c)
{
	if (c->abi_compat != VB_ABI_IS_EXTENDED)
		return NULL;
	return (struct vb_verbs_context *)((uintptr_t)c -
		offsetof(struct vb_verbs_context, context));
}

/* VB_CTX_OP is the extended context around c if it has the member op, set; NULL
 * otherwise. A member further from the end than sz must not even be read. */
#define VB_CTX_OP(c, op)                                                      \
	({                                                                    \
		struct vb_verbs_context *v_ = vb_verbs_ctx(c);                \
		(v_ && v_->sz >= sizeof(*v_) - offsetof(struct vb_verbs_context, op) && \
		 v_->op) ? v_ : NULL;                                         \
	})

#endif
