/* Devices, contexts, and queries. */
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <unistd.h>
#include "nd.h"

enum { ND_GUID = 0x0200005eU };

struct nd_device nd_devices[ND_DEVICES];
struct nulldev_objects nd_live;
struct nulldev_stats nd_past;
static uint32_t nd_mode;

/* null0 is 127.0.0.1, null1 127.0.0.2, as RoCE v2 addresses. */
__attribute__((constructor)) static void devices(void)
{
	const char *mode = getenv("VERBENA_NULLDEV_MODE");

	if (mode && !strcmp(mode, "instant"))
		nd_mode = NULLDEV_INSTANT;
	for (int i = 0; i < ND_DEVICES; i++) {
		struct nd_device *d = &nd_devices[i];

		snprintf(d->dev.name, sizeof(d->dev.name), "null%d", i);
		snprintf(d->dev.dev_name, sizeof(d->dev.dev_name), "unull%d", i);
		memcpy(d->gid.raw + 10, "\xff\xff\x7f\0\0", 5);
		d->gid.raw[15] = i + 1;
		d->port_state = VB_PORT_ACTIVE;
	}
}

ND_EXPORT void nulldev_set_mode(uint32_t mode)
{
	__atomic_store_n(&nd_mode, mode, __ATOMIC_RELAXED);
}

ND_EXPORT struct vb_device **ibv_get_device_list(int *num)
{
	struct vb_device **list;

	ND_CALL_PTR("ibv_get_device_list", NULL);
	list = calloc(ND_DEVICES + 1, sizeof(*list));
	if (!list)
		return nd_null(ENOMEM);
	for (int i = 0; i < ND_DEVICES; i++) {
		const struct nd_profile *p = nd_profile_now();

		nd_devices[i].dev.node_type = p->node ? p->node : VB_NODE_CA;
		nd_devices[i].dev.transport_type = p->transport;
		list[i] = &nd_devices[i].dev;
	}
	if (num)
		*num = ND_DEVICES;
	return list;
}

ND_EXPORT void ibv_free_device_list(struct vb_device **list) { free(list); }
ND_EXPORT const char *ibv_get_device_name(struct vb_device *d) { return d->name; }

ND_EXPORT uint64_t ibv_get_device_guid(struct vb_device *d)
{
	return htobe64((uint64_t)ND_GUID << 32 | ((struct nd_device *)d)->gid.raw[15]);
}

ND_EXPORT int ibv_get_device_index(struct vb_device *d) { return ((struct nd_device *)d)->gid.raw[15] - 1; }

static int query_port(struct vb_context *c, uint8_t port, struct vb_port_attr *out, size_t len);
static int query_device_ex(struct vb_context *c, const struct vb_query_device_ex_input *in,
			   struct vb_device_attr_ex *out, size_t len);

static const struct vb_verbs_context calls = {
	.query_port = query_port,
	.advise_mr = nd_advise_mr,
	.alloc_parent_domain = nd_alloc_parent_domain,
	.dealloc_td = nd_dealloc_td,
	.alloc_td = nd_alloc_td,
	.create_cq_ex = nd_create_cq_ex,
	.query_device_ex = query_device_ex,
	.open_qp = nd_open_qp,
	.create_qp_ex = nd_create_qp_ex,
	.get_srq_num = nd_get_srq_num,
	.create_srq_ex = nd_create_srq_ex,
	.open_xrcd = nd_open_xrcd,
	.close_xrcd = nd_close_xrcd,
	.sz = sizeof(struct vb_verbs_context),
	.context = {
		.ops = {
			.alloc_mw = nd_alloc_mw,
			.bind_mw = nd_bind_mw,
			.dealloc_mw = nd_dealloc_mw,
			.poll_cq = nd_poll_cq,
			.req_notify_cq = nd_req_notify_cq,
			.post_srq_recv = nd_post_srq_recv,
			.post_send = nd_post_send,
			.post_recv = nd_post_recv,
		},
		.cmd_fd = -1,
		.num_comp_vectors = 1,
		.abi_compat = VB_ABI_IS_EXTENDED,
	},
};

ND_EXPORT struct vb_context *ibv_open_device(struct vb_device *d)
{
	struct nd_device *dev = (struct nd_device *)d;
	struct nd_ctx *ctx;
	int err;

	ND_CALL_PTR("ibv_open_device", dev);
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return nd_null(ENOMEM);
	ctx->v = calls;
	ctx->dev = dev;
	ctx->profile = nd_profile_now();
	ctx->instant = __atomic_load_n(&nd_mode, __ATOMIC_RELAXED) == NULLDEV_INSTANT;
	err = nd_evq_init(&ctx->async);
	if (err) {
		free(ctx);
		return nd_null(err);
	}
	ctx->v.context.device = d;
	ctx->v.context.async_fd = ctx->async.fd;
	pthread_mutex_init(&ctx->v.context.mutex, NULL);
	nd_lock();
	ctx->next = dev->ctxs;
	dev->ctxs = ctx;
	nd_live.context++;
	nd_unlock();
	return &ctx->v.context;
}

