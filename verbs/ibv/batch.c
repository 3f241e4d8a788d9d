//go:build linux && cgo && !portable

/* The data path: posting, arming and polling, all through function pointers of
 * the context, as the system's inline functions do (semantics 40). */
#include "batch.h"

/* How many requests of a list come before bad. A library that fails without naming a request of
 * the list is taken to have posted none. */
static uint32_t sends_before(struct vb_send_wr *wr, struct vb_send_wr *bad)
{
	uint32_t n = 0;
	for (; wr && wr != bad; wr = wr->next)
		n++;
	return wr ? n : 0;
}

static uint32_t recvs_before(struct vb_recv_wr *wr, struct vb_recv_wr *bad)
{
	uint32_t n = 0;
	for (; wr && wr != bad; wr = wr->next)
		n++;
	return wr ? n : 0;
}

static void post_recv(struct batch_group *g)
{
	struct vb_recv_wr *first = (struct vb_recv_wr *)(uintptr_t)g->at, *bad = first;
	errno = 0;
	if (g->kind == BATCH_SRQ_RECV) {
		struct vb_srq *s = (struct vb_srq *)(uintptr_t)g->obj;
		g->err = shim_errno(s->context->ops.post_srq_recv(s, first, &bad));
	} else {
		struct vb_qp *q = (struct vb_qp *)(uintptr_t)g->obj;
		g->err = shim_errno(q->context->ops.post_recv(q, first, &bad));
	}
	if (g->err)
		g->count = recvs_before(first, bad);
}

/* The user manages a window's key; ibv_bind_mw stores it in the window, and so does a BIND_MW
 * posted as a request. */
static void keep_keys(struct vb_send_wr *wr, uint32_t n)
{
	for (; n > 0 && wr; wr = wr->next, n--)
		if (wr->opcode == VB_WR_BIND_MW)
			__atomic_store_n(&wr->bind_mw.mw->rkey, wr->bind_mw.rkey, __ATOMIC_RELAXED);
}

/* A binding of length 0 unbinds a window and needs no region (ibv_bind_mw(3)). Soft-RoCE's
 * library follows the pointer to the region all the same (rdma-core providers/rxe/rxe.c,
 * convert_send_wr and wr_bind_mw), so a request without one is lent this region, whose key is 0.
 *
 * The region is private to this file, there is one for the process, and it is never written:
 * batches of several contexts lend it at the same time. The list belongs to the caller, and is
 * lent to us from the call of batch_run to its return. All requests are lent the region before the
 * library is called, and lose it afterwards, refused ones as well, so that the caller finds its
 * list unchanged. The library does not need the region after that: it copies the key into its
 * queue. */
static struct {
	struct vb_mr mr;
	uint64_t behind[8]; /* the members that libraries keep behind it (struct verbs_mr) */
} no_region;

static void lend_regions(struct vb_send_wr *wr, uint32_t n)
{
	for (; n > 0 && wr; wr = wr->next, n--)
		if (wr->opcode == VB_WR_BIND_MW && !wr->bind_mw.bind_info.mr)
			wr->bind_mw.bind_info.mr = &no_region.mr;
}

static void take_regions(struct vb_send_wr *wr, uint32_t n)
{
	for (; n > 0 && wr; wr = wr->next, n--)
		if (wr->opcode == VB_WR_BIND_MW && wr->bind_mw.bind_info.mr == &no_region.mr)
			wr->bind_mw.bind_info.mr = NULL;
}

/* The opcodes of ibv_post_send: FLUSH and ATOMIC_WRITE need extended posting. */
static const uint32_t plain_opcodes =
	1U << VB_WR_RDMA_WRITE | 1U << VB_WR_RDMA_WRITE_WITH_IMM | 1U << VB_WR_SEND | 1U << VB_WR_SEND_WITH_IMM |
	1U << VB_WR_RDMA_READ | 1U << VB_WR_ATOMIC_CMP_AND_SWP | 1U << VB_WR_ATOMIC_FETCH_AND_ADD |
	1U << VB_WR_LOCAL_INV | 1U << VB_WR_BIND_MW | 1U << VB_WR_SEND_WITH_INV;

