/* mlx5 on Ethernet: ConnectX-4 to ConnectX-7, BlueField. */
#include <stdio.h>
#include "nd.h"

enum {
	BLOCK = 64,		/* MLX5_SEND_WQE_BB */
	MAX_BLOCKS = 1 << 15,	/* max_send_wqebb */
	MAX_REQUEST = 1024,	/* max_sq_desc_sz, in bytes; max_rq_desc_sz is half of it */
	MAX_SGE = 30,
	CTRL = 16, RADDR = 16, ATOMIC = 16, DATAGRAM = 48, XRC = 16, DATA = 16, INLINE = 4,
	KEY = 48 + 64 + 64,	/* the segments of UMR: control, key context, KLM */
};

void nd_mlx5_limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "28.39.1002");
	a->vendor_id = 0x02c9;
	a->vendor_part_id = 4129;
	a->local_ca_ack_delay = 16; /* 268 ms; kernel mlx5/main.c, mlx5_ib_query_device: the firmware's */
	a->max_qp_wr = MAX_BLOCKS; /* whatever the size of a request (Linux mlx5/main.c, mlx5_ib_query_device) */
	a->max_sge = a->max_sge_rd = MAX_SGE;
	x->device_cap_flags_ex = 0;
}

/* overhead is the size of a request without its data (providers/mlx5/verbs.c, _sq_overhead). */
static uint32_t overhead(vb_enum type, uint64_t ops)
{
	uint32_t size = CTRL;

	if (!ops)
		ops = type == VB_QPT_UD ? ND_OPS_SEND : ND_OPS_READ | ND_OPS_ATOMIC | ND_OPS_KEY;
	if (ops & (ND_OPS_WRITE | ND_OPS_READ))
		size = nd_larger(size, CTRL + RADDR);
	if (ops & ND_OPS_ATOMIC)
		size = nd_larger(size, CTRL + RADDR + ATOMIC);
	if (ops & (VB_QP_EX_WITH_BIND_MW | VB_QP_EX_WITH_LOCAL_INV))
		size = nd_larger(size, CTRL + KEY);
	if (type == VB_QPT_UD)
		size += DATAGRAM;
	if (type == VB_QPT_XRC_SEND)
		size += XRC;
	return size;
}

/* The depth is in blocks: a queue takes MAX_BLOCKS divided by the blocks of a request, rounded
 * (mlx5_calc_sq_size, mlx5_calc_send_wqe, mlx5_calc_rq_size). */
int nd_mlx5_qp(struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	struct vb_qp_cap *cap = &a->cap;
	uint32_t head = overhead(a->qp_type, ops), size = head + cap->max_send_sge * DATA, total, recv;

	if (cap->max_send_wr > 0) {
		if (cap->max_inline_data > MAX_REQUEST || cap->max_send_sge > (MAX_REQUEST - head) / DATA)
			return EINVAL;
		if (cap->max_inline_data)
			size = nd_larger(size, head + nd_align(INLINE + cap->max_inline_data, DATA));
		if (size > MAX_REQUEST || cap->max_send_wr > INT32_MAX / MAX_REQUEST)
			return EINVAL;
		size = nd_align(size, BLOCK);
		total = nd_pow2(cap->max_send_wr * size);
		if (total / BLOCK > MAX_BLOCKS)
			return EINVAL;
		cap->max_send_wr = total / size;
		cap->max_inline_data = size - head - INLINE;
	}
	if (a->srq || !cap->max_recv_wr)
		return 0;
	recv = nd_pow2(nd_larger(cap->max_recv_sge, 1) * DATA);
	if (recv > MAX_REQUEST / 2 || cap->max_recv_wr > MAX_BLOCKS)
		return EINVAL;
	cap->max_recv_wr = nd_larger(nd_pow2(cap->max_recv_wr) * recv, BLOCK) / recv;
	cap->max_recv_sge = recv / DATA;
	return 0;
}

/* mlx5_calc_sq_size, of the granted capacities */
uint64_t nd_mlx5_sq_ring(const struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	const struct vb_qp_cap *cap = &a->cap;
	uint32_t data = nd_larger(cap->max_send_sge * DATA, nd_align(INLINE + cap->max_inline_data, DATA));

	return nd_pow2(cap->max_send_wr * nd_align(overhead(a->qp_type, ops) + data, BLOCK));
}

/* providers/mlx5/qp.c, MLX5_SUPPORTED_SEND_OPS_FLAGS_RC, _UC, _UD, _XRC */
uint64_t nd_mlx5_ops(vb_enum type)
{
	switch (type) {
	case VB_QPT_UD:
		return ND_OPS_SEND;
	case VB_QPT_UC:
		return ND_OPS_SEND | ND_OPS_WRITE | ND_OPS_KEY;
	}
	return ND_OPS_SEND | ND_OPS_WRITE | ND_OPS_READ | ND_OPS_ATOMIC | ND_OPS_KEY;
}

/* The table of a node with pods (Linux core/cache.c; roce_gid_mgmt.c, enum_all_gids_of_dev_cb): it has
 * the addresses of all name spaces, each by RoCE v1 and v2, the default ones of the MAC address first,
 * and holes where addresses were removed. */
#define BOTH(i, bytes, netdev) \
	{ .index = i, .gid.raw = bytes, .type = VB_GID_TYPE_ROCE_V1, .ifindex = netdev }, \
	{ .index = i + 1, .gid.raw = bytes, .type = VB_GID_TYPE_ROCE_V2, .ifindex = netdev }
#define IP6(a, b, c, d, host) { a, b, c, d, [15] = host }
#define IP4(a, b, c, d) { [10] = 0xff, 0xff, a, b, c, d }
enum { LO = 1, POD = 77 };

static const struct nd_gid gids[] = {
	BOTH(0, IP6(0xfe, 0x80, 0, 0, 0x5e), LO),
	BOTH(2, IP6(0xfd, 0, 0, 0x10, 1), POD),
	BOTH(36, IP6(0xfd, 0, 0, 0x5e, 1), LO),
	BOTH(38, IP4(10, 244, 0, 1), POD),
	BOTH(46, IP4(127, 0, 0, 1), LO),
};

const struct nd_profile nd_mlx5 = {
	.name = "mlx5",
	.comm_est = true, /* the firmware's MLX5_EVENT_TYPE_COMM_EST (kernel mlx5/qp.c, mlx5_ib_qp_event) */
	.td_abort = true, /* providers/mlx5/mlx5.h, mlx5_spin_lock: "multithreading violation" */
	.gids = gids,
	.n_gids = sizeof(gids) / sizeof(*gids),
	.gid_tbl_len = 256, /* roce_address_table_size */
	.limits = nd_mlx5_limits,
	.blind = true, /* providers/mlx5/qp.c, _mlx5_post_send and mlx5_post_recv */
	.bind_most = ND_MLX5_BIND_MOST,
	.qp = nd_mlx5_qp,
	.ops = nd_mlx5_ops,
	.sq_ring = nd_mlx5_sq_ring,
	.cq_rounded = true, /* providers/mlx5/verbs.c, create_cq and mlx5_resize_cq: align_queue_size(cqe + 1) */
	.resize_us = 500,   /* mlx5_resize_cq holds the lock while the kernel pins the new ring */
};
