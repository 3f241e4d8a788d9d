/* Internals of the null device's librdmacm: both the part of librdmacm in the process and that of
 * the kernel's rdma_cm, for connections between the null devices of one process.
 *
 *   IDLE ─ bind ─> BOUND ─ listen ─> LISTEN
 *   BOUND ─ resolve_addr ─> ADDR ─ resolve_route ─> ROUTE ─ connect ─> ASKED
 *   ASKED ── answer, ESTABLISHED taken or rdma_establish ──> UP ── end ──> DOWN
 *   (a request) REQUEST ─ accept ─> ANSWERED ── the other is UP ──> UP
 *   REQUEST ─ reject ─> OVER;  ASKED ── rejected ──> OVER
 *
 * cm_mu guards everything except an identifier's count of acknowledgements, which has its own
 * lock because destroying waits for it. It is taken before the locks of libibverbs. */
#ifndef CM_H
#define CM_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "nulldev.h"
#include "profile/profile.h"
#include "vb_rdmacm.h"

#define CM_EXPORT __attribute__((visibility("default")))

enum {
	CM_DEVICES = 2,
	CM_PRIVATE_REQ = 56, CM_PRIVATE_REP = 196, CM_PRIVATE_REJ = 148,
	CM_PRIVATE_SIDR_REQ = 180, CM_PRIVATE_SIDR_REP = 136,
	CM_HEADER = 36,		 /* in front of private data, not with addresses of InfiniBand */
	CM_PRIVATE_MOST = 255,
	CM_BACKLOG = 1024,	 /* the maximum, and the value for 0 (ucma.c) */
	CM_FIRST_PORT = 0xc000,	 /* of the ports chosen here */
	CM_QKEY = 0x01234567,	 /* RDMA_UDP_QKEY */
	CM_MCAST_QPN = 0xffffff,
	CM_REJ_SERVICE = 8,	 /* no listener (IBTA table 102) */
	CM_REJ_STALE = 10,
	CM_REJ_CONSUMER = 28,
	CM_REJ_VENDOR_OPTION = 35,
	CM_VENDOR_BITS = 0xffffff, /* a vendor ID has 24 bits in the messages */
	CM_SIDR_UNSUPPORTED = 1, /* the same in port space UDP (IBTA 12.11.2.2) */
	CM_SIDR_REJECT = 2,
	CM_PATH_LIFE = 16,	 /* of a path of RoCE (cma.c, CMA_IBOE_PACKET_LIFETIME) */
	CM_MAX_DEPTH = 0xff,	 /* RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH */
	CM_DEVICE_DEPTH = 16,	 /* the device's maximum */
};

enum cm_state { CM_IDLE, CM_BOUND, CM_LISTEN, CM_ADDR, CM_ROUTE, CM_ASKED, CM_REQUEST, CM_ANSWERED, CM_UP, CM_DOWN, CM_OVER };

struct cm_mc {
	struct cm_mc *next;
	struct cm_id *id;
	void *context;
	union vb_gid gid; /* also what rdma_leave_multicast names */
	bool send_only, attached;
	uint32_t reported, completed; /* completed: under id->mu */
};

struct cm_event {
	struct vb_rdma_cm_event event; /* first */
	struct cm_id *id;   /* owner of its acknowledgement: the listener of a request; NULL: dropped */
	struct cm_id *made; /* for a request: the new identifier, until it is delivered */
	struct cm_mc *mc;
	struct cm_event *next;
	uint8_t data[CM_PRIVATE_MOST];
};

struct cm_channel {
	struct vb_rdma_event_channel pub; /* first; the eventfd counts the events */
	struct cm_event *first, **last;
};

struct cm_id {
	struct vb_rdma_cm_id id; /* first */
	enum cm_state state;
	int dev; /* -1: none */
	int peer_dev;
	union vb_gid at, peer_at; /* the IP addresses of the ends, IPv4 as ::ffff:a.b.c.d; zeros: any */
	bool six; /* the addresses are of IPv6 */
	bool reuse, bound_any;
	bool ib; /* its addresses are of InfiniBand */
	struct vb_sockaddr_ib peer_ib;
	bool sync; /* the channel is its own */
	uint8_t timeout;     /* the option ACK_TIMEOUT; 0: not set */
	uint8_t path_life;   /* of the route */
	uint8_t cm_timeout;  /* a queue pair's without the option (cm.c, cm_av.timeout) */
	uint8_t tos;	     /* the option; it has an effect when the route is resolved */
	uint8_t path_tos, path_sl; /* of the route */
	uint16_t port, peer_port; /* host order */
	struct cm_id *peer;	  /* of a connection, while both exist */
	int backlog;
	struct cm_mc *mcs;
	struct cm_id *next; /* list of all */
	uint64_t serial;    /* of all identifiers made */

	uint32_t qpn, remote_qpn, psn, remote_psn;
	uint8_t responder, initiator; /* depths for the queue pair */
	uint8_t retry, rnr_retry; /* for the queue pair */
	uint8_t rnr_told;	  /* the value that accept sends to the other side */
	struct vb_ece local_ece, remote_ece;
	bool srq, connect_error;
	bool accepted; /* made by a request: it shares the listener's port */
	bool gone; /* TIMEWAIT_EXIT reported */

