/* Links: the ports of a device, and the device that an address leads to. */
#include "nd.h"

enum {
	FIRST_LID = 0x20,	/* of null0; a port has 2^lmc LIDs */
	SUBNET_MANAGER = 1,	/* its LID */
};

/* nd_port_of returns the number of the port that is up; those before it are down and have no
 * address. */
uint8_t nd_port_of(const struct nd_ctx *c) { return c->profile->up ? c->profile->up : 1; }

static uint16_t lid_of(const struct nd_ctx *c, int dev) { return FIRST_LID + (dev << c->profile->lmc); }

static uint16_t path_bits(const struct nd_ctx *c) { return (1 << c->profile->lmc) - 1; }

void nd_port_attr(const struct nd_ctx *c, struct vb_port_attr *a)
{
	if (c->profile->gids)
		a->gid_tbl_len = c->profile->gid_tbl_len;
	if (!c->profile->infiniband)
		return;
	a->link_layer = VB_LINK_LAYER_INFINIBAND;
	a->port_cap_flags &= ~(1U << 26); /* IP_BASED_GIDS */
	a->lid = lid_of(c, c->dev - nd_devices);
	a->lmc = c->profile->lmc;
	a->sm_lid = SUBNET_MANAGER;
}

/* nd_path_valid reports whether the device takes an address (rdma_check_ah_attr in the kernel's
 * core/verbs.c): RoCE needs the GRH, InfiniBand does not. */
bool nd_path_valid(const struct nd_ctx *c, const struct vb_ah_attr *a)
{
	struct vb_gid_entry e;

	return a->port_num == nd_port_of(c) &&
	       (a->is_global ? nd_gid_entry(c->profile, c->dev - nd_devices, a->grh.sgid_index, &e) : c->profile->infiniband);
}

bool nd_leads_to(const struct vb_ah_attr *a, const struct nd_ctx *to)
{
	if (to->profile->infiniband && (a->dlid & ~path_bits(to)) != lid_of(to, to->dev - nd_devices))
		return false;
	return !a->is_global || nd_gid_find(to->profile, to->dev - nd_devices, &a->grh.dgid) >= 0;
}

/* nd_told fills in what a completion says of the way of a datagram. */
void nd_told(struct nd_cqe *e, const struct nd_ctx *from, const struct vb_ah_attr *a, const struct nd_ctx *to)
{
	e->sl = a->sl;
	if (!from->profile->infiniband)
		return;
	e->slid = lid_of(from, from->dev - nd_devices) | (a->src_path_bits & path_bits(from));
	e->path_bits = a->dlid & path_bits(to);
}

/* For librdmacm: the way to a device that the kernel tells. Within a subnet of InfiniBand it is a
 * LID alone: a path record has a hop limit there only to other subnets (kernel core/sa_query.c,
 * ib_init_ah_attr_from_path). */
ND_EXPORT void nulldev_path(struct vb_context *c, int dev, struct vb_ah_attr *a)
{
	struct nd_ctx *ctx = nd_ctx_of(c);

	memset(a, 0, sizeof(*a));
	a->port_num = nd_port_of(ctx);
	if (ctx->profile->infiniband) {
		a->dlid = lid_of(ctx, dev);
		return;
	}
	a->is_global = 1;
	a->grh.hop_limit = 64;
	a->grh.sgid_index = nd_gid(ctx->profile, ctx->dev - nd_devices, &a->grh.dgid);
	nd_gid(ctx->profile, dev, &a->grh.dgid);
}

/* The same of a multicast group: always with a GRH (core/verbs.c, ib_init_ah_from_mcmember). Its GID
 * is the IP address on RoCE, and on InfiniBand that of IPoIB (RFC 4391, 4; ip_ib_mc_map). */
ND_EXPORT void nulldev_group(struct vb_context *c, union vb_gid *gid, struct vb_ah_attr *a)
{
	static const uint8_t ipoib[] = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff };
	enum { FIRST_GROUP_LID = 0xc000 };
	struct nd_ctx *ctx = nd_ctx_of(c);

	memset(a, 0, sizeof(*a));
	a->port_num = nd_port_of(ctx);
	if (ctx->profile->infiniband) {
		if (gid->raw[0] != 0xff) {
			memset(gid->raw, 0, 12);
			memcpy(gid->raw, ipoib, sizeof(ipoib));
			gid->raw[12] &= 0xf;
		}
		a->dlid = FIRST_GROUP_LID;
	}
	a->is_global = 1;
	a->grh.hop_limit = 1;
	a->grh.dgid = *gid;
}

ND_EXPORT uint8_t nulldev_port(struct vb_context *c) { return nd_port_of(nd_ctx_of(c)); }
