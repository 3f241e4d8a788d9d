/* Profiles: what a driver and its device do otherwise than the null device by itself. Each file of
 * this folder is named after the driver that it imitates, and cites the source of each difference.
 *
 * A field that is not set leaves the null device as it is. A context keeps the profile that was
 * selected when it was opened; the devices of the list have the one that is selected now. */
#ifndef ND_PROFILE_H
#define ND_PROFILE_H

#include "vb_verbs.h"

struct nd_profile {
	const char *name;
	uint8_t node, transport; /* VB_NODE_, VB_TRANSPORT_; 0: a channel adapter of InfiniBand or RoCE */
	void (*limits)(struct vb_device_attr_ex *a);
	void (*port)(struct vb_port_attr *a);
};

extern const struct nd_profile nd_plain;
extern const struct nd_profile nd_mlx5, nd_mlx5_ib, nd_irdma, nd_iwarp, nd_bnxt_re, nd_efa, nd_erdma;

/* The selected profile. */
const struct nd_profile *nd_profile_now(void);

#endif
