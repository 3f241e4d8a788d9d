/* Internals of the null device.
 *
 * Locks, in the order they are taken:
 *
 *   nd_mu        all objects, and all work of loopback. nd_lock, nd_unlock.
 *   sq_lock      a send queue in instant mode; the state of its queue pair is
 *                written with both held
 *   rq_lock      the same for a receive queue
 *   nd_cq.lock   the ring of a completion queue; both modes
 *   nd_evq.mu    a queue of events
 *   fault lock   in fault.c
 *
 * Loopback works inside the call that posts. A request that needs a receive or a peer waits on a
 * list that is searched when one appears, and one thread (timer.c) ends expired waits. */
#ifndef ND_H
#define ND_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "vb_verbs.h"
#include "nulldev.h"
#include "profile/profile.h"

#define ND_EXPORT __attribute__((visibility("default")))

enum {
	ND_DEVICES = 2,
	ND_MAX_QP = 1 << 14,
	ND_MAX_KEYS = 1 << 16,
	ND_MAX_QP_WR = 1 << 14,
	ND_MAX_SGE = 32,
	ND_MAX_CQE = 1 << 20,
	ND_MAX_INLINE = 1024,
	ND_MAX_RD_ATOM = 16,
	ND_ACK_DELAY = 12,	/* 17 ms; below what a connection manager asks for, and not too short */
	ND_MAX_SRQ = 1 << 12,
	ND_MAX_MSG = 1 << 30,
	ND_MAX_GROUPS = 256,	/* multicast groups of a device */
	ND_MAX_GROUP_QPS = 64,	/* queue pairs attached to one */
	ND_UD_MTU = 4096,
	ND_GRH = 40,		/* bytes in front of a datagram */
	ND_FIRST_QPN = 0x100,
	ND_MCAST_QPN = 0xffffff,
	ND_VENDOR_ERR = 0x80,	/* with the status in the low bits */
};

/* A queue of events behind a descriptor that polls readable while it has any:
 * an eventfd that counts them. */
struct nd_event {
	struct nd_event *next;
	void *obj; /* NULL: its object is gone; the event is dropped */
	int type;
};

struct nd_evq {
	pthread_mutex_t mu;
	struct nd_event *first, **last;
	int fd;
};

struct nd_device {
	struct vb_device dev; /* first */
	union vb_gid gid;
	bool fatal;	/* read with atomics on the data path, written under nd_mu */
	int port_state; /* likewise */
	struct nd_ctx *ctxs;
};

struct nd_ctx {
	struct vb_verbs_context v; /* first */
	struct nd_device *dev;
	const struct nd_profile *profile;
	struct nd_evq async;
	bool instant;
	struct nd_ctx *next;
};

struct nd_pd {
	struct vb_pd pd; /* first */
	int uses;
	struct nd_pd *root; /* for a parent domain: the domain it stands for; NULL otherwise */
	struct nd_td *td;
};

/* A thread domain. busy is 1 during a post to one of its queue pairs: written and read with
 * atomics by the posting thread; it publishes nothing. */
struct nd_td {
	struct vb_td td; /* first */
	int uses;
	int busy;
	bool aborts;
};

/* The object of a key: a region or a window. */
struct nd_key {
	uint32_t key;
	bool window;
	bool valid; /* a window is valid only while bound */
	struct nd_pd *pd;
	uint64_t addr, iova, len; /* addr: in this process; iova: as named by requests */
	unsigned access;
	struct nd_mr *mr;  /* for a window: the region it is bound to */
	struct nd_qp *qp;  /* for a type 2 window: the queue pair that may reach it */
};

struct nd_mr {
	struct vb_mr mr; /* first */
	struct nd_key k;
	int windows;
	void *map; /* for memory of another device; NULL otherwise */
	size_t map_len;
	uint64_t locked;
};

struct nd_mw {
	struct vb_mw mw; /* first */
	struct nd_key k;
};

struct nd_ah {
	struct vb_ah ah; /* first */
	struct vb_ah_attr attr;
};

/* A domain lives while it has handles. */
struct nd_domain {
	struct nd_domain *next;
	const struct vb_device *device;
	dev_t fs;
	ino_t ino;
	int fd; /* -1: private */
	int handles;
};