/* How many requests of a list come before an invalid opcode; last is the one before it. */
static uint32_t known_opcodes(struct vb_send_wr *wr, uint32_t n, struct vb_send_wr **last)
{
	uint32_t i = 0;
	for (*last = NULL; wr && i < n; *last = wr, wr = wr->next, i++)
		if (wr->opcode >= 32 || !(plain_opcodes >> wr->opcode & 1))
			break;
	return i;
}

/* Posts a plain list with ibv_post_send. Libraries refuse opcodes that they lack; Soft-RoCE's
 * does not check, and the kernel uses an opcode as the index of a table (Linux 6.12 rxe_loc.h,
 * wr_opcode_mask). There the list ends before it. */
static void post_plain(struct batch_group *g, struct vb_send_wr *first)
{
	struct vb_qp *q = (struct vb_qp *)(uintptr_t)g->obj;
	struct vb_send_wr *bad = first, *last = NULL, *rest = NULL;
	uint32_t all = g->count, good = all;

	if (g->look & BATCH_LOOK_OPCODES)
		good = known_opcodes(first, all, &last);
	if (good == 0) {
		g->err = EINVAL;
		g->count = 0;
		return;
	}
	if (good < all) {
		rest = last->next;
		last->next = NULL;
	}
	errno = 0;
	g->err = shim_errno(q->context->ops.post_send(q, first, &bad));
	if (g->err)
		g->count = sends_before(first, bad);
	if (good < all) {
		last->next = rest;
		if (!g->err) {
			g->err = EINVAL;
			g->count = good;
		}
	}
}

static void post_send(struct batch_group *g)
{
	struct vb_send_wr *first = (struct vb_send_wr *)(uintptr_t)g->at;
	uint32_t all = g->count;

	if (g->look & BATCH_LOOK_BINDINGS)
		lend_regions(first, all);
	if (g->kind == BATCH_SEND_EX) {
		errno = 0;
		g->err = batch_post_ex((struct vb_qp_ex *)(uintptr_t)g->ex, g->ops, first);
		if (g->err)
			g->count = 0;
	} else {
		post_plain(g, first);
	}
	if (g->look & BATCH_LOOK_BINDINGS) {
		take_regions(first, all);
		keep_keys(first, g->count);
	}
}

/* Soft-RoCE writes the kernel's IB_WC_WITH_INVALIDATE, 1 << 2, into a program's completion (Linux
 * 6.12 drivers/infiniband/sw/rxe/rxe_resp.c, do_complete, and include/rdma/ib_verbs.h), where
 * that bit is IP_CSUM_OK; it checks no checksums. */
static uint32_t user_flags(const struct batch_group *g, uint32_t flags)
{
	if (g->look & BATCH_LOOK_INVALID && flags & VB_WC_IP_CSUM_OK)
		return (flags & ~(uint32_t)VB_WC_IP_CSUM_OK) | VB_WC_WITH_INV;
	return flags;
}

/* poll_ex takes completions one by one (semantics 36: a start that fails has begun nothing and
 * must not be ended; ENOENT from either is the end of the queue, and after next_poll end_poll is
 * still due). */
