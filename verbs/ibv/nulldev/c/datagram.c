/* Address handles, multicast groups, datagrams. */
#include "nd.h"

struct group {
	union vb_gid gid;
	struct nd_device *dev;
	struct nd_qp *qps[ND_MAX_GROUP_QPS];
	int n;
};

static struct group groups[ND_DEVICES * ND_MAX_GROUPS]; /* under nd_mu */

ND_EXPORT struct vb_ah *ibv_create_ah(struct vb_pd *pd, struct vb_ah_attr *a)
{
	struct nd_ah *ah;

	ND_CALL_PTR("ibv_create_ah", nd_dev_of(pd->context));
	if (!nd_path_valid(nd_ctx_of(pd->context), a))
		return nd_null(EINVAL);
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return nd_null(ENOMEM);
	ah->ah = (struct vb_ah){ .context = pd->context, .pd = pd };
	ah->attr = *a;
	nd_lock();
	((struct nd_pd *)pd)->uses++;
	nd_live.ah++;
	nd_unlock();
	return &ah->ah;
}

ND_EXPORT int ibv_destroy_ah(struct vb_ah *p)
{
	ND_DESTROY("ibv_destroy_ah", nd_dev_of(p->context));
	nd_lock();
	((struct nd_pd *)p->pd)->uses--;
	nd_live.ah--;
	nd_unlock();
	free(p);
	return 0;
}

static struct group *group_of(struct nd_device *dev, const union vb_gid *gid, bool make)
{
	struct group *unused = NULL;

	for (unsigned i = 0; i < ND_DEVICES * ND_MAX_GROUPS; i++) {
		struct group *g = &groups[i];

		if (g->n && g->dev == dev && !memcmp(&g->gid, gid, sizeof(*gid)))
			return g;
		if (!g->n && !unused)
			unused = g;
	}
	if (!make || !unused)
		return NULL;
	unused->dev = dev;
	unused->gid = *gid;
	return unused;
}

static bool is_group(const union vb_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, 0xff };

	return gid->raw[0] == 0xff || (!memcmp(gid, mapped, sizeof(mapped)) && gid->raw[12] >> 4 == 0xe);
}

ND_EXPORT int ibv_attach_mcast(struct vb_qp *q, const union vb_gid *gid, uint16_t lid)
{
	struct nd_qp *qp = (struct nd_qp *)q;
	struct group *g;
	int err = 0;

	(void)lid;
	ND_CALL("ibv_attach_mcast", nd_dev_of(q->context));
	if (q->qp_type != VB_QPT_UD || !is_group(gid))
		return EINVAL;
	nd_lock();
	g = group_of(qp->ctx->dev, gid, true);
	for (int i = 0; g && i < g->n; i++)
		if (g->qps[i] == qp) {
			nd_unlock();
			return 0;
		}
	if (!g || g->n == ND_MAX_GROUP_QPS) {
		err = ENOMEM;
	} else {
		g->qps[g->n++] = qp;
		qp->mcasts++;
	}
	nd_unlock();
	return err;
}

ND_EXPORT int ibv_detach_mcast(struct vb_qp *q, const union vb_gid *gid, uint16_t lid)
{
	struct nd_qp *qp = (struct nd_qp *)q;
	struct group *g;

	(void)lid;
	ND_DESTROY("ibv_detach_mcast", nd_dev_of(q->context));
	nd_lock();
	g = group_of(qp->ctx->dev, gid, false);
	for (int i = 0; g && i < g->n; i++) {
		if (g->qps[i] != qp)
			continue;
		g->qps[i] = g->qps[--g->n];
		qp->mcasts--;
		nd_unlock();
		return 0;
	}
	nd_unlock();
	return EINVAL;
}

/* checksum is that of an IPv4 header (RFC 1071): libibverbs distinguishes the two IP versions by
 * it (ibv_init_ah_from_wc). */
static void checksum(uint8_t *ip)
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += ip[i] << 8 | ip[i + 1];
	sum = (sum >> 16) + (sum & 0xffff);
	sum = ~(sum + (sum >> 16));
	ip[10] = sum >> 8;
	ip[11] = sum;
}

/* header writes the 40 bytes: on InfiniBand a GRH (IBTA 8.3); of RoCE v2 over IPv4 the first 20 are
 * undefined (here: zeros), the rest is the IPv4 header with the meaningful fields set. */