/* A context's handle on a domain. */
struct nd_xrcd {
	struct vb_xrcd xrcd; /* first */
	struct nd_domain *domain;
	int uses;
};

/* A completion as the device writes it. */
struct nd_cqe {
	uint64_t wr_id;
	struct nd_qp *qp; /* whose slots it frees; NULL when that is gone */
	uint32_t retire;  /* how many requests */
	uint32_t byte_len;
	uint32_t imm;
	uint32_t qp_num;
	uint32_t src_qp;
	uint32_t vendor_err;
	uint16_t wc_flags;
	uint8_t status;
	uint8_t opcode;
	uint8_t recv;
	uint8_t solicited;
	uint16_t slid;
	struct nd_srq *srq; /* whose slot a receive frees */
	uint8_t sl, path_bits;
	uint8_t pad[6];
};
_Static_assert(sizeof(struct nd_cqe) == 64, "a completion is a cache line");

struct nd_cq {
	struct vb_cq_ex cq; /* first; begins as a vb_cq */
	struct nd_ctx *ctx;
	pthread_spinlock_t lock;
	struct nd_cqe *ring;
	uint32_t head, tail, size, mask;
	int armed; /* ND_ARM_ */
	bool dead;
	struct nd_cqe last; /* the newest one written, for NULLDEV_STALE */
	struct nd_cqe at;   /* the current one, when polled by ibv_start_poll */
	uint64_t completions, polls, empty;
	uint32_t events_got;  /* under the channel's evq.mu */
	uint32_t async_got;   /* under the context's evq.mu */
	int uses;
	struct nd_cq *next; /* list of all */
};

enum { ND_ARM_NONE, ND_ARM_SOLICITED, ND_ARM_ANY };

struct nd_channel {
	struct vb_comp_channel ch; /* first */
	struct nd_evq q;
};

/* A work request in instant mode: four segments of 16 bytes, as in devices. */
struct nd_wqe {
	uint32_t ctrl[4];
	uint64_t remote[2];
	struct vb_sge data[2];
};
_Static_assert(sizeof(struct nd_wqe) == 64, "a work queue entry is a cache line");

/* A send or receive in loopback mode. */
struct nd_send {
	struct vb_send_wr wr; /* next and sg_list are not used */
	uint64_t len;
	struct vb_sge *sge;
	uint8_t *inl; /* NULL: not inline */
};

struct nd_recv {
	uint64_t wr_id;
	int num_sge;
	struct vb_sge *sge;
};

/* Receives: a ring. */
struct nd_rq {
	struct nd_recv *ring;
	struct vb_sge *sges;
	uint32_t head, tail; /* available: tail - head */
	uint32_t retired;    /* polled; written by pollers with atomics */
	uint32_t size, mask, max_sge;
};

struct nd_srq {
	struct vb_srq srq; /* first */
	struct nd_ctx *ctx;
	struct nd_rq rq;
	uint64_t pinned; /* bytes of its ring as created */
	uint32_t limit;
	uint32_t async_got;
	uint32_t num; /* 0: not XRC */
	struct nd_xrcd *xrcd;
	struct nd_cq *cq;
	int uses;
};

struct nd_qp {
	struct vb_qp_ex qp; /* first; begins as a vb_qp */
	struct nd_ctx *ctx;
	struct nd_cq *scq, *rcq;
	struct nd_srq *srq;
	struct nd_xrcd *xrcd; /* the handle that made or opened it; NULL of an orphan */
	struct nd_domain *domain;
	struct vb_qp_cap cap;
	bool sig_all, instant;
	int state; /* qp.qp_base.state is the user's copy of it */
	struct vb_qp_attr attr;
	uint32_t async_got;
	int opens; /* XRC_RECV: other handles */
	struct nd_qp *main; /* for such a handle: the queue pair */
	bool orphan;	    /* the first handle is destroyed, others live */
	uint64_t last_wr_id; /* posted last; for NULLDEV_LEFTOVER */
	bool comm_est;
	int mcasts;

