/* Our own declarations of the stable ABI of librdmacm.so.1, as far as this
 * library uses it (rdma-core v44 to v64, librdmacm/rdma_cma.h). A name here is
 * the system's with vb_ or VB_ in front; see vb_verbs.h.
 */
#ifndef VB_RDMACM_H
#define VB_RDMACM_H

#include <netinet/in.h>
#include <sys/socket.h>
#include "vb_verbs.h"

enum {
	VB_RDMA_CM_EVENT_ADDR_RESOLVED = 0,
	VB_RDMA_CM_EVENT_ADDR_ERROR = 1,
	VB_RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
	VB_RDMA_CM_EVENT_ROUTE_ERROR = 3,
	VB_RDMA_CM_EVENT_CONNECT_REQUEST = 4,
	VB_RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
	VB_RDMA_CM_EVENT_CONNECT_ERROR = 6,
	VB_RDMA_CM_EVENT_UNREACHABLE = 7,
	VB_RDMA_CM_EVENT_REJECTED = 8,
	VB_RDMA_CM_EVENT_ESTABLISHED = 9,
	VB_RDMA_CM_EVENT_DISCONNECTED = 10,
	VB_RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
	VB_RDMA_CM_EVENT_MULTICAST_JOIN = 12,
	VB_RDMA_CM_EVENT_MULTICAST_ERROR = 13,
	VB_RDMA_CM_EVENT_ADDR_CHANGE = 14,
	VB_RDMA_CM_EVENT_TIMEWAIT_EXIT = 15
};

enum {
	VB_RDMA_PS_IPOIB = 0x0002,
	VB_RDMA_PS_TCP = 0x0106,
	VB_RDMA_PS_UDP = 0x0111,
	VB_RDMA_PS_IB = 0x013F
};

enum {
	VB_RDMA_OPTION_ID = 0,
	VB_RDMA_OPTION_ID_TOS = 0, /* the level and this name are both 0 */
	VB_RDMA_OPTION_ID_REUSEADDR = 1,
	VB_RDMA_OPTION_ID_AFONLY = 2,
	VB_RDMA_OPTION_ID_ACK_TIMEOUT = 3
};

enum {
	VB_RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1 << 0,
	VB_RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1,
	VB_RDMA_CM_JOIN_MC_ATTR_RESERVED = 1 << 2
};

enum {
	VB_RDMA_MC_JOIN_FLAG_FULLMEMBER = 0,
	VB_RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1,
	VB_RDMA_MC_JOIN_FLAG_RESERVED = 2
};

struct vb_rdma_cm_join_mc_attr_ex {
	uint32_t comp_mask;
	uint32_t join_flags;
	struct sockaddr *addr;
};

enum {
	VB_RAI_PASSIVE = 0x00000001
};

struct vb_rdma_addrinfo {
	int ai_flags;
	int ai_family;
	int ai_qp_type;
	int ai_port_space;
	socklen_t ai_src_len;
	socklen_t ai_dst_len;
	struct sockaddr *ai_src_addr;
	struct sockaddr *ai_dst_addr;
	char *ai_src_canonname;
	char *ai_dst_canonname;
	size_t ai_route_len;
	void *ai_route;
	size_t ai_connect_len;
	void *ai_connect;
	struct vb_rdma_addrinfo *ai_next;
};

enum {
	VB_AF_IB = 27
};

/* The fields but the first and the last are big-endian. */
struct vb_sockaddr_ib {
	unsigned short sib_family;
	uint16_t sib_pkey;
	uint32_t sib_flowinfo;
	union vb_gid sib_addr;
	uint64_t sib_sid;
	uint64_t sib_sid_mask;
	uint64_t sib_scope_id;
};

struct vb_rdma_ib_addr {
	union vb_gid sgid;
	union vb_gid dgid;
	uint16_t pkey; /* big-endian */
};

struct vb_rdma_addr {
	union {
		struct sockaddr src_addr;
		struct sockaddr_in src_sin;
		struct sockaddr_in6 src_sin6;
		struct sockaddr_storage src_storage;
	};
	union {
		struct sockaddr dst_addr;
		struct sockaddr_in dst_sin;
		struct sockaddr_in6 dst_sin6;
		struct sockaddr_storage dst_storage;
	};
	union {
		struct vb_rdma_ib_addr ibaddr;
	} addr;
};

struct vb_rdma_route {
	struct vb_rdma_addr addr;
	void *path_rec;
	int num_paths;
};

struct vb_rdma_event_channel {
	int fd;
};

struct vb_rdma_cm_event;

struct vb_rdma_cm_id {
	struct vb_context *verbs;
	struct vb_rdma_event_channel *channel;
	void *context;
	struct vb_qp *qp;
	struct vb_rdma_route route;
	vb_enum ps;
	uint8_t port_num;
	struct vb_rdma_cm_event *event;
	struct vb_comp_channel *send_cq_channel;
	struct vb_cq *send_cq;
	struct vb_comp_channel *recv_cq_channel;
	struct vb_cq *recv_cq;
	struct vb_srq *srq;
	struct vb_pd *pd;
	vb_enum qp_type;
};

struct vb_rdma_conn_param {
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;	 /* this and qp_num: ignored when the id has a QP */
	uint32_t qp_num;
};

struct vb_rdma_ud_param {
	const void *private_data;
	uint8_t private_data_len;
	struct vb_ah_attr ah_attr;
	uint32_t qp_num;
	uint32_t qkey;
};

struct vb_rdma_cm_event {
	struct vb_rdma_cm_id *id;
	struct vb_rdma_cm_id *listen_id;
	vb_enum event;
	int status;
	union {
		struct vb_rdma_conn_param conn;
		struct vb_rdma_ud_param ud;
	} param;
};

#endif
