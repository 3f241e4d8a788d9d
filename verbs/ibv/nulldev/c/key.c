/* Protection domains, memory regions, memory windows: access rights to memory. */
#include <sys/mman.h>
#include "nd.h"

/* Slot i of the table is for keys with i in their upper 24 bits, mixed so that neighboring
 * regions have keys that differ in more than one place: a key that is off by one must not be
 * valid. */
static struct nd_key *keys[ND_MAX_KEYS];
static uint32_t next_key = 1;
static uint8_t next_low;

enum { ND_KEY_MIX = 0x5a5a00 };

struct nd_key *nd_key_find(uint32_t key)
{
	uint32_t slot = (key >> 8) ^ (ND_KEY_MIX & 0xffffff);

	if (slot >= ND_MAX_KEYS || !keys[slot] || keys[slot]->key != key)
		return NULL;
	return keys[slot];
}

struct nd_key *nd_key_slot(uint32_t i) { return keys[i]; }

int nd_key_add(struct nd_key *k, uint8_t low)
{
	for (uint32_t n = 0; n < ND_MAX_KEYS; n++) {
		uint32_t slot = next_key++ % ND_MAX_KEYS;

		if (!slot || keys[slot])
			continue;
		keys[slot] = k;
		k->key = (slot ^ (ND_KEY_MIX & 0xffffff)) << 8 | low;
		return 0;
	}
	return ENOMEM;
}

void nd_key_remove(struct nd_key *k)
{
	keys[(k->key >> 8) ^ (ND_KEY_MIX & 0xffffff)] = NULL;
}

uint64_t nd_reach(struct nd_qp *qp, struct nd_pd *pd, uint32_t key, uint64_t addr,
		  uint64_t len, unsigned access)
{
	struct nd_key *k = nd_key_find(key);

	if (!k || !k->valid || k->pd != pd || (k->access & access) != access)
		return 0;
	if (k->qp && k->qp != qp)
		return 0;
	if (addr < k->iova || len > k->len || addr - k->iova > k->len - len)
		return 0;
	return k->addr + (addr - k->iova);
}

ND_EXPORT struct vb_pd *ibv_alloc_pd(struct vb_context *c)
{
	struct nd_pd *pd;

	ND_CALL_PTR("ibv_alloc_pd", nd_dev_of(c));
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return nd_null(ENOMEM);
	pd->pd.context = c;
	nd_lock();
	nd_live.pd++;
	nd_unlock();
	return &pd->pd;
}

ND_EXPORT int ibv_dealloc_pd(struct vb_pd *p)
{
	struct nd_pd *pd = (struct nd_pd *)p;

	ND_DESTROY("ibv_dealloc_pd", nd_dev_of(p->context));
	nd_lock();
	if (pd->uses) {
		nd_unlock();
		return EBUSY;
	}
	nd_live.pd--;
	if (pd->root)
		pd->root->uses--;
	if (pd->td)
		pd->td->uses--;
	nd_unlock();
	free(pd);
	return 0;
}

/* nd_reg makes a region. The whole address space can only be registered on demand. */
struct nd_mr *nd_reg(struct vb_pd *p, void *addr, size_t len, uint64_t iova, unsigned access)
{
	const unsigned known = VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_READ |
		VB_ACCESS_REMOTE_ATOMIC | VB_ACCESS_MW_BIND | VB_ACCESS_ZERO_BASED | VB_ACCESS_ON_DEMAND | VB_ACCESS_HUGETLB |
		VB_ACCESS_FLUSH_GLOBAL | VB_ACCESS_FLUSH_PERSISTENT | VB_ACCESS_OPTIONAL_RANGE;
	struct nd_mr *mr;
	int err;

