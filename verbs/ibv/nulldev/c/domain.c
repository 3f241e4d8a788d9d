/* Thread domains and parent domains; further attributes of a queue pair; fork support. */
#include <stdio.h>
#include "nd.h"

uint64_t nd_td_races;

void nd_td_violated(void)
{
	fputs("null device: two posts of one thread domain at the same time\n", stderr);
	abort();
}

struct vb_td *nd_alloc_td(struct vb_context *c, struct vb_td_init_attr *a)
{
	struct nd_td *td;

	ND_CALL_PTR("ibv_alloc_td", nd_dev_of(c));
	if (a->comp_mask)
		return nd_null(EINVAL);
	td = calloc(1, sizeof(*td));
	if (!td)
		return nd_null(ENOMEM);
	td->td.context = c;
	td->aborts = nd_profile_of(c)->td_abort;
	nd_lock();
	nd_live.td++;
	nd_unlock();
	return &td->td;
}

int nd_dealloc_td(struct vb_td *p)
{
	struct nd_td *td = (struct nd_td *)p;

	ND_DESTROY("ibv_dealloc_td", nd_dev_of(p->context));
	nd_lock();
	if (td->uses) {
		nd_unlock();
		return EBUSY;
	}
	nd_live.td--;
	nd_unlock();
	free(td);
	return 0;
}

struct vb_pd *nd_alloc_parent_domain(struct vb_context *c, struct vb_parent_domain_init_attr *a)
{
	struct nd_pd *pd;

	ND_CALL_PTR("ibv_alloc_parent_domain", nd_dev_of(c));
	if (a->comp_mask || !a->pd || a->pd->context != c || (a->td && a->td->context != c))
		return nd_null(EINVAL);
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return nd_null(ENOMEM);
	pd->pd = *a->pd;
	pd->root = nd_pd_of(a->pd);
	pd->td = (struct nd_td *)a->td;
	nd_lock();
	pd->root->uses++;
	if (pd->td)
		pd->td->uses++;
	nd_live.pd++;
	nd_unlock();
	return &pd->pd;
}

/* The vendor of the options, and the supported ones. */
enum { ND_ECE_VENDOR = 0x5e, ND_ECE_OPTIONS = 3 };

ND_EXPORT int ibv_query_ece(struct vb_qp *q, struct vb_ece *e)
{
	struct nd_qp *qp = nd_qp_real(q);

	ND_CALL("ibv_query_ece", nd_dev_of(q->context));
	nd_lock();
	*e = qp->ece.vendor_id ? qp->ece : (struct vb_ece){ .vendor_id = ND_ECE_VENDOR, .options = ND_ECE_OPTIONS };
	nd_unlock();
	return 0;
}

ND_EXPORT int ibv_set_ece(struct vb_qp *q, struct vb_ece *e)
{
	struct nd_qp *qp = nd_qp_real(q);

	ND_CALL("ibv_set_ece", nd_dev_of(q->context));
	if (!e->vendor_id)
		return EOPNOTSUPP; /* as libibverbs (verbs.c) */
	if (e->vendor_id != ND_ECE_VENDOR || e->comp_mask)
		return EINVAL;
	e->options &= ND_ECE_OPTIONS;
	nd_lock();
	qp->ece = *e;
	nd_unlock();
	return 0;
}

/* The C library decides the order of a copy; 8 bytes are one store. */
ND_EXPORT int ibv_query_qp_data_in_order(struct vb_qp *q, vb_enum op, uint32_t flags)
{
	const int all = VB_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG | VB_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES;

	(void)q;
	if (op != VB_WR_ATOMIC_WRITE)
		return 0;
	return flags & VB_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS ? all : 1;
}

static int forks = VB_FORK_DISABLED; /* atomic */
static bool splits_pages;	     /* atomic: ibv_fork_init expects pages of the base size alone */

ND_EXPORT int ibv_fork_init(void)
{
	ND_CALL("ibv_fork_init", NULL);
	__atomic_store_n(&splits_pages, !getenv("RDMAV_HUGEPAGES_SAFE"), __ATOMIC_RELAXED);
	__atomic_store_n(&forks, VB_FORK_ENABLED, __ATOMIC_RELAXED);
	return 0;
}

bool nd_fork_splits(const struct nd_profile *p, uint64_t addr, uint64_t len)
{
	const uint64_t base = 4096 - 1, huge = (2 << 20) - 1;
	uint64_t from = addr & ~base, to = (addr + len + base) & ~base;

	return p->huge_pages && __atomic_load_n(&splits_pages, __ATOMIC_RELAXED) && ((from | to) & huge);
}

ND_EXPORT vb_enum ibv_is_fork_initialized(void) { return __atomic_load_n(&forks, __ATOMIC_RELAXED); }
