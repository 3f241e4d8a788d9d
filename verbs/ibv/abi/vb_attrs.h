/* Attributes that calls take and give: devices, ports, queue pairs, shared
 * receive queues, address handles. See vb_verbs.h. */
#ifndef VB_ATTRS_H
#define VB_ATTRS_H

#include <stddef.h>
#include <stdint.h>
#include "vb_enums.h"

struct vb_context;
struct vb_pd;
struct vb_td;
struct vb_mr;
struct vb_mw;
struct vb_cq;
struct vb_qp;
struct vb_srq;
struct vb_ah;
struct vb_xrcd;
struct vb_comp_channel;

union vb_gid {
	uint8_t raw[16];
	uint64_t words[2]; /* big-endian: subnet prefix, interface id */
};

struct vb_gid_entry {
	union vb_gid gid;
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t ndev_ifindex;
};

struct vb_device_attr {
	char fw_ver[64];
	uint64_t node_guid;	 /* big-endian */
	uint64_t sys_image_guid; /* big-endian */
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	vb_enum atomic_cap;
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_fmr;
	int max_map_per_fmr;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

struct vb_odp_caps {
	uint64_t general_caps;
	struct {
		uint32_t rc_odp_caps;
		uint32_t uc_odp_caps;
		uint32_t ud_odp_caps;
	} per_transport_caps;
};

struct vb_tso_caps {
	uint32_t max_tso;
	uint32_t supported_qpts;
};

struct vb_rss_caps {
	uint32_t supported_qpts;
	uint32_t max_rwq_indirection_tables;
	uint32_t max_rwq_indirection_table_size;
	uint64_t rx_hash_fields_mask;
	uint8_t rx_hash_function;
};

struct vb_packet_pacing_caps {
	uint32_t qp_rate_limit_min;
	uint32_t qp_rate_limit_max;
	uint32_t supported_qpts;
};

struct vb_tm_caps {
	uint32_t max_rndv_hdr_size;
	uint32_t max_num_tags;
	uint32_t flags;
	uint32_t max_ops;
	uint32_t max_sge;
};

struct vb_cq_moderation_caps {
	uint16_t max_cq_count;
	uint16_t max_cq_period;
};

struct vb_pci_atomic_caps {
	uint16_t fetch_add;
	uint16_t swap;
	uint16_t compare_swap;
};

struct vb_query_device_ex_input {
	uint32_t comp_mask;
};

/* As far as every supported library fills it; query_device_ex is told the size.
 */
struct vb_device_attr_ex {
	struct vb_device_attr orig_attr;
	uint32_t comp_mask;
	struct vb_odp_caps odp_caps;
	uint64_t completion_timestamp_mask;
	uint64_t hca_core_clock;
	uint64_t device_cap_flags_ex;
	struct vb_tso_caps tso_caps;
	struct vb_rss_caps rss_caps;
	uint32_t max_wq_type_rq;
	struct vb_packet_pacing_caps packet_pacing_caps;
	uint32_t raw_packet_caps;
	struct vb_tm_caps tm_caps;
	struct vb_cq_moderation_caps cq_mod_caps;
	uint64_t max_dm_size;
	struct vb_pci_atomic_caps pci_atomic_caps;
	uint32_t xrc_odp_caps;
};

struct vb_td_init_attr {
	uint32_t comp_mask;
};

struct vb_parent_domain_init_attr {
	struct vb_pd *pd;
	struct vb_td *td;
	uint32_t comp_mask;
	void *(*alloc)(struct vb_pd *pd, void *pd_context, size_t size,
		       size_t alignment, uint64_t resource_type);
	void (*free)(struct vb_pd *pd, void *pd_context, void *ptr,
		     uint64_t resource_type);
	void *pd_context;
};

struct vb_ece {
	uint32_t vendor_id;
	uint32_t options;
	uint32_t comp_mask;
};

/* The oldest form of struct ibv_port_attr that has all that is read here;
 * query_port of verbs_context is told the size. The exported ibv_query_port
 * writes only what stands before port_cap_flags2. */
struct vb_port_attr {
	vb_enum state;
	vb_enum max_mtu;
	vb_enum active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint16_t port_cap_flags2;
};

struct vb_global_route {
	union vb_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
};

struct vb_ah_attr {
	struct vb_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

struct vb_srq_attr {
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t srq_limit;
};

struct vb_srq_init_attr {
	void *srq_context;
	struct vb_srq_attr attr;
};

struct vb_tm_cap {
	uint32_t max_num_tags;
	uint32_t max_ops;
};

struct vb_srq_init_attr_ex {
	void *srq_context;
	struct vb_srq_attr attr;
	uint32_t comp_mask;
	vb_enum srq_type;
	struct vb_pd *pd;
	struct vb_xrcd *xrcd;
	struct vb_cq *cq;
	struct vb_tm_cap tm_cap;
};

struct vb_xrcd_init_attr {
	uint32_t comp_mask;
	int fd;
	int oflags;
};

struct vb_cq_init_attr_ex {
	uint32_t cqe;
	void *cq_context;
	struct vb_comp_channel *channel;
	uint32_t comp_vector;
	uint64_t wc_flags;
	uint32_t comp_mask;
	uint32_t flags;
	struct vb_pd *parent_domain;
};

struct vb_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct vb_qp_init_attr {
	void *qp_context;
	struct vb_cq *send_cq;
	struct vb_cq *recv_cq;
	struct vb_srq *srq;
	struct vb_qp_cap cap;
	vb_enum qp_type;
	int sq_sig_all;
};

struct vb_rx_hash_conf {
	uint8_t rx_hash_function;
	uint8_t rx_hash_key_len;
	uint8_t *rx_hash_key;
	uint64_t rx_hash_fields_mask;
};

struct vb_qp_init_attr_ex {
	void *qp_context;
	struct vb_cq *send_cq;
	struct vb_cq *recv_cq;
	struct vb_srq *srq;
	struct vb_qp_cap cap;
	vb_enum qp_type;
	int sq_sig_all;
	uint32_t comp_mask;
	struct vb_pd *pd;
	struct vb_xrcd *xrcd;
	uint32_t create_flags;
	uint16_t max_tso_header;
	void *rwq_ind_tbl;
	struct vb_rx_hash_conf rx_hash_conf;
	uint32_t source_qpn;
	uint64_t send_ops_flags;
};

struct vb_qp_open_attr {
	uint32_t comp_mask;
	uint32_t qp_num;
	struct vb_xrcd *xrcd;
	void *qp_context;
	vb_enum qp_type;
};

struct vb_qp_attr {
	vb_enum qp_state;
	vb_enum cur_qp_state;
	vb_enum path_mtu;
	vb_enum path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	struct vb_qp_cap cap;
	struct vb_ah_attr ah_attr;
	struct vb_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

#endif