	pthread_mutex_t mu;
	pthread_cond_t cond;
	uint32_t reported;  /* under cm_mu */
	uint32_t completed; /* under mu */
};

extern pthread_mutex_t cm_mu;
extern struct cm_id *cm_ids;

static inline int cm_err(int err)
{
	errno = err;
	return -1;
}

/* The other library: its scripted faults and its counters. */
struct nd_site {
	const char *name;
	uint64_t calls;
	struct nd_site *next;
	int listed;
};
int nulldev_called(struct nd_site *s, struct vb_context *c, int destroys, int *ret);
int nulldev_strikes(int kind, uint32_t *arg);
bool nulldev_stale(uint32_t qpn);
uint8_t nulldev_ack_delay(struct vb_context *c);
bool nulldev_tos_unsent(struct vb_context *c);
void nulldev_accepts(struct vb_context *c, uint32_t qpn); /* a queue pair is that of an accepting end */
void nulldev_cm_count(int channels, int ids, int unacked);
/* Its links (link.c). */
void nulldev_path(struct vb_context *c, int dev, struct vb_ah_attr *a);
void nulldev_group(struct vb_context *c, union vb_gid *gid, struct vb_ah_attr *a);
void nulldev_gid(struct vb_context *c, int dev, union vb_gid *gid);
int nulldev_dev_of(const union vb_gid *ip);
uint8_t nulldev_port(struct vb_context *c);

#define CM_CALL_(name_, ctx_, destroys_, fails_)                              \
	do {                                                                  \
		static struct nd_site site_ = { .name = name_ };              \
		int ret_;                                                     \
		if (nulldev_called(&site_, ctx_, destroys_, &ret_))           \
			return fails_;                                        \
	} while (0)
/* A dead device fails rdma_ calls with EIO too. */
#define CM_CALL(name, ctx) CM_CALL_(name, ctx, 0, ret_ > 0 ? cm_err(ret_) : ret_)
#define CM_DESTROY(name) CM_CALL_(name, NULL, 1, ret_ > 0 ? cm_err(ret_) : ret_)

struct vb_device **ibv_get_device_list(int *num);
void ibv_free_device_list(struct vb_device **list);
struct vb_context *ibv_open_device(struct vb_device *d);
int nulldev_close_device(struct vb_context *c);
struct vb_qp *ibv_create_qp(struct vb_pd *pd, struct vb_qp_init_attr *a);
int ibv_destroy_qp(struct vb_qp *qp);
int ibv_modify_qp(struct vb_qp *qp, struct vb_qp_attr *a, int mask);
int ibv_attach_mcast(struct vb_qp *qp, const union vb_gid *gid, uint16_t lid);
int ibv_detach_mcast(struct vb_qp *qp, const union vb_gid *gid, uint16_t lid);

/* All of them with cm_mu held. */
void cm_push(struct cm_id *id, int type, int status, struct cm_event *from);
struct cm_event *cm_event_new(void);
void cm_forget(struct cm_channel *ch, struct cm_id *id);
struct cm_channel *cm_channel_of(struct cm_id *id);
void cm_move_events(struct cm_channel *from, struct cm_channel *to, struct cm_id *id);
struct cm_id *cm_make(struct vb_rdma_event_channel *ch, void *context, int ps, int qp_type);
void cm_drop(struct cm_id *id);
bool cm_taken(const struct cm_id *me, const union vb_gid *at, bool any, uint16_t port); /* whether another excludes it from a port */
int cm_open_device(struct cm_id *id, int dev);
union vb_gid cm_gid(const struct cm_id *id, int dev);
void cm_set_addrs(struct cm_id *id, int peer_dev);
void cm_way(const struct cm_id *id, int dev, struct vb_ah_attr *a); /* to a device by the route of id */
void cm_part(struct cm_id *id);	    /* notifies the peer of the end of a connection */
int cm_ask(struct cm_id *id, const struct vb_rdma_conn_param *c); /* a request arrives */
void cm_confirm(struct cm_id *id);				 /* the last message of a handshake arrives */
bool cm_lost(int kind, struct cm_id *id, const struct vb_rdma_conn_param *c);
void cm_refuse(struct cm_id *id, int reason, const void *data, size_t len);
bool cm_is_ud(const struct cm_id *id);
/* Without cm_mu: they call libibverbs. */
int cm_qp_rtr(struct cm_id *id);
int cm_qp_rts(struct cm_id *id);
int cm_qp_err(struct cm_id *id);
int cm_respond(struct cm_id *id);
int cm_reject(struct vb_rdma_cm_id *p, const void *data, uint8_t len, int reason);
struct vb_rdma_event_channel *rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct vb_rdma_event_channel *p);
int rdma_destroy_id(struct vb_rdma_cm_id *p);
int rdma_bind_addr(struct vb_rdma_cm_id *p, struct sockaddr *sa);
int rdma_init_qp_attr(struct vb_rdma_cm_id *p, struct vb_qp_attr *a, int *mask);

#endif
