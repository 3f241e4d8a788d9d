/* Sends that wait for a peer or for a receive, and the one thread that ends expired waits. The
 * thread runs from the first wait with a deadline until the last context is closed. */
#include <time.h>
#include "nd.h"

static struct nd_qp *waiting; /* under nd_mu */
static pthread_mutex_t timer_mu = PTHREAD_MUTEX_INITIALIZER; /* after nd_mu */
static pthread_cond_t timer_cond;
static pthread_t timer;
static bool running, stop;
static uint64_t next; /* time of the thread's next check; 0: never. Under timer_mu */

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* nd_kick makes all waiting requests try again. One pass is enough: an executed request does not
 * enable others, because a message uses up a receive. */
void nd_kick(void)
{
	struct nd_qp *qp = waiting, *following;

	for (; qp; qp = following) {
		following = qp->wait_next;
		nd_progress(qp);
		/* A failure may have removed others from the list. */
		if (following && !following->waiting)
			following = waiting;
	}
}

static void *run(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&timer_mu);
	while (!stop) {
		uint64_t at = next, t = now();

		if (!at || at > t) {
			struct timespec ts = { .tv_sec = at / 1000000000, .tv_nsec = at % 1000000000 };

			if (at)
				pthread_cond_timedwait(&timer_cond, &timer_mu, &ts);
			else
				pthread_cond_wait(&timer_cond, &timer_mu);
			continue;
		}
		next = 0;
		pthread_mutex_unlock(&timer_mu);
		nd_lock();
		nd_kick();
		nd_unlock();
		pthread_mutex_lock(&timer_mu);
	}
	pthread_mutex_unlock(&timer_mu);
	return NULL;
}

static void look_at(uint64_t at)
{
	pthread_mutex_lock(&timer_mu);
	if (!running) {
		pthread_condattr_t attr;

		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&timer_cond, &attr);
		pthread_condattr_destroy(&attr);
		stop = false;
		running = pthread_create(&timer, NULL, run, NULL) == 0;
	}
	if (!next || at < next) {
		next = at;
		if (running)
			pthread_cond_signal(&timer_cond);
	}
	pthread_mutex_unlock(&timer_mu);
}

void nd_timer_stop(void)
{
	bool was;

	pthread_mutex_lock(&timer_mu);
	was = running;
	stop = true;
	running = false;
	next = 0;
	if (was)
		pthread_cond_signal(&timer_cond);
	pthread_mutex_unlock(&timer_mu);
	if (was)
		pthread_join(timer, NULL);
}

/* The wait starts again when its reason changes. */
bool nd_wait(struct nd_qp *qp, bool rnr, uint64_t ns)
{
	if (qp->waiting && qp->rnr != rnr)
		nd_unwait(qp);
	if (!qp->waiting) {
		qp->waiting = true;
		qp->rnr = rnr;
		qp->deadline = ns ? now() + ns : 0;
		qp->wait_next = waiting;
		qp->wait_prev = &waiting;
		if (waiting)
			waiting->wait_prev = &qp->wait_next;
		waiting = qp;
	} else if (qp->deadline && now() >= qp->deadline) {
		return true;
	}
	if (qp->deadline)
		look_at(qp->deadline);
	return false;
}

void nd_unwait(struct nd_qp *qp)
{
	if (!qp->waiting)
		return;
	qp->waiting = false;
	*qp->wait_prev = qp->wait_next;
	if (qp->wait_next)
		qp->wait_next->wait_prev = qp->wait_prev;
}
