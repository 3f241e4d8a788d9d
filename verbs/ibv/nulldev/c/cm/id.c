/* Identifiers: addresses, migrating, destroying. */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <unistd.h>
#include "cm.h"

pthread_mutex_t cm_mu = PTHREAD_MUTEX_INITIALIZER;
struct cm_id *cm_ids;
static uint16_t next_port;
static uint64_t made; /* identifiers */

bool cm_is_ud(const struct cm_id *id) { return id->id.qp_type == VB_QPT_UD; }

union vb_gid cm_gid(const struct cm_id *id, int dev)
{
	union vb_gid g;

	nulldev_gid(id->id.verbs, dev, &g);
	return g;
}

static const union vb_gid any;

static bool is_any(const union vb_gid *at) { return !memcmp(at, &any, sizeof(any)); }

static union vb_gid mapped(const void *four)
{
	union vb_gid g = { .raw = { [10] = 0xff, 0xff } };

	memcpy(g.raw + 12, four, 4);
	return g;
}

static bool is_six(const union vb_gid *at) { return !is_any(at) && !IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)at); }

/* address_of is 127.0.0.1 and 127.0.0.2, by which the code below names the ends of AF_IB. */
static union vb_gid address_of(int dev)
{
	const uint8_t four[] = { 127, 0, 0, dev + 1 };

	return mapped(four);
}

/* parse_ib reads an address of InfiniBand, whose service must be of the port space (cma.c, cma_select_ib_ps). */
static int parse_ib(const struct vb_sockaddr_ib *ib, int ps, union vb_gid *at, int *dev, uint16_t *port)
{
	uint64_t sid = be64toh(ib->sib_sid), mask = be64toh(ib->sib_sid_mask);

	if (((sid ^ (uint64_t)ps << 16) & mask) >> 16)
		return EPROTONOSUPPORT;
	*port = sid & mask;
	if (is_any(&ib->sib_addr))
		return 0;
	for (int d = 0; d < CM_DEVICES; d++) {
		union vb_gid gid;

		nulldev_gid(NULL, d, &gid);
		if (memcmp(&ib->sib_addr, &gid, sizeof(gid)))
			continue;
		*at = address_of(d);
		*dev = d;
		return 0;
	}
	return ENODEV;
}

/* parse reads an address: IPv4, IPv6, or of InfiniBand, as if the ports were InfiniBand's. at is zeros
 * for any, and dev -1 for an address that no device has. */
static int parse(const struct sockaddr *sa, int ps, union vb_gid *at, int *dev, uint16_t *port)
{
	*at = any;
	*dev = -1;
	if (sa->sa_family == VB_AF_IB)
		return parse_ib((const void *)sa, ps, at, dev, port);
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)sa;

		*port = ntohs(in->sin_port);
		if (in->sin_addr.s_addr)
			*at = mapped(&in->sin_addr);
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)sa;

		*port = ntohs(in->sin6_port);
		memcpy(at, &in->sin6_addr, sizeof(*at));
		if (IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr) && !in->sin6_scope_id)
			return EINVAL; /* cma.c, cma_check_linklocal */
	} else {
		return EAFNOSUPPORT;
	}
	if (!is_any(at))
		*dev = nulldev_dev_of(at);
	return 0;
}

static void set(struct sockaddr *sa, bool six, const union vb_gid *at, uint16_t port)
{
	if (six) {
		struct sockaddr_in6 in = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

		memcpy(&in.sin6_addr, at, sizeof(*at));
		in.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr);
		memcpy(sa, &in, sizeof(in));
	} else {
		struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

		memcpy(&in.sin_addr, at->raw + 12, 4);
		memcpy(sa, &in, sizeof(in));
	}
}

