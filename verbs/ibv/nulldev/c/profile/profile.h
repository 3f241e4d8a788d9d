/* Profiles: what a driver and its device do otherwise than the null device by itself. Each file of
 * this folder is named after the driver that it imitates, and cites the source of each difference.
 *
 * A field that is not set leaves the null device as it is. A context keeps the profile that was
 * selected when it was opened; the devices of the list have the one that is selected now. */
#ifndef ND_PROFILE_H
#define ND_PROFILE_H

#include <stdbool.h>
#include "vb_verbs.h"

/* An entry of the address table of the port that is up. */
struct nd_gid {
	int index;
	union vb_gid gid;  /* of null0; the last byte of null1's is one more */
	uint32_t type;	   /* VB_GID_TYPE_ */
	uint32_t ifindex;  /* of its network interface; 1 is lo, any other is in another name space */
};

struct nd_profile {
	const char *name;
	uint8_t node, transport; /* VB_NODE_, VB_TRANSPORT_; 0: a channel adapter of InfiniBand or RoCE */
	bool blind;	/* posts are taken in every state; where a queue pair cannot execute them they lie there */
	int post_in_err; /* the errno of posts after a modify to ERR, returned as a negative number; 0: they are flushed */
	bool quanta;	/* a send queue is full by quanta: small requests fit more often than its depth says */
	bool no_mw;	/* the library has no windows, whatever the kernel says */
	uint64_t bind_most; /* the longest window, beyond it EOPNOTSUPP; 0: any */
	bool huge_pages; /* all memory lies in huge pages, which fork support has to expect: nd_fork_splits */
	bool infiniband; /* the link layer: addresses are LIDs, and datagrams within the subnet have no GRH */
	uint8_t lmc;	 /* on InfiniBand: a port has 2^lmc LIDs */
	uint8_t up;	 /* the port that is up, and the last; 0: 1 */
	bool comm_est;	   /* COMM_EST at the first packet also when the queue pair is in RTS already */
	bool td_abort;	   /* ends the process when two posts of a thread domain overlap */
	uint8_t path_life; /* of the path record of InfiniBand's subnet manager; 0: RoCE, which has none */
	bool dialer_first; /* a request of an accepting end before the first of the dialing end breaks the connection */
	bool tos_unsent;   /* requests bring no type of service: a dialing end has its own, an accepting one its listener's */
	const struct nd_gid *gids; /* NULL: one address, in entry 0 */
	int n_gids, gid_tbl_len;
	void (*limits)(struct vb_device_attr_ex *a);
	void (*port)(struct vb_port_attr *a);

	uint32_t command_us; /* how long a command of the firmware takes: nd_command */

	/* qp checks the attributes of a queue pair as the driver does, in place of the null device's
	 * own limits, and writes the capacities that the driver grants. It returns 0, an errno, or
	 * ND_SILENT. ops are those of ibv_create_qp_ex, 0 for ibv_create_qp. */
	int (*qp)(struct vb_qp_init_attr_ex *a, uint64_t ops);
	/* ops are the send operations that ibv_create_qp_ex takes for a type; with others it is
	 * EOPNOTSUPP, and so it is for a type without any. */
	uint64_t (*ops)(vb_enum type);
	uint64_t bare; /* operations that it takes and sets no function for */
	bool no_xrc;   /* nor for wr_set_xrc_srqn */
	uint64_t (*sq_ring)(const struct vb_qp_init_attr_ex *a, uint64_t ops); /* bytes of the send queue */
	bool no_resize;	    /* the library has no ibv_resize_cq (libibverbs/dummy_ops.c) */
	uint32_t resize_us; /* how long ibv_resize_cq holds the lock of the queue */
	bool cq_rounded;    /* an entry is added and the sum rounded up to a power of two; the rest is granted */
};

/* A creation returns NULL and leaves errno alone. */
enum { ND_SILENT = -1 };

/* The send operations of most drivers. */
enum {
	ND_OPS_SEND = VB_QP_EX_WITH_SEND | VB_QP_EX_WITH_SEND_WITH_IMM,
	ND_OPS_WRITE = VB_QP_EX_WITH_RDMA_WRITE | VB_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	ND_OPS_READ = VB_QP_EX_WITH_RDMA_READ,
	ND_OPS_ATOMIC = VB_QP_EX_WITH_ATOMIC_CMP_AND_SWP | VB_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	ND_OPS_KEY = VB_QP_EX_WITH_LOCAL_INV | VB_QP_EX_WITH_BIND_MW | VB_QP_EX_WITH_SEND_WITH_INV,
	ND_OPS_NEW = VB_QP_EX_WITH_FLUSH | VB_QP_EX_WITH_ATOMIC_WRITE,
};

static inline uint32_t nd_pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

static inline uint32_t nd_align(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }
static inline uint32_t nd_larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The ops of a driver without ibv_create_qp_ex. */
static inline uint64_t nd_no_ops(vb_enum type)
{
	(void)type;
	return 0;
}

/* mlx5.c */
enum { ND_MLX5_BIND_MOST = 1U << 31 }; /* KLM has 31 bits of length (providers/mlx5/qp.c, set_bind_wr) */
void nd_mlx5_limits(struct vb_device_attr_ex *x);
int nd_mlx5_qp(struct vb_qp_init_attr_ex *a, uint64_t ops);
uint64_t nd_mlx5_ops(vb_enum type);
uint64_t nd_mlx5_sq_ring(const struct vb_qp_init_attr_ex *a, uint64_t ops);

extern const struct nd_profile nd_plain;
extern const struct nd_profile nd_mlx4, nd_mlx5, nd_mlx5_ib, nd_mlx5_vf, nd_irdma, nd_iwarp, nd_bnxt_re, nd_efa, nd_erdma,
	nd_hns, nd_siw, nd_hugepages;

/* Begins a call that is a command of the firmware: it lasts as long as the profile of c says. Without
 * any lock. */
void nd_command(struct vb_context *c);

/* The selected profile. */
const struct nd_profile *nd_profile_now(void);
/* For librdmacm: the profile of a context. */
const struct nd_profile *nulldev_profile_of(struct vb_context *c);

#endif
