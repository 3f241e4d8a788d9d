/* Scripted faults, and the counting of calls. */
#define _GNU_SOURCE
#include "nd.h"

enum { ND_FAULTS = 64, ND_STALE = 16 };

struct nd_script {
	struct nulldev_fault f;
	uint64_t seen, hits;
	bool on;
	uint32_t stale[ND_STALE]; /* of NULLDEV_STALE_CONN: the numbers of queue pairs that were refused */
	int n_stale;
};

/* fault_mu guards the following variables. All calls read nd_scripted without it: it is 0 as long
 * as no fault is scripted, so that measurements pay for one load. */
static pthread_mutex_t fault_mu = PTHREAD_MUTEX_INITIALIZER;
static struct nd_script faults[ND_FAULTS];
static struct nd_site *sites;
int nd_scripted;

static void site_list(struct nd_site *s)
{
	pthread_mutex_lock(&fault_mu);
	if (!s->listed) {
		s->next = sites;
		sites = s;
		__atomic_store_n(&s->listed, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&fault_mu);
}

static bool named(const struct nd_script *s, const char *name)
{
	return s->f.call[0] == 0 || strcmp(s->f.call, name) == 0;
}

/* strike counts one event of the fault's kind, and reports whether the fault applies to it. With
 * fault_mu. */
static bool strike(struct nd_script *s)
{
	uint64_t n = ++s->seen;

	if (n < s->f.nth || (s->f.count && n - s->f.nth >= s->f.count))
		return false;
	s->hits++;
	return true;
}

static int value(const struct nulldev_fault *f, const char *name)
{
	bool rdma = strncmp(name, "rdma_", 5) == 0;

	errno = f->err;
	switch (f->how) {
	case NULLDEV_HOW_NEGATIVE:
		return -f->err;
	case NULLDEV_HOW_MINUS1:
		return -1;
	default:
		return rdma ? -1 : f->err;
	}
}

/* nd_called counts a call and reports whether it shall fail, and with which result. */
int nd_called(struct nd_site *s, struct nd_device *dev, bool destroys, int *ret)
{
	int fails = 0, fatal = 0;

	if (!__atomic_load_n(&s->listed, __ATOMIC_ACQUIRE))
		site_list(s);
	__atomic_fetch_add(&s->calls, 1, __ATOMIC_RELAXED);
	if (__atomic_load_n(&nd_scripted, __ATOMIC_ACQUIRE)) {
		pthread_mutex_lock(&fault_mu);
		for (int i = 0; i < ND_FAULTS; i++) {
			struct nd_script *x = &faults[i];

			if (!x->on || !named(x, s->name))
				continue;
			if (x->f.kind == NULLDEV_ERRNO && strike(x) && !fails) {
				fails = 1;
				*ret = value(&x->f, s->name);
			}
			if (x->f.kind == NULLDEV_FATAL && strike(x))
				fatal = 1;
		}
		pthread_mutex_unlock(&fault_mu);
	}
	if (fatal && dev) {
		nd_lock();
		nd_make_fatal(dev);
		nd_unlock();
	}
	if (!fails && dev && !destroys && nd_fatal(dev)) {
		fails = 1;
		errno = EIO;
		*ret = EIO;
	}
	return fails;
}

/* nd_strikes is for the faults that count other events than calls. */
bool nd_strikes(int kind, uint32_t *arg)
{
	bool hit = false;

	if (!__atomic_load_n(&nd_scripted, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&fault_mu);
	for (int i = 0; i < ND_FAULTS; i++) {
		struct nd_script *x = &faults[i];

		if (!x->on || x->f.kind != (uint32_t)kind || !strike(x))
			continue;
		hit = true;
		if (arg)
			*arg = x->f.arg;
	}
	pthread_mutex_unlock(&fault_mu);
	return hit;
}

static bool refused(const struct nd_script *x, uint32_t qpn)
{
	for (int i = 0; i < x->n_stale; i++)
		if (x->stale[i] == qpn)
			return true;
	return false;
}

/* For librdmacm: whether the request of a queue pair is refused because the peer has a connection of an earlier process
 * with its number. A request that strikes is, and from then on each with this number: another number is not stale
 * (Linux cm.c, cm_match_req; the peer forgets it after the TIMEWAIT, here with the fault). */
ND_EXPORT bool nulldev_stale(uint32_t qpn)
{
	bool stale = false;

	if (!__atomic_load_n(&nd_scripted, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&fault_mu);
	for (int i = 0; i < ND_FAULTS; i++) {
		struct nd_script *x = &faults[i];

		if (!x->on || x->f.kind != NULLDEV_STALE_CONN)
			continue;
		if (refused(x, qpn)) {
			x->hits++;
			stale = true;
		} else if (strike(x)) {
			stale = true;
			if (x->n_stale < ND_STALE)
				x->stale[x->n_stale++] = qpn;
		}
	}
	pthread_mutex_unlock(&fault_mu);
	return stale;
}

int nd_bad_at(const char *call, int *err)
{
	int at = -1;

	if (!__atomic_load_n(&nd_scripted, __ATOMIC_ACQUIRE))
		return -1;
	pthread_mutex_lock(&fault_mu);
	for (int i = 0; i < ND_FAULTS; i++) {
		struct nd_script *x = &faults[i];

		if (!x->on || x->f.kind != NULLDEV_BAD_WR || !named(x, call) || !strike(x))
			continue;
		at = x->f.arg;
		*err = value(&x->f, call);
	}
	pthread_mutex_unlock(&fault_mu);
	return at;
}

ND_EXPORT int nulldev_add_fault(const struct nulldev_fault *f)
{
	int n = -ENOSPC;

	if (f->kind < NULLDEV_ERRNO || f->kind > NULLDEV_QUIET_FLUSH ||
	    f->how > NULLDEV_HOW_NEGATIVE ||
	    !memchr(f->call, 0, sizeof(f->call)) ||
	    ((f->kind == NULLDEV_ERRNO || f->kind == NULLDEV_BAD_WR) && f->err <= 0))
		return -EINVAL;
	pthread_mutex_lock(&fault_mu);
	for (int i = 0; i < ND_FAULTS; i++) {
		if (faults[i].on)
			continue;
		memset(&faults[i], 0, sizeof(faults[i]));
		faults[i].f = *f;
		if (!faults[i].f.nth)
			faults[i].f.nth = 1;
		faults[i].on = true;
		__atomic_fetch_add(&nd_scripted, 1, __ATOMIC_RELEASE);
		n = i + 1;
		break;
	}
	pthread_mutex_unlock(&fault_mu);
	return n;
}

ND_EXPORT uint64_t nulldev_hits(int fault)
{
	uint64_t n = 0;

	pthread_mutex_lock(&fault_mu);
	if (fault > 0 && fault <= ND_FAULTS)
		n = faults[fault - 1].hits;
	pthread_mutex_unlock(&fault_mu);
	return n;
}

ND_EXPORT void nulldev_clear_faults(void)
{
	pthread_mutex_lock(&fault_mu);
	for (int i = 0; i < ND_FAULTS; i++)
		faults[i].on = false;
	__atomic_store_n(&nd_scripted, 0, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&fault_mu);
}

ND_EXPORT uint64_t nulldev_calls(const char *name)
{
	uint64_t n = 0;

	pthread_mutex_lock(&fault_mu);
	for (struct nd_site *s = sites; s; s = s->next)
		if (!name[0] || !strcmp(s->name, name))
			n += __atomic_load_n(&s->calls, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&fault_mu);
	return n;
}

/* For librdmacm, whose calls are counted and scripted here. */
ND_EXPORT int nulldev_called(struct nd_site *s, struct vb_context *c, int destroys, int *ret)
{
	return nd_called(s, c ? nd_dev_of(c) : NULL, destroys, ret);
}

ND_EXPORT int nulldev_strikes(int kind, uint32_t *arg) { return nd_strikes(kind, arg); }

/* nd_late_on reports whether flushes are delayed now, and for how many polls. */
bool nd_late_on(uint32_t *polls)
{
	bool on = false;

	if (!__atomic_load_n(&nd_scripted, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&fault_mu);
	for (int i = 0; i < ND_FAULTS; i++) {
		if (!faults[i].on || faults[i].f.kind != NULLDEV_LATE)
			continue;
		on = true;
		*polls = faults[i].f.arg;
		faults[i].hits++;
	}
	pthread_mutex_unlock(&fault_mu);
	return on;
}