	/* The send queue. Entries head to tail are posted and not completed. */
	pthread_spinlock_t sq_lock;
	struct nd_wqe *wqes; /* instant */
	struct nd_send *sends; /* loopback */
	struct vb_sge *send_sges;
	uint8_t *send_inl;
	uint32_t sq_head, sq_tail, sq_size, sq_mask;
	uint32_t sq_retired; /* polled; written by pollers with atomics */
	uint32_t unsignaled; /* executed without a completion since the last one */
	uint32_t drain_to;   /* SQD: the requests posted before it */
	bool draining;

	pthread_spinlock_t rq_lock;
	struct nd_wqe *rwqes; /* instant; the other fields are in the ring of rq */
	struct nd_rq rq;

	/* Waiting; timer.c. */
	bool waiting, rnr;
	uint64_t deadline; /* monotonic, ns; 0: none */
	struct nd_qp *wait_next, **wait_prev;
	/* Late flush; fault.c. */
	uint32_t late; /* remaining polls, +1; 0: not late */

	uint64_t n_sends, n_send_wrs, n_doorbells;  /* under sq_lock */
	uint64_t n_recvs, n_recv_wrs, n_rdoorbells; /* under rq_lock */
	volatile uint64_t doorbell[8] __attribute__((aligned(64)));

	struct nd_posting *ex; /* in progress through ibv_wr_*; owned by the thread that started it */
	struct nd_td *td; /* NULL: none */
	struct vb_ece ece; /* the options set; under nd_mu */

	/* Of the profiles; behind the fields that instant mode uses, which keep their cache lines. */
	uint64_t pinned; /* bytes of its rings */
	bool lean;	 /* its requests have no room for the segments of BIND_MW and LOCAL_INV */
	bool silent;	 /* dialer_first: nothing of the dialing end has arrived */
};

extern struct nd_device nd_devices[ND_DEVICES];
extern struct nd_qp *nd_qps[ND_MAX_QP];
extern struct nd_cq *nd_cqs;
extern struct nulldev_objects nd_live; /* under nd_mu */
extern struct nulldev_stats nd_past;   /* of destroyed objects; under nd_mu */

/* nd_fork_splits reports whether fork support would withhold a part of a huge page from children. */
bool nd_fork_splits(const struct nd_profile *p, uint64_t addr, uint64_t len);

void nd_lock(void);
void nd_unlock(void); /* also fails the queue pairs of dead completion queues */

static inline struct nd_ctx *nd_ctx_of(struct vb_context *c)
{
	return (struct nd_ctx *)vb_verbs_ctx(c);
}

static inline const struct nd_profile *nd_profile_of(struct vb_context *c)
{
	return nd_ctx_of(c)->profile;
}

static inline struct nd_device *nd_dev_of(struct vb_context *c)
{
	return nd_ctx_of(c)->dev;
}

/* The domain that protects a domain, or a parent domain. */
static inline struct nd_pd *nd_pd_of(struct vb_pd *p)
{
	struct nd_pd *pd = (struct nd_pd *)p;

	return pd && pd->root ? pd->root : pd;
}

/* Posts of one thread domain overlap only if its user broke the promise: counted, and in a profile
 * with td_abort the end of the process. Not in instant mode. */
extern uint64_t nd_td_races;
_Noreturn void nd_td_violated(void);

static inline void nd_td_enter(struct nd_td *td)
{
	if (!td || !__atomic_exchange_n(&td->busy, 1, __ATOMIC_ACQ_REL))
		return;
	__atomic_fetch_add(&nd_td_races, 1, __ATOMIC_RELAXED);
	if (td->aborts)
		nd_td_violated();
}

static inline void nd_td_leave(struct nd_td *td)
{
	if (td)
		__atomic_store_n(&td->busy, 0, __ATOMIC_RELEASE);
}

static inline bool nd_fatal(const struct nd_device *d)
{
	return __atomic_load_n(&d->fatal, __ATOMIC_RELAXED);
}

/* Fails a call that returns a pointer. */
static inline void *nd_null(int err)
{
	errno = err;
	return NULL;
}

/* fault.c. A call site counts its calls, and may be scripted to fail. */
struct nd_site {
	const char *name;
	uint64_t calls; /* atomic */
	struct nd_site *next;
	int listed;
};
extern int nd_scripted; /* number of faults; atomic */
int nd_called(struct nd_site *s, struct nd_device *dev, bool destroys, int *ret);
bool nd_strikes(int kind, uint32_t *arg);
/* The index of the request at which a post shall fail, and its errno; -1: none. */
int nd_bad_at(const char *call, int *err);
void nd_make_fatal(struct nd_device *d); /* with nd_mu held */
void nd_late_polled(struct nd_cq *cq);