static void poll_ex(struct batch_group *g)
{
	struct vb_cq_ex *q = (struct vb_cq_ex *)(uintptr_t)g->obj;
	struct vb_wc *wc = (struct vb_wc *)(uintptr_t)g->at;
	struct vb_poll_cq_attr attr = {0};
	uint32_t room = g->count;
	int r;

	g->count = 0;
	g->err = 0; /* of an earlier poll of this batch: EBUSY */
	if (room == 0)
		return;
	errno = 0;
	r = shim_errno(q->start_poll(q, &attr));
	if (r) {
		/* EBUSY: polling could not start just now; nothing is lost, and nothing is known. */
		g->err = r == ENOENT ? 0 : r == EBUSY ? EBUSY : EIO;
		return;
	}
	do {
		struct vb_wc *w = &wc[g->count++];
		*w = (struct vb_wc){.wr_id = q->wr_id, .status = q->status, .qp_num = q->read_qp_num(q)};
		if (q->status != VB_WC_SUCCESS) {
			w->vendor_err = q->read_vendor_err(q); /* the other members are undefined */
			continue;
		}
		w->opcode = q->read_opcode(q);
		w->wc_flags = q->read_wc_flags(q);
		if (w->opcode & VB_WC_RECV)
			w->wc_flags = user_flags(g, w->wc_flags);
		w->byte_len = q->read_byte_len(q);
		if (w->wc_flags & (VB_WC_WITH_IMM | VB_WC_WITH_INV))
			w->imm_data = q->read_imm_data(q);
		if (w->opcode & VB_WC_RECV) {
			w->src_qp = q->read_src_qp(q);
			w->slid = (uint16_t)q->read_slid(q);
			w->sl = q->read_sl(q);
			w->dlid_path_bits = q->read_dlid_path_bits(q);
		}
	} while (g->count < room && (r = shim_errno(q->next_poll(q))) == 0);
	q->end_poll(q);
	if (r && r != ENOENT)
		g->err = EIO;
}

static void poll_cq(struct batch_group *g)
{
	struct vb_cq *q = (struct vb_cq *)(uintptr_t)g->obj;
	int n = q->context->ops.poll_cq(q, (int)g->count, (struct vb_wc *)(uintptr_t)g->at);
	/* A negative number is not an errno: libmlx5 returns its own. The queue is dead. */
	g->err = n < 0 ? EIO : 0;
	g->count = n < 0 ? 0 : (uint32_t)n;
	if (!g->look)
		return;
	for (struct vb_wc *w = (struct vb_wc *)(uintptr_t)g->at; n-- > 0; w++)
		if (w->status == VB_WC_SUCCESS && w->opcode & VB_WC_RECV)
			w->wc_flags = user_flags(g, w->wc_flags);
}

/* Lets the other thread of the core run, and marks this as a spin wait for the processor. */
static inline void breathe(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

/* Polls n groups again, up to spin times, as long as none yields a completion or an error. The
 * polls come last in a batch. */
static void poll_again(struct batch_group *g, uint32_t n, uint32_t spin)
{
	uint32_t first, i;
	for (first = n; first > 0 && g[first - 1].kind >= BATCH_POLL; first--)
		;
	for (; first < n; spin--) {
		for (i = first; i < n; i++)
			if (g[i].kind != BATCH_NONE && (g[i].count > 0 || (g[i].err && g[i].err != EBUSY)))
				return;
		if (spin == 0)
			return;
		breathe();
		for (i = first; i < n; i++) {
			if (g[i].kind == BATCH_NONE)
				continue;
			g[i].count = g[i].ops;
			if (g[i].kind == BATCH_POLL)
				poll_cq(&g[i]);
			else
				poll_ex(&g[i]);
		}
	}
}

void batch_run(struct batch_group *all, uint32_t groups, uint32_t spin)
{
	struct batch_group *g = all;
	uint32_t n = groups;
	for (; n > 0; g++, n--) {
		struct vb_cq *q = (struct vb_cq *)(uintptr_t)g->obj;
		if (g->err)
			continue; /* Go refused the group: do nothing */
		switch (g->kind) {
		case BATCH_RECV:
		case BATCH_SRQ_RECV:
			post_recv(g);
			break;
		case BATCH_SEND:
		case BATCH_SEND_EX:
			post_send(g);
			break;
		case BATCH_ARM:
		case BATCH_ARM_SOLICITED:
			errno = 0;
			g->err = shim_errno(q->context->ops.req_notify_cq(q, g->kind == BATCH_ARM_SOLICITED));
			break;
		case BATCH_POLL:
			poll_cq(g);
			break;
		case BATCH_POLL_EX:
			poll_ex(g);
			break;
		}
	}
	if (spin > 0)
		poll_again(all, groups, spin);
}