void cm_set_addrs(struct cm_id *id, int peer_dev)
{
	struct vb_rdma_addr *a = &id->id.route.addr;

	set((struct sockaddr *)&a->src_storage, id->six, &id->at, id->port);
	if (id->dev >= 0)
		a->addr.ibaddr.sgid = cm_gid(id, id->dev);
	a->addr.ibaddr.pkey = 0xffff;
	if (id->ib) {
		struct vb_sockaddr_ib ib = { .sib_family = VB_AF_IB, .sib_pkey = 0xffff,
			.sib_sid = htobe64((uint64_t)id->id.ps << 16 | id->port), .sib_sid_mask = ~0ULL };

		if (id->dev >= 0)
			ib.sib_addr = cm_gid(id, id->dev);
		memcpy(&a->src_storage, &ib, sizeof(ib));
	}
	if (peer_dev < 0)
		return;
	id->peer_dev = peer_dev;
	if (id->ib) {
		if (id->accepted) /* the service of the peer is not known (cma.c, cma_save_ib_info) */
			id->peer_ib = (struct vb_sockaddr_ib){ .sib_family = VB_AF_IB, .sib_pkey = 0xffff, .sib_addr = cm_gid(id, peer_dev) };
		memcpy(&a->dst_storage, &id->peer_ib, sizeof(id->peer_ib));
		a->addr.ibaddr.dgid = cm_gid(id, peer_dev);
		return;
	}
	set((struct sockaddr *)&a->dst_storage, id->six, &id->peer_at, id->peer_port);
	a->addr.ibaddr.dgid = cm_gid(id, peer_dev);
}

bool cm_taken(const struct cm_id *me, const union vb_gid *at, bool any, uint16_t port)
{
	for (struct cm_id *x = cm_ids; x; x = x->next) {
		if (x == me || x->port != port || x->id.ps != me->id.ps || x->state == CM_IDLE || x->state == CM_REQUEST || x->accepted)
			continue;
		if (any || x->bound_any || !memcmp(&x->at, at, sizeof(*at)))
			if (!(x->reuse && me->reuse && x->state != CM_LISTEN))
				return true;
	}
	return false;
}

/* bind_to binds to an address; for port 0 it chooses one. */
static int bind_to(struct cm_id *id, int family, const union vb_gid *at, int dev, uint16_t port)
{
	bool all = is_any(at);

	if (!all && dev < 0)
		return ENODEV; /* rdma_bind_addr, cma_translate_addr: no such device */
	if (port && cm_taken(id, at, all, port))
		return EADDRINUSE;
	for (int n = 0; !port && n < 0x4000; n++) {
		uint16_t p = CM_FIRST_PORT + next_port++ % 0x3fff;

		if (!cm_taken(id, at, true, p))
			port = p;
	}
	if (!port)
		return EADDRNOTAVAIL;
	id->dev = dev;
	id->at = *at;
	id->six = family == AF_INET6 && (all || is_six(at));
	id->ib = family == VB_AF_IB;
	id->bound_any = all;
	id->port = port;
	id->state = CM_BOUND;
	cm_set_addrs(id, -1);
	return 0;
}

/* cm_open_device opens the context of an identifier. Each identifier has its own; the device is
 * found by its index in the list. An open file stands for librdmacm's own context, which the
 * kernel's removal of the device would wait for. */
int cm_open_device(struct cm_id *id, int dev)
{
	struct vb_device **list;
	struct vb_context *c = NULL;
	int n, err;

	if (id->id.verbs)
		return 0;
	list = ibv_get_device_list(&n);
	if (list && dev < n)
		c = ibv_open_device(list[dev]);
	err = c ? 0 : -errno;
	if (list)
		ibv_free_device_list(list);
	if (c)
		c->cmd_fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	id->id.verbs = c;
	id->id.port_num = c ? nulldev_port(c) : 0;
	return err;
}

struct cm_id *cm_make(struct vb_rdma_event_channel *ch, void *context, int ps, int qp_type)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->id.channel = ch;
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = qp_type;
	id->dev = -1;
	id->serial = ++made;
	pthread_mutex_init(&id->mu, NULL);
	pthread_cond_init(&id->cond, NULL);
	id->next = cm_ids;
	cm_ids = id;
	return id;
}

/* cm_drop frees an identifier that is no longer referenced. */
void cm_drop(struct cm_id *id)
{
	for (struct cm_id **p = &cm_ids; *p; p = &(*p)->next)
		if (*p == id) {
			*p = id->next;
			break;
		}
	if (id->peer && id->peer->peer == id)
		id->peer->peer = NULL;
	if (id->id.verbs) {
		if (id->id.verbs->cmd_fd >= 0)
			close(id->id.verbs->cmd_fd);
		nulldev_close_device(id->id.verbs);
	}
	pthread_mutex_destroy(&id->mu);
	pthread_cond_destroy(&id->cond);
	free(id);
}

