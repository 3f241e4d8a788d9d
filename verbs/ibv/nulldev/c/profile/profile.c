/* Selecting a profile. */
#define _GNU_SOURCE
#include <time.h>
#include "nd.h"

/* The null device by itself. */
const struct nd_profile nd_plain = { .name = "plain" };

static const struct nd_profile *const all[] = {
	&nd_plain, &nd_mlx4, &nd_mlx5, &nd_mlx5_ib, &nd_mlx5_vf, &nd_irdma, &nd_iwarp, &nd_bnxt_re, &nd_efa, &nd_erdma,
	&nd_hns, &nd_siw, &nd_hugepages,
};
enum { PROFILES = sizeof(all) / sizeof(*all) };

static const struct nd_profile *now = &nd_plain; /* atomic: written by nulldev_set_profile, read by all */

const struct nd_profile *nd_profile_now(void) { return __atomic_load_n(&now, __ATOMIC_ACQUIRE); }

ND_EXPORT const struct nd_profile *nulldev_profile_of(struct vb_context *c) { return nd_profile_of(c); }

void nd_command(struct vb_context *c)
{
	uint32_t us = nd_profile_of(c)->command_us;
	struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L };

	if (us)
		while (nanosleep(&t, &t) && errno == EINTR)
			;
}

ND_EXPORT const char *nulldev_profile_name(uint32_t i) { return i < PROFILES ? all[i]->name : NULL; }

ND_EXPORT int nulldev_set_profile(const char *name)
{
	for (int i = 0; i < PROFILES; i++)
		if (!strcmp(all[i]->name, name)) {
			__atomic_store_n(&now, all[i], __ATOMIC_RELEASE);
			return 0;
		}
	return -ENOENT;
}

/* The environment selects the first one, as VERBENA_NULLDEV_MODE does the mode. */
__attribute__((constructor)) static void from_environment(void)
{
	const char *name = getenv("VERBENA_NULLDEV_PROFILE");

	if (name)
		nulldev_set_profile(name);
}