static void header(uint8_t grh[ND_GRH], const struct nd_ctx *ctx, const union vb_gid *to)
{
	const union vb_gid gid = nd_gid_of(ctx), *from = &gid;
	uint8_t *ip = grh + ND_GRH - 20;

	memset(grh, 0, ND_GRH);
	if (ctx->profile->infiniband) {
		grh[0] = 0x60;
		grh[6] = 0x1b; /* the next header is InfiniBand's */
		memcpy(grh + 8, from, sizeof(*from));
		memcpy(grh + 24, to, sizeof(*to));
		return;
	}
	ip[0] = 0x45;
	ip[8] = 64; /* hops */
	ip[9] = 17; /* UDP */
	memcpy(ip + 12, from->raw + 12, 4);
	memcpy(ip + 16, to->raw + 12, 4);
	checksum(ip);
}

/* deliver passes a datagram to a queue pair, which drops it if it cannot receive it. */
static void deliver(struct nd_qp *from, struct nd_qp *p, struct nd_send *w, const struct nd_bytes *payload, const struct vb_ah_attr *way)
{
	struct nd_cqe e = { .opcode = VB_WC_RECV, .byte_len = w->len + ND_GRH, .wc_flags = way->is_global ? VB_WC_GRH : 0 };
	uint8_t grh[ND_GRH];
	struct nd_recv *r;
	struct nd_bytes to;

	if (p->instant || p->qp.qp_base.qp_type != VB_QPT_UD || p->state < VB_QPS_RTR || p->state > VB_QPS_SQE)
		return;
	if (p->attr.qkey != w->wr.wr.ud.remote_qkey)
		return;
	r = nd_recv_next(p, p->srq);
	if (!r)
		return;
	to = nd_bytes_of(nd_pd_of(p->qp.qp_base.pd), r->sge, r->num_sge, NULL, 0);
	if (p->state == VB_QPS_RTR && !p->comm_est) {
		p->comm_est = true;
		nd_async(p->ctx, p, VB_EVENT_COMM_EST);
	}
	e.src_qp = from->qp.qp_base.qp_num;
	e.solicited = !!(w->wr.send_flags & VB_SEND_SOLICITED);
	if (to.len < w->len + ND_GRH) {
		e.status = VB_WC_LOC_LEN_ERR;
	} else if (!nd_bytes_ok(&to, VB_ACCESS_LOCAL_WRITE)) {
		e.status = VB_WC_LOC_PROT_ERR;
	} else {
		nd_told(&e, from->ctx, way, p->ctx);
		if (way->is_global) {
			header(grh, from->ctx, &way->grh.dgid);
			nd_copy_out(&to, 0, grh, ND_GRH);
		}
		nd_copy(&to, ND_GRH, payload);
		if (w->wr.opcode == VB_WR_SEND_WITH_IMM) {
			e.wc_flags |= VB_WC_WITH_IMM;
			e.imm = w->wr.imm_data;
		}
	}
	nd_recv_done(p, p->srq, e);
	if (e.status)
		nd_qp_error(p);
}

/* nd_datagram sends one. A missing receiver is no failure. */
enum nd_outcome nd_datagram(struct nd_qp *qp, struct nd_send *w, int *status)
{
	struct nd_pd *pd = nd_pd_of(qp->qp.qp_base.pd);
	struct nd_bytes payload = nd_bytes_of(pd, w->sge, w->wr.num_sge, w->inl, w->len);
	struct nd_ah *ah = (struct nd_ah *)w->wr.wr.ud.ah;
	const struct vb_ah_attr *way;
	struct nd_qp *p;

	if (!nd_bytes_ok(&payload, 0))
		*status = VB_WC_LOC_PROT_ERR;
	else if (w->len > ND_UD_MTU)
		*status = VB_WC_LOC_LEN_ERR;
	else if (!ah || nd_pd_of(ah->ah.pd) != pd)
		*status = VB_WC_LOC_QP_OP_ERR;
	if (*status)
		return ND_FAILED;
	if (w->wr.wr.ud.remote_qkey & 0x80000000) /* IBTA 10.2.5: the high bit selects the sender's
	                                           * own key */
		w->wr.wr.ud.remote_qkey = qp->attr.qkey;
	way = &ah->attr;
	if (qp->ctx->dev->port_state != VB_PORT_ACTIVE)
		return ND_DONE;
	if (w->wr.wr.ud.remote_qpn == ND_MCAST_QPN) {
		for (int d = 0; d < ND_DEVICES; d++) {
			struct group *g = group_of(&nd_devices[d], &way->grh.dgid, false);

			for (int i = 0; g && i < g->n; i++)
				deliver(qp, g->qps[i], w, &payload, way);
		}
		return ND_DONE;
	}
	p = nd_qp_by_num(w->wr.wr.ud.remote_qpn);
	if (p && !nd_fatal(p->ctx->dev) && nd_leads_to(way, p->ctx))
		deliver(qp, p, w, &payload, way);
	return ND_DONE;
}