static int create(struct vb_rdma_event_channel *ch, struct vb_rdma_cm_id **out, void *context, int ps, int qp_type)
{
	struct cm_id *id;

	pthread_mutex_lock(&cm_mu);
	id = cm_make(ch, context, ps, qp_type);
	pthread_mutex_unlock(&cm_mu);
	if (!id)
		return cm_err(ENOMEM);
	nulldev_cm_count(0, 1, 0);
	*out = &id->id;
	return 0;
}

CM_EXPORT int rdma_create_id(struct vb_rdma_event_channel *ch, struct vb_rdma_cm_id **out, void *context, vb_enum ps)
{
	CM_CALL("rdma_create_id", NULL);
	if (!ch || (ps != VB_RDMA_PS_TCP && ps != VB_RDMA_PS_UDP && ps != VB_RDMA_PS_IPOIB && ps != VB_RDMA_PS_IB))
		return cm_err(EINVAL); /* without a channel: synchronous mode, which is not implemented */
	return create(ch, out, context, ps, ps == VB_RDMA_PS_UDP || ps == VB_RDMA_PS_IPOIB ? VB_QPT_UD : VB_QPT_RC);
}

/* Of a passive side without a queue pair alone: others wait for events, and synchronous identifiers are not
 * implemented but for rdma_migrate_id. The kernel takes the type in port space IB only (ucma.c, ucma_get_qp_type). */
CM_EXPORT int rdma_create_ep(struct vb_rdma_cm_id **out, struct vb_rdma_addrinfo *res, struct vb_pd *pd, struct vb_qp_init_attr *init)
{
	struct vb_rdma_event_channel *ch;
	struct vb_rdma_cm_id *p;
	int err;

	CM_CALL("rdma_create_ep", NULL);
	if (!(res->ai_flags & VB_RAI_PASSIVE) || pd || init || res->ai_port_space != VB_RDMA_PS_IB)
		return cm_err(ENOSYS);
	ch = rdma_create_event_channel();
	if (!ch)
		return -1;
	if (create(ch, &p, NULL, res->ai_port_space, res->ai_qp_type)) {
		rdma_destroy_event_channel(ch);
		return -1;
	}
	((struct cm_id *)p)->sync = true;
	if (rdma_bind_addr(p, res->ai_src_addr)) {
		err = errno;
		rdma_destroy_id(p);
		return cm_err(err);
	}
	*out = p;
	return 0;
}

/* Destroying ends the connection, and waits until all events are acknowledged. */
CM_EXPORT int rdma_destroy_id(struct vb_rdma_cm_id *p)
{
	struct cm_id *id = (struct cm_id *)p;
	struct vb_rdma_event_channel *own = id->sync ? p->channel : NULL;
	uint32_t n;

	CM_DESTROY("rdma_destroy_id");
	pthread_mutex_lock(&cm_mu);
	if (id->state == CM_REQUEST || id->state == CM_ASKED)
		cm_refuse(id, CM_REJ_CONSUMER, NULL, 0);
	else
		cm_part(id);
	id->state = CM_OVER;
	cm_forget(cm_channel_of(id), id);
	n = id->reported;
	pthread_mutex_unlock(&cm_mu);
	pthread_mutex_lock(&id->mu);
	while (id->completed < n)
		pthread_cond_wait(&id->cond, &id->mu);
	pthread_mutex_unlock(&id->mu);
	while (id->mcs) {
		struct cm_mc *mc = id->mcs;

		id->mcs = mc->next;
		free(mc);
	}
	pthread_mutex_lock(&cm_mu);
	cm_drop(id);
	pthread_mutex_unlock(&cm_mu);
	if (own)
		rdma_destroy_event_channel(own);
	nulldev_cm_count(0, -1, 0);
	return 0;
}

