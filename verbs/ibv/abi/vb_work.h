/* Work requests, completions and events; see vb_verbs.h. The first four have
 * the layout of verbs.SGE, verbs.SendWR, verbs.RecvWR and verbs.WC. */
#ifndef VB_WORK_H
#define VB_WORK_H

#include "vb_attrs.h"

struct vb_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct vb_mw_bind_info {
	struct vb_mr *mr;
	uint64_t addr;
	uint64_t length;
	unsigned int mw_access_flags;
};

struct vb_mw_bind {
	uint64_t wr_id;
	unsigned int send_flags;
	struct vb_mw_bind_info bind_info;
};

struct vb_data_buf {
	void *addr;
	size_t length;
};

struct vb_send_wr {
	uint64_t wr_id;
	struct vb_send_wr *next;
	struct vb_sge *sg_list;
	int num_sge;
	vb_enum opcode;
	unsigned int send_flags;
	uint32_t imm_data; /* big-endian; with _INV the rkey in host order */
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct vb_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
		uint64_t words[4]; /* verbs.SendWR: RemoteAddr, W1, W2, W3 */
	} wr;
	union {
		struct {
			uint32_t remote_srqn;
		} xrc;
	} qp_type;
	union {
		struct {
			struct vb_mw *mw;
			uint32_t rkey;
			struct vb_mw_bind_info bind_info;
		} bind_mw;
		struct {
			void *hdr;
			uint16_t hdr_sz;
			uint16_t mss;
		} tso;
	};
};

struct vb_recv_wr {
	uint64_t wr_id;
	struct vb_recv_wr *next;
	struct vb_sge *sg_list;
	int num_sge;
};

struct vb_wc {
	uint64_t wr_id;
	vb_enum status;
	vb_enum opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data; /* big-endian; with WITH_INV the rkey in host order */
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

struct vb_async_event {
	union {
		struct vb_cq *cq;
		struct vb_qp *qp;
		struct vb_srq *srq;
		int port_num;
	} element;
	vb_enum event_type;
};

#endif