/* ND_CALL begins an entry point that returns an int, ND_CALL_PTR one that returns a pointer,
 * ND_DESTROY one that frees something: it is executed on a dead device too. */
#define ND_CALL_(name_, dev_, destroys_, fails_)                              \
	do {                                                                  \
		static struct nd_site site_ = { .name = name_ };              \
		int ret_;                                                     \
		if (nd_called(&site_, dev_, destroys_, &ret_))                \
			return fails_;                                        \
	} while (0)
#define ND_CALL(name, dev) ND_CALL_(name, dev, false, ret_)
#define ND_CALL_PTR(name, dev) ND_CALL_(name, dev, false, NULL)
#define ND_DESTROY(name, dev) ND_CALL_(name, dev, true, ret_)

/* event.c */
int nd_evq_init(struct nd_evq *q);
void nd_evq_end(struct nd_evq *q);
void nd_evq_push(struct nd_evq *q, void *obj, int type);
/* Takes an event, or returns -1 with errno as read(2) of the descriptor. got is incremented with
 * the lock held, for the object found by the event. */
int nd_evq_pop(struct nd_evq *q, void **obj, int *type,
	       uint32_t *(*got)(void *obj, int type));
/* Drops the events of an object. */
void nd_evq_forget(struct nd_evq *q, void *obj, bool (*mine)(int type));
void nd_async(struct nd_ctx *ctx, void *obj, int type);
bool nd_is_cq_event(int type);
bool nd_is_qp_event(int type);
bool nd_is_srq_event(int type);
void nd_await_acks(struct nd_evq *q, void *obj, bool (*mine)(int type), pthread_mutex_t *mu,
		   pthread_cond_t *cond, uint32_t *acked, uint32_t *got);

/* key.c */
struct nd_mr *nd_reg(struct vb_pd *p, void *addr, size_t len, uint64_t iova, unsigned access);
struct nd_key *nd_key_find(uint32_t key);
struct nd_key *nd_key_slot(uint32_t i); /* i below ND_MAX_KEYS */
void nd_key_unbind(struct nd_key *k);
int nd_key_add(struct nd_key *k, uint8_t low);
void nd_key_remove(struct nd_key *k);
/* The address of the bytes in this process; 0 if access is not permitted. */
uint64_t nd_reach(struct nd_qp *qp, struct nd_pd *pd, uint32_t key, uint64_t addr,
		  uint64_t len, unsigned access);
int nd_bind(struct nd_qp *qp, struct nd_mw *mw, uint32_t rkey,
	    const struct vb_mw_bind_info *b, int type);
int nd_invalidate(struct nd_qp *qp, uint32_t key, bool remote);

/* cq.c */
void nd_cq_push(struct nd_cq *cq, const struct nd_cqe *e);
void nd_cq_clean(struct nd_cq *cq, struct nd_qp *qp, bool keep);
/* Completions of srq free no more slots. */
void nd_cq_disown(struct nd_cq *cq, const struct nd_srq *srq);
int nd_poll_cq(struct vb_cq *cq, int n, struct vb_wc *wc);
int nd_req_notify_cq(struct vb_cq *cq, int solicited);
void nd_cq_event(struct nd_cq *cq);
bool nd_cq_take(struct nd_cq *cq, struct nd_cqe *e);
/* gid.c */
bool nd_gid_entry(const struct nd_profile *p, int dev, int index, struct vb_gid_entry *e);
int nd_gid_len(const struct nd_profile *p);
int nd_gid_find(const struct nd_profile *p, int dev, const union vb_gid *gid);
int nd_gid(const struct nd_profile *p, int dev, union vb_gid *gid);
union vb_gid nd_gid_of(const struct nd_ctx *c);

