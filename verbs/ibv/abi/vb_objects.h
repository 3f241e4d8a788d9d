/* The objects of libibverbs as far as they are public; see vb_verbs.h. */
#ifndef VB_OBJECTS_H
#define VB_OBJECTS_H

#include <pthread.h>
#include "vb_work.h"

struct vb_pd {
	struct vb_context *context;
	uint32_t handle;
};

struct vb_td {
	struct vb_context *context;
};

struct vb_mr {
	struct vb_context *context;
	struct vb_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct vb_mw {
	struct vb_context *context;
	struct vb_pd *pd;
	uint32_t rkey;
	uint32_t handle;
	vb_enum type;
};

struct vb_ah {
	struct vb_context *context;
	struct vb_pd *pd;
	uint32_t handle;
};

struct vb_xrcd {
	struct vb_context *context;
};

struct vb_comp_channel {
	struct vb_context *context;
	int fd;
	int refcnt;
};

struct vb_srq {
	struct vb_context *context;
	void *srq_context;
	struct vb_pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct vb_cq {
	struct vb_context *context;
	struct vb_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed;
	uint32_t async_events_completed;
};

struct vb_poll_cq_attr {
	uint32_t comp_mask;
};

struct vb_wc_tm_info {
	uint64_t tag;
	uint32_t priv;
};

/* Begins as a vb_cq. status and wr_id are those of the completion polled; the
 * readers give the rest of it. Only the readers asked for by wc_flags at
 * creation, opcode and vendor_err are there. */
struct vb_cq_ex {
	struct vb_context *context;
	struct vb_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed;
	uint32_t async_events_completed;
	uint32_t comp_mask;
	vb_enum status;
	uint64_t wr_id;
	int (*start_poll)(struct vb_cq_ex *cq, struct vb_poll_cq_attr *attr);
	int (*next_poll)(struct vb_cq_ex *cq);
	void (*end_poll)(struct vb_cq_ex *cq);
	vb_enum (*read_opcode)(struct vb_cq_ex *cq);
	uint32_t (*read_vendor_err)(struct vb_cq_ex *cq);
	uint32_t (*read_byte_len)(struct vb_cq_ex *cq);
	uint32_t (*read_imm_data)(struct vb_cq_ex *cq);
	uint32_t (*read_qp_num)(struct vb_cq_ex *cq);
	uint32_t (*read_src_qp)(struct vb_cq_ex *cq);
	unsigned int (*read_wc_flags)(struct vb_cq_ex *cq);
	uint32_t (*read_slid)(struct vb_cq_ex *cq);
	uint8_t (*read_sl)(struct vb_cq_ex *cq);
	uint8_t (*read_dlid_path_bits)(struct vb_cq_ex *cq);
	uint64_t (*read_completion_ts)(struct vb_cq_ex *cq);
	uint16_t (*read_cvlan)(struct vb_cq_ex *cq);
	uint32_t (*read_flow_tag)(struct vb_cq_ex *cq);
	void (*read_tm_info)(struct vb_cq_ex *cq, struct vb_wc_tm_info *tm);
	uint64_t (*read_completion_wallclock_ns)(struct vb_cq_ex *cq);
};

struct vb_qp {
	struct vb_context *context;
	void *qp_context;
	struct vb_pd *pd;
	struct vb_cq *send_cq;
	struct vb_cq *recv_cq;
	struct vb_srq *srq;
	uint32_t handle;
	uint32_t qp_num;
	vb_enum state;
	vb_enum qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

/* Begins as a vb_qp, and vb_qp_to_qp_ex of it. A function is there only if its
 * operation was in send_ops_flags at creation; the last two exist only since
 * v46, and may be looked at only after creation with their flags succeeded. */
struct vb_qp_ex {
	struct vb_qp qp_base;
	uint64_t comp_mask;
	uint64_t wr_id;
	unsigned int wr_flags;
	void (*wr_atomic_cmp_swp)(struct vb_qp_ex *qp, uint32_t rkey,
				  uint64_t remote_addr, uint64_t compare,
				  uint64_t swap);
	void (*wr_atomic_fetch_add)(struct vb_qp_ex *qp, uint32_t rkey,
				    uint64_t remote_addr, uint64_t add);
	void (*wr_bind_mw)(struct vb_qp_ex *qp, struct vb_mw *mw, uint32_t rkey,
			   const struct vb_mw_bind_info *bind_info);
	void (*wr_local_inv)(struct vb_qp_ex *qp, uint32_t invalidate_rkey);
	void (*wr_rdma_read)(struct vb_qp_ex *qp, uint32_t rkey,
			     uint64_t remote_addr);
	void (*wr_rdma_write)(struct vb_qp_ex *qp, uint32_t rkey,
			      uint64_t remote_addr);
	void (*wr_rdma_write_imm)(struct vb_qp_ex *qp, uint32_t rkey,
				  uint64_t remote_addr, uint32_t imm_data);
	void (*wr_send)(struct vb_qp_ex *qp);
	void (*wr_send_imm)(struct vb_qp_ex *qp, uint32_t imm_data);
	void (*wr_send_inv)(struct vb_qp_ex *qp, uint32_t invalidate_rkey);
	void (*wr_send_tso)(struct vb_qp_ex *qp, void *hdr, uint16_t hdr_sz,
			    uint16_t mss);
	void (*wr_set_ud_addr)(struct vb_qp_ex *qp, struct vb_ah *ah,
			       uint32_t remote_qpn, uint32_t remote_qkey);
	void (*wr_set_xrc_srqn)(struct vb_qp_ex *qp, uint32_t remote_srqn);
	void (*wr_set_inline_data)(struct vb_qp_ex *qp, void *addr,
				   size_t length);
	void (*wr_set_inline_data_list)(struct vb_qp_ex *qp, size_t num_buf,
					const struct vb_data_buf *buf_list);
	void (*wr_set_sge)(struct vb_qp_ex *qp, uint32_t lkey, uint64_t addr,
			   uint32_t length);
	void (*wr_set_sge_list)(struct vb_qp_ex *qp, size_t num_sge,
				const struct vb_sge *sg_list);
	void (*wr_start)(struct vb_qp_ex *qp);
	int (*wr_complete)(struct vb_qp_ex *qp);
	void (*wr_abort)(struct vb_qp_ex *qp);
	void (*wr_atomic_write)(struct vb_qp_ex *qp, uint32_t rkey, /* since v46 */
				uint64_t remote_addr, const void *atomic_wr);
	void (*wr_flush)(struct vb_qp_ex *qp, uint32_t rkey, /* since v46 */
			 uint64_t remote_addr, size_t len, uint8_t type,
			 uint8_t level);
};

#endif
