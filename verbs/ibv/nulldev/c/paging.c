/* On-demand memory, and memory of other devices. Nothing is ever locked here: the device accesses
 * memory as the program does. The kinds differ in the counters and in the permitted advice. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "nd.h"

void nd_odp_caps(struct vb_device_attr_ex *a)
{
	const uint32_t ud = VB_ODP_SUPPORT_SEND | VB_ODP_SUPPORT_RECV | VB_ODP_SUPPORT_SRQ_RECV;
	const uint32_t uc = ud | VB_ODP_SUPPORT_WRITE;
	const uint32_t rc = uc | VB_ODP_SUPPORT_READ | VB_ODP_SUPPORT_ATOMIC | VB_ODP_SUPPORT_FLUSH | VB_ODP_SUPPORT_ATOMIC_WRITE;

	a->odp_caps.general_caps = VB_ODP_SUPPORT | VB_ODP_SUPPORT_IMPLICIT;
	a->odp_caps.per_transport_caps.rc_odp_caps = rc;
	a->odp_caps.per_transport_caps.uc_odp_caps = uc;
	a->odp_caps.per_transport_caps.ud_odp_caps = ud;
	a->xrc_odp_caps = rc;
}

/* Checks a range of an advice, with the errnos of mlx5 (kernel, drivers/infiniband/hw/mlx5/odp.c:
 * get_prefetchable_mr, pagefault_mr). With nd_mu. */
static int advisable(struct vb_pd *p, int advice, const struct vb_sge *s)
{
	struct nd_key *k = nd_key_find(s->lkey);

	if (k && k->window)
		return EINVAL;
	if (!k || !(k->access & VB_ACCESS_ON_DEMAND))
		return ENOENT;
	if (k->pd != nd_pd_of(p) || (advice == VB_ADVISE_MR_ADVICE_PREFETCH_WRITE && !(k->access & VB_ACCESS_LOCAL_WRITE)))
		return EPERM;
	if (s->addr < k->iova || s->length > k->len || s->addr - k->iova > k->len - s->length)
		return EFAULT;
	return 0;
}

/* Without FLUSH the device follows the advice later, and cannot report a missing range. */
int nd_advise_mr(struct vb_pd *p, vb_enum advice, uint32_t flags, struct vb_sge *list, uint32_t n)
{
	int err = 0;

	ND_CALL("ibv_advise_mr", nd_dev_of(p->context));
	if (advice > VB_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	if (!n || (flags & ~(uint32_t)VB_ADVISE_MR_FLAG_FLUSH))
		return EINVAL;
	nd_lock();
	for (uint32_t i = 0; i < n && !err; i++) {
		err = advisable(p, advice, &list[i]);
		if (!err)
			nd_past.advised += list[i].length;
		else if (err == EFAULT && !flags)
			err = 0;
	}
	nd_unlock();
	return err;
}

/* Any descriptor that can be mapped stands for another device's memory, such as that of
 * memfd_create(2); the kernel accepts those of dma_buf only. */
ND_EXPORT struct vb_mr *ibv_reg_dmabuf_mr(struct vb_pd *p, uint64_t offset, size_t len, uint64_t iova, int fd, int access)
{
	const unsigned known = VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_READ |
		VB_ACCESS_REMOTE_ATOMIC | VB_ACCESS_RELAXED_ORDERING;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), head = offset % page;
	struct nd_mr *mr;
	struct stat st;
	void *map;
	int err;

	ND_CALL_PTR("ibv_reg_dmabuf_mr", nd_dev_of(p->context));
	if (((unsigned)access & ~known) || !len || iova % page != head)
		return nd_null(EINVAL);
	if (fstat(fd, &st))
		return NULL; /* EBADF */
	if (offset + len < offset || offset + len > (uint64_t)st.st_size)
		return nd_null(EINVAL);
	map = mmap(NULL, head + len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - head));
	if (map == MAP_FAILED)
		return nd_null(EINVAL);
	mr = nd_reg(p, (char *)map + head, len, iova, (unsigned)access);
	if (!mr) {
		err = errno;
		munmap(map, head + len);
		return nd_null(err);
	}
	mr->map = map;
	mr->map_len = head + len;
	mr->mr.addr = (void *)(uintptr_t)offset; /* as in libibverbs (verbs.c) */
	nd_lock();
	nd_past.locked -= mr->locked;
	mr->locked = 0;
	nd_unlock();
	return &mr->mr;
}