/* For librdmacm, which ignores the result of closing (cma.c, ucma_put_device): a fault there
 * would be a leak that no program can prevent. */
ND_EXPORT int nulldev_close_device(struct vb_context *c)
{
	struct nd_ctx *ctx = nd_ctx_of(c);
	bool last;

	nd_lock();
	for (struct nd_ctx **p = &ctx->dev->ctxs; *p; p = &(*p)->next)
		if (*p == ctx) {
			*p = ctx->next;
			break;
		}
	last = --nd_live.context == 0;
	nd_unlock();
	if (last)
		nd_timer_stop();
	nd_evq_end(&ctx->async);
	pthread_mutex_destroy(&c->mutex);
	free(ctx);
	return 0;
}

ND_EXPORT int ibv_close_device(struct vb_context *c)
{
	ND_DESTROY("ibv_close_device", nd_dev_of(c));
	return nulldev_close_device(c);
}

static void limits(struct vb_context *c, struct vb_device_attr_ex *x)
{
	struct nd_device *dev = nd_dev_of(c);
	struct vb_device_attr *a = &x->orig_attr;

	memset(x, 0, sizeof(*x));
	snprintf(a->fw_ver, sizeof(a->fw_ver), "1.0");
	a->node_guid = a->sys_image_guid = ibv_get_device_guid(&dev->dev);
	a->max_mr_size = ~0ULL;
	a->page_size_cap = 4096;
	a->max_qp = ND_MAX_QP - 1;
	a->max_qp_wr = ND_MAX_QP_WR;
	a->device_cap_flags = VB_DEVICE_CURR_QP_STATE_MOD | VB_DEVICE_RC_RNR_NAK_GEN |
		VB_DEVICE_PORT_ACTIVE_EVENT | VB_DEVICE_SRQ_RESIZE | VB_DEVICE_MEM_WINDOW | VB_DEVICE_XRC |
		VB_DEVICE_MEM_MGT_EXTENSIONS | VB_DEVICE_MEM_WINDOW_TYPE_2B;
	a->max_sge = a->max_sge_rd = a->max_srq_sge = ND_MAX_SGE;
	a->max_cq = a->max_pd = a->max_ah = 1 << 16;
	a->max_cqe = ND_MAX_CQE;
	a->max_mr = a->max_mw = ND_MAX_KEYS - 1;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = ND_MAX_RD_ATOM;
	a->local_ca_ack_delay = ND_ACK_DELAY;
	a->max_res_rd_atom = ND_MAX_RD_ATOM * ND_MAX_QP;
	a->atomic_cap = VB_ATOMIC_HCA;
	a->max_mcast_grp = ND_MAX_GROUPS;
	a->max_mcast_qp_attach = ND_MAX_GROUP_QPS;
	a->max_total_mcast_qp_attach = ND_MAX_GROUPS * ND_MAX_GROUP_QPS;
	a->max_srq = ND_MAX_SRQ;
	a->max_srq_wr = ND_MAX_QP_WR;
	a->max_pkeys = 1;
	a->phys_port_cnt = nd_port_of(nd_ctx_of(c));
	/* FLUSH_GLOBAL, FLUSH_PERSISTENT, ATOMIC_WRITE (kernel, ib_device_cap_flags) */
	x->device_cap_flags_ex = 1ULL << 38 | 1ULL << 39 | 1ULL << 40;
	nd_odp_caps(x);
	if (nd_profile_of(c)->limits)
		nd_profile_of(c)->limits(x);
	x->device_cap_flags_ex |= a->device_cap_flags;
}

ND_EXPORT bool nulldev_tos_unsent(struct vb_context *c) { return nd_profile_of(c)->tos_unsent; }

/* For librdmacm: qpn is the queue pair of an end that accepts. */
ND_EXPORT void nulldev_accepts(struct vb_context *c, uint32_t qpn)
{
	struct nd_qp *qp;

	nd_lock();
	qp = nd_qp_by_num(qpn);
	if (qp && nd_profile_of(c)->dialer_first)
		qp->silent = true;
	nd_unlock();
}

/* For librdmacm, whose kernel part reads it when a device appears (cm.c, cm_add_one). */
ND_EXPORT uint8_t nulldev_ack_delay(struct vb_context *c)
{
	struct vb_device_attr_ex x;

	limits(c, &x);
	return x.orig_attr.local_ca_ack_delay;
}

ND_EXPORT int ibv_query_device(struct vb_context *c, struct vb_device_attr *a)
{
	struct vb_device_attr_ex x;

	ND_CALL("ibv_query_device", nd_dev_of(c));
	limits(c, &x);
	*a = x.orig_attr;
	return 0;
}

static int query_device_ex(struct vb_context *c, const struct vb_query_device_ex_input *in,
			   struct vb_device_attr_ex *out, size_t len)
{
	struct vb_device_attr_ex a;