CM_EXPORT int rdma_bind_addr(struct vb_rdma_cm_id *p, struct sockaddr *sa)
{
	struct cm_id *id = (struct cm_id *)p;
	union vb_gid at;
	uint16_t port;
	int err, dev;

	CM_CALL("rdma_bind_addr", p->verbs);
	err = parse(sa, p->ps, &at, &dev, &port);
	if (err)
		return cm_err(err);
	pthread_mutex_lock(&cm_mu);
	err = id->state == CM_IDLE ? bind_to(id, sa->sa_family, &at, dev, port) : EINVAL;
	if (!err && id->dev >= 0)
		err = -cm_open_device(id, id->dev);
	pthread_mutex_unlock(&cm_mu);
	return err ? cm_err(err) : 0;
}

CM_EXPORT int rdma_resolve_addr(struct vb_rdma_cm_id *p, struct sockaddr *src, struct sockaddr *dst, int timeout)
{
	struct cm_id *id = (struct cm_id *)p;
	union vb_gid from = any, to;
	uint16_t port = 0, peer_port;
	int err, peer, dev = -1;

	(void)timeout;
	CM_CALL("rdma_resolve_addr", p->verbs);
	err = parse(dst, p->ps, &to, &peer, &peer_port);
	if (!err && src)
		err = parse(src, p->ps, &from, &dev, &port);
	if (!err && !is_any(&from) && is_six(&from) != is_six(&to))
		err = EINVAL; /* of two families (cma.c, cma_bind_addr and addr_resolve) */
	if (err)
		return cm_err(err);
	pthread_mutex_lock(&cm_mu);
	if (id->state == CM_IDLE)
		err = bind_to(id, dst->sa_family, &from, dev, port);
	else if (id->state != CM_BOUND || id->ib != (dst->sa_family == VB_AF_IB))
		err = EINVAL;
	if (!err) {
		id->peer_port = peer_port;
		if (id->ib) {
			id->peer_ib = *(struct vb_sockaddr_ib *)dst;
			id->peer_port = be64toh(id->peer_ib.sib_sid); /* whatever its mask is */
		}
		if (peer < 0) {
			cm_push(id, VB_RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, NULL);
		} else {
			if (id->dev < 0) { /* an own address is reached through its device */
				id->dev = peer;
				id->at = to;
			}
			id->peer_at = to;
			id->six = is_six(&to);
			id->bound_any = false;
			id->state = CM_ADDR;
			cm_set_addrs(id, peer);
			cm_push(id, VB_RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL);
		}
	}
	pthread_mutex_unlock(&cm_mu);
	return err ? cm_err(err) : 0;
}

CM_EXPORT int rdma_migrate_id(struct vb_rdma_cm_id *p, struct vb_rdma_event_channel *ch)
{
	struct cm_id *id = (struct cm_id *)p;
	struct vb_rdma_event_channel *own = id->sync ? p->channel : NULL;
	uint32_t n;

	CM_CALL("rdma_migrate_id", p->verbs);
	if (!ch)
		return cm_err(EINVAL);
	pthread_mutex_lock(&cm_mu);
	if (p->channel != ch) /* otherwise the loop would never end */
		cm_move_events(cm_channel_of(id), (struct cm_channel *)ch, id);
	p->channel = ch;
	id->sync = false;
	n = id->reported;
	pthread_mutex_unlock(&cm_mu);
	pthread_mutex_lock(&id->mu);
	while (id->completed < n)
		pthread_cond_wait(&id->cond, &id->mu);
	pthread_mutex_unlock(&id->mu);
	if (own)
		rdma_destroy_event_channel(own);
	return 0;
}

CM_EXPORT uint16_t rdma_get_src_port(struct vb_rdma_cm_id *p) { return p->route.addr.src_sin.sin_port; }
CM_EXPORT uint16_t rdma_get_dst_port(struct vb_rdma_cm_id *p) { return p->route.addr.dst_sin.sin_port; }

/* Raises DEVICE_REMOVAL for all identifiers of a device. */
CM_EXPORT int nulldev_cm_removal(const char *device)
{
	int dev = strncmp(device, "null", 4) ? -1 : atoi(device + 4);
	int n = 0;

	if (dev < 0 || dev >= CM_DEVICES)
		return -ENODEV;
	pthread_mutex_lock(&cm_mu);
	for (struct cm_id *x = cm_ids; x; x = x->next)
		if (x->dev == dev) {
			cm_push(x, VB_RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL);
			n++;
		}
	pthread_mutex_unlock(&cm_mu);
	return n;
}