/* link.c */
uint8_t nd_port_of(const struct nd_ctx *c);
void nd_port_attr(const struct nd_ctx *c, struct vb_port_attr *a);
bool nd_path_valid(const struct nd_ctx *c, const struct vb_ah_attr *a);
bool nd_leads_to(const struct vb_ah_attr *a, const struct nd_ctx *to);
void nd_told(struct nd_cqe *e, const struct nd_ctx *from, const struct vb_ah_attr *a, const struct nd_ctx *to);

/* cqex.c */
struct vb_cq_ex *nd_create_cq_ex(struct vb_context *c, struct vb_cq_init_attr_ex *a);
struct nd_cq *nd_cq_make(struct vb_context *c, int cqe, void *user,
			 struct vb_comp_channel *ch, int vector);

/* qp.c, qpstate.c, modify.c */
struct nd_qp *nd_qp_by_num(uint32_t num);
struct vb_qp *nd_create_qp_ex(struct vb_context *c, struct vb_qp_init_attr_ex *a);
struct vb_qp *nd_open_qp(struct vb_context *c, struct vb_qp_open_attr *a);
int nd_transition(int type, int from, int to, int mask);
void nd_qp_error(struct nd_qp *qp); /* to ERR, flushing */
void nd_qp_ex_init(struct nd_qp *qp, uint64_t ops);
void nd_qp_ex_end(struct nd_qp *qp);
bool nd_late_on(uint32_t *polls);
struct nd_qp *nd_qp_real(struct vb_qp *qp);

/* post.c, instant.c */
int nd_post_send(struct vb_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad);
int nd_post_recv(struct vb_qp *qp, struct vb_recv_wr *wr, struct vb_recv_wr **bad);
int nd_post_srq_recv(struct vb_srq *srq, struct vb_recv_wr *wr, struct vb_recv_wr **bad);
int nd_instant_send(struct nd_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad, int at, int err);
int nd_instant_recv(struct nd_qp *qp, struct vb_recv_wr *wr, struct vb_recv_wr **bad, int at, int err);
int nd_send_state(const struct nd_qp *qp);
int nd_send_valid(struct nd_qp *qp, const struct vb_send_wr *wr, bool extended, uint64_t *len);
/* Puts a valid request into the send queue of loopback. */
void nd_send_take(struct nd_qp *qp, const struct vb_send_wr *wr, uint64_t len);
uint32_t nd_send_room(const struct nd_qp *qp);
int nd_rq_init(struct nd_rq *rq, uint32_t wrs, uint32_t sges);

/* ring.c */
bool nd_ring_pin(uint64_t bytes);
void nd_ring_unpin(uint64_t bytes);
uint64_t nd_ring_pinned(void);
uint64_t nd_cq_ring(uint32_t mask);
uint64_t nd_rq_ring(uint32_t wrs, uint32_t sges);
uint64_t nd_qp_ring(const struct nd_profile *p, const struct vb_qp_init_attr_ex *a, uint64_t ops);

void nd_rq_end(struct nd_rq *rq);
int nd_rq_put(struct nd_rq *rq, const struct vb_recv_wr *wr);

#include "loop.h"

extern int nd_died; /* number of dead completion queues; atomic; nd_unlock reads it */

struct nd_srq *nd_srq_by_num(uint32_t num);
struct vb_srq *nd_create_srq_ex(struct vb_context *c, struct vb_srq_init_attr_ex *a);
int nd_get_srq_num(struct vb_srq *srq, uint32_t *num);
struct vb_xrcd *nd_open_xrcd(struct vb_context *c, struct vb_xrcd_init_attr *a);
int nd_close_xrcd(struct vb_xrcd *x);
struct vb_mw *nd_alloc_mw(struct vb_pd *pd, vb_enum type);
int nd_bind_mw(struct vb_qp *qp, struct vb_mw *mw, struct vb_mw_bind *b);
int nd_dealloc_mw(struct vb_mw *mw);

/* paging.c, domain.c */
void nd_odp_caps(struct vb_device_attr_ex *a);
int nd_advise_mr(struct vb_pd *p, vb_enum advice, uint32_t flags, struct vb_sge *list, uint32_t n);
struct vb_td *nd_alloc_td(struct vb_context *c, struct vb_td_init_attr *a);
int nd_dealloc_td(struct vb_td *td);
struct vb_pd *nd_alloc_parent_domain(struct vb_context *c, struct vb_parent_domain_init_attr *a);

#endif