	/* ib_check_mr_access: memory that peers may write must be locally writable */
	if ((access & ~known) || ((access & (VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_ATOMIC)) &&
				  !(access & VB_ACCESS_LOCAL_WRITE)))
		return nd_null(EINVAL);
	if ((uintptr_t)addr + len < (uintptr_t)addr || iova + len < iova)
		return nd_null(EINVAL);
	if (len == SIZE_MAX && !(access & VB_ACCESS_ON_DEMAND))
		return nd_null(ENOMEM);
	if (nd_fork_splits(nd_profile_of(p->context), (uintptr_t)addr, len))
		return nd_null(EINVAL);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return nd_null(ENOMEM);
	mr->k = (struct nd_key){ .valid = true, .pd = nd_pd_of(p), .addr = (uintptr_t)addr,
				 .iova = iova, .len = len, .access = access };
	nd_lock();
	err = nd_key_add(&mr->k, next_low++);
	if (err) {
		nd_unlock();
		free(mr);
		return nd_null(err);
	}
	((struct nd_pd *)p)->uses++;
	nd_live.mr++;
	mr->locked = access & VB_ACCESS_ON_DEMAND ? 0 : len;
	nd_past.locked += mr->locked;
	nd_unlock();
	mr->mr = (struct vb_mr){ .context = p->context, .pd = p, .addr = addr, .length = len,
				 .handle = mr->k.key >> 8, .lkey = mr->k.key, .rkey = mr->k.key };
	return mr;
}

static struct vb_mr *reg(struct vb_pd *p, void *addr, size_t len, uint64_t iova, unsigned access)
{
	struct nd_mr *mr = nd_reg(p, addr, len, iova, access);

	return mr ? &mr->mr : NULL;
}

ND_EXPORT struct vb_mr *ibv_reg_mr(struct vb_pd *p, void *addr, size_t len, int access)
{
	ND_CALL_PTR("ibv_reg_mr", nd_dev_of(p->context));
	nd_command(p->context);
	/* The old call does not support the optional range (verbs.c). */
	return reg(p, addr, len, access & VB_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr, access & ~VB_ACCESS_OPTIONAL_RANGE);
}

ND_EXPORT struct vb_mr *ibv_reg_mr_iova(struct vb_pd *p, void *addr, size_t len, uint64_t iova, int access)
{
	ND_CALL_PTR("ibv_reg_mr_iova", nd_dev_of(p->context));
	nd_command(p->context);
	return reg(p, addr, len, iova, access & ~VB_ACCESS_OPTIONAL_RANGE);
}

ND_EXPORT struct vb_mr *ibv_reg_mr_iova2(struct vb_pd *p, void *addr, size_t len, uint64_t iova, unsigned access)
{
	ND_CALL_PTR("ibv_reg_mr_iova2", nd_dev_of(p->context));
	nd_command(p->context);
	return reg(p, addr, len, iova, access);
}

ND_EXPORT int ibv_dereg_mr(struct vb_mr *m)
{
	struct nd_mr *mr = (struct nd_mr *)m;

	ND_DESTROY("ibv_dereg_mr", nd_dev_of(m->context));
	nd_command(m->context);
	nd_lock();
	if (mr->windows) {
		nd_unlock();
		return EINVAL;
	}
	nd_key_remove(&mr->k);
	((struct nd_pd *)m->pd)->uses--;
	nd_live.mr--;
	nd_past.locked -= mr->locked;
	nd_unlock();
	if (mr->map)
		munmap(mr->map, mr->map_len);
	free(mr);
	return 0;
}

struct vb_mw *nd_alloc_mw(struct vb_pd *p, vb_enum type)
{
	struct nd_mw *mw;
	int err;

	ND_CALL_PTR("ibv_alloc_mw", nd_dev_of(p->context));
	if (nd_profile_of(p->context)->no_mw)
		return nd_null(EOPNOTSUPP); /* libibverbs/dummy_ops.c, alloc_mw */
	if (type != VB_MW_TYPE_1 && type != VB_MW_TYPE_2)
		return nd_null(EINVAL);
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return nd_null(ENOMEM);
	mw->k = (struct nd_key){ .window = true, .pd = nd_pd_of(p) };
	nd_lock();
	err = nd_key_add(&mw->k, 0);
	if (err) {
		nd_unlock();
		free(mw);
		return nd_null(err);
	}
	((struct nd_pd *)p)->uses++;
	nd_live.mw++;
	nd_unlock();
	mw->mw = (struct vb_mw){ .context = p->context, .pd = p, .rkey = mw->k.key, .handle = mw->k.key >> 8, .type = type };
	return &mw->mw;
}

void nd_key_unbind(struct nd_key *k)
{
	k->valid = false;
	k->qp = NULL;
	if (k->mr)
		k->mr->windows--;
	k->mr = NULL;
}

