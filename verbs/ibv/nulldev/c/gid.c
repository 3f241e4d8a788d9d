/* The address tables of the devices: the profile's, and what a test has changed since. */
#include "nd.h"

enum { CHANGES = 16, LO = 1 };

/* change_mu guards changes, which replace entries of the profiles' tables. */
static pthread_mutex_t change_mu = PTHREAD_MUTEX_INITIALIZER;
static struct {
	bool on;
	int dev;
	struct vb_gid_entry e; /* without an address: the entry is empty */
} changes[CHANGES];

static const union vb_gid none;

/* by_itself is the entry of a profile without a table. */
static void by_itself(const struct nd_profile *p, int dev, struct vb_gid_entry *e)
{
	static const uint8_t prefix[] = { 0xfe, 0x80 };

	*e = (struct vb_gid_entry){ .gid = nd_devices[dev].gid, .gid_type = VB_GID_TYPE_ROCE_V2, .ndev_ifindex = LO };
	if (!p->infiniband && p->transport != VB_TRANSPORT_IWARP)
		return;
	/* On InfiniBand it is made of the prefix of the subnet and a port's GUID (IBTA 4.1.1); of iWARP
	 * it is the MAC address (irdma_query_gid, siw_query_gid). */
	memset(&e->gid, 0, sizeof(e->gid));
	e->gid_type = VB_GID_TYPE_IB;
	e->ndev_ifindex = 0;
	if (p->infiniband) {
		memcpy(e->gid.raw, prefix, sizeof(prefix));
		e->gid.raw[8] = 2;
		e->gid.raw[15] = dev + 1;
	} else {
		e->gid.raw[0] = 2;
		e->gid.raw[5] = dev + 1;
	}
}

/* nd_gid_entry reads an entry of the table of the port that is up; false for an empty one. */
bool nd_gid_entry(const struct nd_profile *p, int dev, int index, struct vb_gid_entry *e)
{
	memset(e, 0, sizeof(*e));
	if (!p->gids && index == 0)
		by_itself(p, dev, e);
	for (int i = 0; i < p->n_gids; i++) {
		const struct nd_gid *g = &p->gids[i];

		if (g->index != index)
			continue;
		*e = (struct vb_gid_entry){ .gid = g->gid, .gid_type = g->type, .ndev_ifindex = g->ifindex };
		e->gid.raw[15] += dev;
	}
	pthread_mutex_lock(&change_mu);
	for (int i = 0; i < CHANGES; i++)
		if (changes[i].on && changes[i].dev == dev && changes[i].e.gid_index == (uint32_t)index)
			*e = changes[i].e;
	pthread_mutex_unlock(&change_mu);
	e->gid_index = index;
	return memcmp(&e->gid, &none, sizeof(none));
}

/* nd_gid_len is the length of the table. */
int nd_gid_len(const struct nd_profile *p) { return p->gids ? p->gid_tbl_len : 1; }

/* nd_gid_find returns the index of an address; -1 for none. */
int nd_gid_find(const struct nd_profile *p, int dev, const union vb_gid *gid)
{
	struct vb_gid_entry e;

	for (int i = 0; i < nd_gid_len(p); i++)
		if (nd_gid_entry(p, dev, i, &e) && !memcmp(&e.gid, gid, sizeof(*gid)))
			return i;
	return -1;
}

/* nd_gid returns the address that packets of a device have, and its index: IPv4 by RoCE v2 of this name
 * space, else the first. */
int nd_gid(const struct nd_profile *p, int dev, union vb_gid *gid)
{
	static const uint8_t mapped[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	struct vb_gid_entry e;
	int first = -1;

	memset(gid, 0, sizeof(*gid));
	for (int i = 0; i < nd_gid_len(p); i++) {
		bool best;

		if (!nd_gid_entry(p, dev, i, &e))
			continue;
		best = e.gid_type == VB_GID_TYPE_ROCE_V2 && e.ndev_ifindex == LO && !memcmp(&e.gid, mapped, sizeof(mapped));
		if (first >= 0 && !best)
			continue;
		first = i;
		*gid = e.gid;
		if (best)
			break;
	}
	return first;
}

union vb_gid nd_gid_of(const struct nd_ctx *c)
{
	union vb_gid gid;

	nd_gid(c->profile, c->dev - nd_devices, &gid);
	return gid;
}

/* Replaces an entry of a device's table, by none for an address of zeros, and raises GID_CHANGE. */
ND_EXPORT int nulldev_set_gid(const char *device, uint32_t index, const uint8_t gid[16], uint32_t ifindex)
{
	int dev = strncmp(device, "null", 4) ? -1 : atoi(device + 4), at = -1;

	if (dev < 0 || dev >= ND_DEVICES)
		return -ENODEV;
	pthread_mutex_lock(&change_mu);
	for (int i = 0; i < CHANGES; i++)
		if (changes[i].on ? changes[i].dev == dev && changes[i].e.gid_index == index : at < 0)
			at = i;
	if (at >= 0) {
		changes[at].on = true;
		changes[at].dev = dev;
		changes[at].e = (struct vb_gid_entry){ .gid_index = index, .gid_type = VB_GID_TYPE_ROCE_V2, .ndev_ifindex = ifindex };
		memcpy(&changes[at].e.gid, gid, sizeof(changes[at].e.gid));
	}
	pthread_mutex_unlock(&change_mu);
	return at < 0 ? -ENOSPC : nulldev_port_event(device, VB_EVENT_GID_CHANGE);
}

/* Undoes all changes, without an event. */
ND_EXPORT void nulldev_reset_gids(void)
{
	pthread_mutex_lock(&change_mu);
	for (int i = 0; i < CHANGES; i++)
		changes[i].on = false;
	pthread_mutex_unlock(&change_mu);
}

/* For librdmacm. */
ND_EXPORT void nulldev_gid(struct vb_context *c, int dev, union vb_gid *gid)
{
	nd_gid(c ? nd_profile_of(c) : nd_profile_now(), dev, gid);
}

/* nulldev_dev_of returns the device that has an IP address in this name space; -1 for none. IPoIB and
 * iWARP have those of network interfaces, which the null device takes to be 127.0.0.1 and 127.0.0.2. */
ND_EXPORT int nulldev_dev_of(const union vb_gid *ip)
{
	const struct nd_profile *p = nd_profile_now();
	struct vb_gid_entry e;

	for (int d = 0; d < ND_DEVICES; d++) {
		int i;

		if (p->infiniband || p->transport == VB_TRANSPORT_IWARP) {
			if (!memcmp(ip, &nd_devices[d].gid, sizeof(*ip)))
				return d;
			continue;
		}
		i = nd_gid_find(p, d, ip);
		if (i >= 0 && nd_gid_entry(p, d, i, &e) && e.ndev_ifindex == LO)
			return d;
	}
	return -1;
}