	ND_CALL("ibv_query_device_ex", nd_dev_of(c));
	if ((in && in->comp_mask) || len < sizeof(a.orig_attr))
		return EINVAL;
	limits(c, &a);
	memset(out, 0, len);
	memcpy(out, &a, len < sizeof(a) ? len : sizeof(a));
	return 0;
}

static int query_port(struct vb_context *c, uint8_t port, struct vb_port_attr *out, size_t len)
{
	struct vb_port_attr a = {
		.max_mtu = VB_MTU_4096, .active_mtu = VB_MTU_4096, .gid_tbl_len = 1,
		.port_cap_flags = 1 << 16 | 1 << 26, /* CM_SUP, IP_BASED_GIDS */
		.max_msg_sz = ND_MAX_MSG, .pkey_tbl_len = 1, .active_width = 2, .active_speed = 32,
		.phys_state = 5, .link_layer = VB_LINK_LAYER_ETHERNET, .max_vl_num = 1,
	};

	ND_CALL("ibv_query_port", nd_dev_of(c));
	if (port < 1 || port > nd_port_of(nd_ctx_of(c)))
		return EINVAL;
	if (port == nd_port_of(nd_ctx_of(c))) {
		a.state = __atomic_load_n(&nd_dev_of(c)->port_state, __ATOMIC_RELAXED);
	} else {
		a.state = VB_PORT_DOWN;
		a.active_mtu = VB_MTU_256;
	}
	nd_port_attr(nd_ctx_of(c), &a);
	if (nd_profile_of(c)->port)
		nd_profile_of(c)->port(&a);
	memset(out, 0, len);
	memcpy(out, &a, len < sizeof(a) ? len : sizeof(a));
	return 0;
}

/* The exported function writes the old, shorter struct: a caller that passes the new one finds
 * its tail unchanged. */
ND_EXPORT int ibv_query_port(struct vb_context *c, uint8_t port, void *out)
{
	return query_port(c, port, out, offsetof(struct vb_port_attr, port_cap_flags2));
}

ND_EXPORT int ibv_query_gid(struct vb_context *c, uint8_t port, int index, union vb_gid *gid)
{
	struct nd_ctx *ctx = nd_ctx_of(c);
	struct vb_gid_entry e;

	ND_CALL_("ibv_query_gid", nd_dev_of(c), false, -1);
	if (port < 1 || port > nd_port_of(ctx) || index < 0 || index >= nd_gid_len(ctx->profile)) {
		errno = EINVAL;
		return -1;
	}
	memset(gid, 0, sizeof(*gid)); /* an empty entry */
	if (port == nd_port_of(ctx) && nd_gid_entry(ctx->profile, ctx->dev - nd_devices, index, &e))
		*gid = e.gid;
	return 0;
}

ND_EXPORT int _ibv_query_gid_ex(struct vb_context *c, uint32_t port, uint32_t index,
				struct vb_gid_entry *out, uint32_t flags, size_t len)
{
	struct nd_ctx *ctx = nd_ctx_of(c);
	struct vb_gid_entry e;

	ND_CALL("ibv_query_gid_ex", nd_dev_of(c));
	if (port < 1 || port > nd_port_of(ctx) || flags)
		return EINVAL;
	if (port != nd_port_of(ctx) || !nd_gid_entry(ctx->profile, ctx->dev - nd_devices, index, &e))
		return ENODATA; /* the kernel's errno for an empty entry */
	e.port_num = port;
	memcpy(out, &e, len < sizeof(e) ? len : sizeof(e));
	return 0;
}

ND_EXPORT ssize_t _ibv_query_gid_table(struct vb_context *c, struct vb_gid_entry *out, size_t max,
				       uint32_t flags, size_t len)
{
	struct nd_ctx *ctx = nd_ctx_of(c);
	struct vb_gid_entry e;
	size_t n = 0;

	ND_CALL_("ibv_query_gid_table", nd_dev_of(c), false, -ret_);
	if (flags)
		return -EINVAL;
	for (int i = 0; i < nd_gid_len(ctx->profile); i++) {
		if (!nd_gid_entry(ctx->profile, ctx->dev - nd_devices, i, &e))
			continue;
		if (n == max)
			return -EINVAL;
		e.port_num = nd_port_of(ctx);
		memcpy((char *)out + n++ * len, &e, len < sizeof(e) ? len : sizeof(e));
	}
	return n;
}

ND_EXPORT int ibv_query_pkey(struct vb_context *c, uint8_t port, int index, uint16_t *pkey)
{
	ND_CALL_("ibv_query_pkey", nd_dev_of(c), false, -1);
	if (port < 1 || port > nd_port_of(nd_ctx_of(c)) || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

ND_EXPORT int ibv_get_pkey_index(struct vb_context *c, uint8_t port, uint16_t pkey)
{
	return port >= 1 && port <= nd_port_of(nd_ctx_of(c)) && pkey == 0xffff ? 0 : -1;
}