int nd_dealloc_mw(struct vb_mw *m)
{
	struct nd_mw *mw = (struct nd_mw *)m;

	ND_DESTROY("ibv_dealloc_mw", nd_dev_of(m->context));
	nd_lock();
	nd_key_unbind(&mw->k);
	nd_key_remove(&mw->k);
	((struct nd_pd *)m->pd)->uses--;
	nd_live.mw--;
	nd_unlock();
	free(mw);
	return 0;
}

/* nd_bind binds a window to a range of a region (IBTA 10.6.7.2, rxe_mw.c). It returns a status. A
 * type 1 window gets its key from the library, a type 2 one from the request, and only while it
 * is not bound. */
int nd_bind(struct nd_qp *qp, struct nd_mw *mw, uint32_t rkey, const struct vb_mw_bind_info *b, int type)
{
	struct nd_mr *mr = (struct nd_mr *)b->mr;
	struct nd_pd *pd = nd_pd_of(qp->qp.qp_base.pd);
	const unsigned allowed = VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_READ | VB_ACCESS_REMOTE_ATOMIC |
		VB_ACCESS_ZERO_BASED | VB_ACCESS_FLUSH_GLOBAL | VB_ACCESS_FLUSH_PERSISTENT;

	if (!mw || mw->k.pd != pd || mw->mw.type != type || (type == VB_MW_TYPE_2 && mw->k.valid))
		return VB_WC_MW_BIND_ERR;
	if (((rkey ^ mw->k.key) & ~0xffU) || (type == VB_MW_TYPE_2 && (!mr || !b->length || rkey == mw->k.key)))
		return VB_WC_MW_BIND_ERR;
	if (b->length) {
		if (!mr || mr->k.pd != pd || !(mr->k.access & VB_ACCESS_MW_BIND) || (b->mw_access_flags & ~allowed))
			return VB_WC_MW_BIND_ERR;
		if ((b->mw_access_flags & (VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_ATOMIC)) &&
		    !(mr->k.access & VB_ACCESS_LOCAL_WRITE))
			return VB_WC_MW_BIND_ERR;
		if (b->addr < mr->k.iova || b->length > mr->k.len || b->addr - mr->k.iova > mr->k.len - b->length)
			return VB_WC_MW_BIND_ERR;
	}
	nd_key_unbind(&mw->k);
	mw->k.key = rkey;
	if (!b->length)
		return VB_WC_SUCCESS;
	mw->k.valid = true;
	mw->k.mr = mr;
	mr->windows++;
	mw->k.addr = mr->k.addr + (b->addr - mr->k.iova);
	mw->k.iova = b->mw_access_flags & VB_ACCESS_ZERO_BASED ? 0 : b->addr;
	mw->k.len = b->length;
	mw->k.access = b->mw_access_flags;
	mw->k.qp = type == VB_MW_TYPE_2 ? qp : NULL;
	return VB_WC_SUCCESS;
}

/* nd_invalidate invalidates a key: that of a type 2 window bound to this queue pair. */
int nd_invalidate(struct nd_qp *qp, uint32_t key, bool remote)
{
	struct nd_key *k = nd_key_find(key);

	if (!k || !k->window || !k->valid || !k->qp || (k->qp != qp) || k->pd != nd_pd_of(qp->qp.qp_base.pd))
		return remote ? VB_WC_REM_ACCESS_ERR : VB_WC_MW_BIND_ERR;
	nd_key_unbind(k);
	return VB_WC_SUCCESS;
}

/* Type 1: a call, which posts a request of its own (verbs.c, ibv_bind_mw; the providers'
 * bind_mw). */
int nd_bind_mw(struct vb_qp *q, struct vb_mw *m, struct vb_mw_bind *b)
{
	struct vb_send_wr wr = { .wr_id = b->wr_id, .opcode = VB_WR_BIND_MW, .send_flags = b->send_flags }, *bad;
	int err;

	ND_CALL("ibv_bind_mw", nd_dev_of(q->context));
	if (m->type != VB_MW_TYPE_1 || (b->bind_info.mr && nd_pd_of(b->bind_info.mr->pd) != nd_pd_of(m->pd)))
		return EINVAL;
	wr.bind_mw.mw = m;
	wr.bind_mw.rkey = (m->rkey & ~0xffU) | ((m->rkey + 1) & 0xff);
	wr.bind_mw.bind_info = b->bind_info;
	err = nd_post_send(q, &wr, &bad);
	if (!err)
		m->rkey = wr.bind_mw.rkey;
	return err;
}
