/* The steps of the state machine, and the required and optional attributes of each (IBTA volume
 * 1, 11.2.5.2; the kernel's qp_state_table, drivers/infiniband/core/verbs.c). */
#include "nd.h"

enum {
	CONN_INIT = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	UD_INIT = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_QKEY,
	UC_RTR = VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN,
	RC_RTR = UC_RTR | VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER,
	RC_RTS = VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_SQ_PSN | VB_QP_MAX_QP_RD_ATOMIC,
	XR_RTS = VB_QP_TIMEOUT | VB_QP_SQ_PSN,
	UC_LIVE = VB_QP_CUR_STATE | VB_QP_ALT_PATH | VB_QP_ACCESS_FLAGS | VB_QP_PATH_MIG_STATE,
	RC_LIVE = UC_LIVE | VB_QP_MIN_RNR_TIMER,
	UD_LIVE = VB_QP_CUR_STATE | VB_QP_QKEY,
	CONN_OPT = VB_QP_ALT_PATH | VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX,
	RC_SQD = VB_QP_PORT | VB_QP_AV | VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC |
		VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_ALT_PATH | VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX |
		VB_QP_MIN_RNR_TIMER | VB_QP_PATH_MIG_STATE,
	UC_SQD = VB_QP_AV | VB_QP_ALT_PATH | VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX | VB_QP_PATH_MIG_STATE,
};

struct step {
	int from, to, must, may;
};

#define STEPS(init, rtr, rtropt, rts, live, sqd)                              \
	{                                                                     \
		{ VB_QPS_RESET, VB_QPS_INIT, init, 0 },                       \
		{ VB_QPS_INIT, VB_QPS_INIT, 0, init },                        \
		{ VB_QPS_INIT, VB_QPS_RTR, rtr, rtropt },                     \
		{ VB_QPS_RTR, VB_QPS_RTS, rts, live },                        \
		{ VB_QPS_RTS, VB_QPS_RTS, 0, live },                          \
		{ VB_QPS_RTS, VB_QPS_SQD, 0, VB_QP_EN_SQD_ASYNC_NOTIFY },     \
		{ VB_QPS_SQD, VB_QPS_RTS, 0, live },                          \
		{ VB_QPS_SQD, VB_QPS_SQD, 0, sqd },                           \
	}

enum { N_STEPS = 8 };
static const struct step rc[] = STEPS(CONN_INIT, RC_RTR, CONN_OPT, RC_RTS, RC_LIVE, RC_SQD);
static const struct step uc[] = STEPS(CONN_INIT, UC_RTR, CONN_OPT, VB_QP_SQ_PSN, UC_LIVE, UC_SQD);
static const struct step ud[] = STEPS(UD_INIT, 0, VB_QP_PKEY_INDEX | VB_QP_QKEY, VB_QP_SQ_PSN, UD_LIVE,
				      VB_QP_PKEY_INDEX | VB_QP_QKEY);
static const struct step xs[] = STEPS(CONN_INIT, UC_RTR, CONN_OPT, RC_RTS, UC_LIVE,
				      RC_SQD & ~(VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER));
static const struct step xr[] = STEPS(CONN_INIT, RC_RTR, CONN_OPT, XR_RTS, RC_LIVE,
				      RC_SQD & ~(VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC));
static const struct step uc_sqe = { VB_QPS_SQE, VB_QPS_RTS, 0, VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS };
static const struct step ud_sqe = { VB_QPS_SQE, VB_QPS_RTS, 0, UD_LIVE };

static int fits(const struct step *s, int from, int to, int mask)
{
	if (s->from != from || s->to != to)
		return EINVAL;
	return (mask & s->must) == s->must && !(mask & ~(s->must | s->may)) ? 0 : EINVAL;
}

int nd_transition(int type, int from, int to, int mask)
{
	const struct step *t = type == VB_QPT_UC ? uc : type == VB_QPT_UD ? ud : type == VB_QPT_XRC_SEND ? xs :
		type == VB_QPT_XRC_RECV ? xr : rc;

	mask &= ~VB_QP_STATE;
	if (to == VB_QPS_RESET || (to == VB_QPS_ERR && from != VB_QPS_RESET))
		return mask ? EINVAL : 0;
	if (type == VB_QPT_UC && !fits(&uc_sqe, from, to, mask))
		return 0;
	if (type == VB_QPT_UD && !fits(&ud_sqe, from, to, mask))
		return 0;
	for (int i = 0; i < N_STEPS; i++)
		if (!fits(&t[i], from, to, mask))
			return 0;
	return EINVAL;
}
