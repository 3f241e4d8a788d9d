/* Domains of extended connections. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "nd.h"

static struct nd_domain *domains; /* those of a file; under nd_mu */

static struct nd_domain *find(const struct vb_device *d, const struct stat *st)
{
	struct nd_domain *x = domains;

	while (x && (x->device != d || x->fs != st->st_dev || x->ino != st->st_ino))
		x = x->next;
	return x;
}

/* Joins the handle to its domain: that of the file's inode, or a private one. With nd_mu. It returns an errno, those of
 * the kernel (uverbs_cmd.c, ib_uverbs_open_xrcd). The domain keeps the file open, so that its inode is not reused. */
static int join(struct nd_xrcd *x, int fd, int flags)
{
	struct nd_domain *d = NULL;
	struct stat st = { 0 };

	if (fd != -1) {
		if (fstat(fd, &st))
			return errno;
		d = find(x->xrcd.context->device, &st);
		if (!d && !(flags & O_CREAT))
			return EAGAIN;
		if (d && (flags & O_EXCL))
			return EINVAL;
	}
	if (!d) {
		d = calloc(1, sizeof(*d));
		if (!d)
			return ENOMEM;
		d->fd = fd == -1 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (fd != -1 && d->fd < 0) {
			free(d);
			return errno;
		}
		d->device = x->xrcd.context->device;
		d->fs = st.st_dev;
		d->ino = st.st_ino;
		if (fd != -1) {
			d->next = domains;
			domains = d;
		}
	}
	d->handles++;
	x->domain = d;
	return 0;
}

struct vb_xrcd *nd_open_xrcd(struct vb_context *c, struct vb_xrcd_init_attr *a)
{
	const uint32_t both = VB_XRCD_INIT_ATTR_FD | VB_XRCD_INIT_ATTR_OFLAGS;
	struct nd_xrcd *x;
	int err;

	ND_CALL_PTR("ibv_open_xrcd", nd_dev_of(c));
	if ((a->comp_mask & both) != both || (a->oflags & ~(O_CREAT | O_EXCL)))
		return nd_null(EINVAL);
	x = calloc(1, sizeof(*x));
	if (!x)
		return nd_null(ENOMEM);
	x->xrcd.context = c;
	nd_lock();
	err = join(x, a->fd, a->oflags);
	nd_live.xrcd += !err;
	nd_unlock();
	if (!err)
		return &x->xrcd;
	free(x);
	return nd_null(err);
}

int nd_close_xrcd(struct vb_xrcd *p)
{
	struct nd_xrcd *x = (struct nd_xrcd *)p;
	struct nd_domain *d = x->domain, **at = &domains;

	ND_DESTROY("ibv_close_xrcd", nd_dev_of(p->context));
	nd_lock();
	if (x->uses) {
		nd_unlock();
		return EBUSY;
	}
	if (!--d->handles) {
		while (*at && *at != d)
			at = &(*at)->next;
		if (*at)
			*at = d->next;
		if (d->fd >= 0)
			close(d->fd);
		free(d);
	}
	nd_live.xrcd--;
	nd_unlock();
	free(x);
	return 0;
}
