/* Rings: the memory of the queues, which the kernel pins (ib_umem_get) and charges to the process's
 * RLIMIT_MEMLOCK. A doorbell record and the rounding to pages are left out. */
#include "nd.h"

static uint64_t pinned; /* bytes of rings that exist; atomic */
static uint64_t budget = UINT64_MAX; /* the most of it; atomic */

enum { CQE = 64, BLOCK = 64, SEGMENT = 16 };

/* nd_ring_pin takes bytes of the budget, and reports whether there were enough. */
bool nd_ring_pin(uint64_t bytes)
{
	uint64_t sum = __atomic_add_fetch(&pinned, bytes, __ATOMIC_RELAXED);

	if (sum <= __atomic_load_n(&budget, __ATOMIC_RELAXED))
		return true;
	nd_ring_unpin(bytes);
	return false;
}

void nd_ring_unpin(uint64_t bytes) { __atomic_sub_fetch(&pinned, bytes, __ATOMIC_RELAXED); }

uint64_t nd_ring_pinned(void) { return __atomic_load_n(&pinned, __ATOMIC_RELAXED); }

ND_EXPORT void nulldev_set_memlock(uint64_t bytes)
{
	__atomic_store_n(&budget, bytes, __ATOMIC_RELAXED);
}

uint64_t nd_cq_ring(uint32_t mask) { return ((uint64_t)mask + 1) * CQE; }

uint64_t nd_rq_ring(uint32_t wrs, uint32_t sges)
{
	return (uint64_t)nd_pow2(wrs) * nd_pow2(nd_larger(sges, 1) * SEGMENT);
}

/* nd_qp_ring is for a queue pair with the granted capacities a->cap. */
uint64_t nd_qp_ring(const struct nd_profile *p, const struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	uint32_t data = nd_larger(a->cap.max_send_sge * SEGMENT, a->cap.max_inline_data);
	uint64_t send = nd_pow2(a->cap.max_send_wr * nd_align(2 * SEGMENT + data, BLOCK));

	if (p->sq_ring)
		send = p->sq_ring(a, ops);
	return (a->cap.max_send_wr ? send : 0) + (a->cap.max_recv_wr ? nd_rq_ring(a->cap.max_recv_wr, a->cap.max_recv_sge) : 0);
}
