/* The test interface of the null device beside the entry points of libibverbs and librdmacm: its
 * mode, scripted faults, counters. All functions may be called from any thread. */
#ifndef NULLDEV_H
#define NULLDEV_H

#include <stdint.h>

/* The treatment of work requests. A context keeps the mode that was set when it was opened. */
enum {
	NULLDEV_LOOPBACK = 0, /* sends meet receives, one-sided operations copy */
	NULLDEV_INSTANT = 1,  /* the baseline for measurements: no data moves */
};

enum {
	NULLDEV_ERRNO = 1,    /* a call fails with err */
	NULLDEV_BAD_WR = 2,   /* a post fails at its request number arg, from 0 */
	NULLDEV_OVERRUN = 3,  /* a completion finds its queue full */
	NULLDEV_LOST = 4,     /* a completion event is not delivered */
	NULLDEV_LATE = 5,     /* flushes wait for arg polls; 0: for the destroy */
	NULLDEV_STALE = 6,    /* an earlier completion is repeated */
	NULLDEV_LEFTOVER = 7, /* destroying a queue pair leaves its completions and adds one */
	NULLDEV_FATAL = 8,    /* DEVICE_FATAL, and then EIO from everything but destroying */
	NULLDEV_MISSING = 9,  /* a completion never comes, and its slot is not freed */
	NULLDEV_LOST_REQ = 10,	  /* a connection request is lost, and sent again after arg ms; 0: never */
	NULLDEV_LOST_RTU = 11,	  /* the last message of a handshake likewise */
	NULLDEV_STALE_CONN = 12,  /* a connection request, and each with its queue pair number, is rejected with reason 10 */
	NULLDEV_QUIET_FLUSH = 13, /* a flushed completion disarms its queue and raises no event */
};

/* The result of a failing call. Calls that return a pointer return NULL and set errno, and rdma_
 * calls return -1 and set errno, unless NEGATIVE is selected. */
enum {
	NULLDEV_HOW_ERRNO = 0,	  /* the value is the errno, as documented */
	NULLDEV_HOW_MINUS1 = 1,	  /* -1, errno set: as libmlx5 did */
	NULLDEV_HOW_NEGATIVE = 2, /* the negative errno: as rxe did */
};

/* One fault. It applies to the nth event of its kind since it was added (1 is the next), and to
 * the count-1 after it; with count 0 to all later ones. ERRNO and BAD_WR count calls of this
 * name, or of all names with an empty one. LATE applies as long as it exists; nth and count are
 * ignored. */
struct nulldev_fault {
	uint32_t kind;
	uint32_t how;
	char call[48];
	uint64_t nth;
	uint64_t count;
	int32_t err;
	uint32_t arg;
};

/* The live objects. */
struct nulldev_objects {
	uint32_t context, pd, mr, mw, ah, cq, channel, qp, srq, xrcd;
	uint32_t cm_channel, cm_id;
	uint32_t td;
};

/* Counted since the library was loaded. */
struct nulldev_stats {
	uint64_t sends, recvs;		 /* posts */
	uint64_t send_wrs, recv_wrs;	 /* requests accepted by them */
	uint64_t doorbells;
	uint64_t polls, empty_polls;
	uint64_t completions;		 /* written into queues */
	uint64_t events, lost_events;	 /* completion events */
	uint64_t unacked;		 /* completion, asynchronous and connection events taken and not acknowledged */
	uint64_t rings;			 /* bytes of the rings of queues */
	uint64_t locked;		 /* bytes of regions that are not on-demand */
	uint64_t advised;		 /* bytes that ibv_advise_mr brought in */
	uint64_t td_races;		 /* posts of one thread domain at the same time */
	struct nulldev_objects live;
};

void nulldev_set_mode(uint32_t mode);
/* Limits the bytes of the rings that exist; above it, creations and ibv_resize_cq fail with ENOMEM. */
void nulldev_set_memlock(uint64_t bytes);
/* Selects the profile of contexts opened from now on; -ENOENT without one of this name. */
int nulldev_set_profile(const char *name);
/* The name of profile i, from 0; NULL behind the last one. */
const char *nulldev_profile_name(uint32_t i);
/* Adds a fault and returns its number; a negative errno for an invalid one or when there are too
 * many. */
int nulldev_add_fault(const struct nulldev_fault *f);
/* How often a fault was applied. */
uint64_t nulldev_hits(int fault);
void nulldev_clear_faults(void);
/* Calls of this name so far; of all with an empty one. */
uint64_t nulldev_calls(const char *name);
void nulldev_stats(struct nulldev_stats *s);
/* Raises a completion event on all queues that have a channel, armed or not. */
int nulldev_spurious_events(void);
/* Raises an asynchronous event of the port: PORT_ERR, PORT_ACTIVE ... */
int nulldev_port_event(const char *device, int type);
/* Replaces an entry of the address table, by none for zeros, and raises GID_CHANGE. */
int nulldev_set_gid(const char *device, uint32_t index, const uint8_t gid[16], uint32_t ifindex);
void nulldev_reset_gids(void);
/* Kills a device, as NULLDEV_FATAL does. */
int nulldev_fatal(const char *device);
/* Brings a device back for contexts opened from now on. */
int nulldev_revive(const char *device);
/* Revives a device for contexts opened from now on. */
int nulldev_cm_removal(const char *device);

#endif
