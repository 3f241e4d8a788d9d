/* A turn, as C carries it out; see turn.c and turn.go. */
#ifndef TURN_H
#define TURN_H

#include "shim.h"

/* The kinds of groups, in the order in which a turn has them. */
enum {
	TURN_RECV = 0,	   /* obj is a vb_qp, at the first vb_recv_wr */
	TURN_SRQ_RECV = 1, /* obj is a vb_srq, at the first vb_recv_wr */
	TURN_SEND = 2,	   /* obj is a vb_qp, at the first vb_send_wr */
	TURN_SEND_EX = 3,  /* the same, to be posted by ibv_wr_* */
	TURN_ARM = 4,	   /* obj is a vb_cq */
	TURN_ARM_SOLICITED = 5,
	TURN_POLL = 6,	  /* obj is a vb_cq, at an array of count vb_wc */
	TURN_POLL_EX = 7, /* the same, of a vb_cq_ex */
	TURN_NONE = 8	  /* nothing to do */
};

enum {
	TURN_LOOK_BINDINGS = 1, /* there are memory windows: a list may bind them */
	TURN_LOOK_OPCODES = 2,	/* the library takes any opcode */
	TURN_LOOK_INVALID = 4	/* of a poll: WITH_INV comes as the kernel's number */
};

/* One group. The array of them is Go's, on the stack of a goroutine or of its
 * heap, and lent from the call of turn_run to its return: nothing here keeps a
 * pointer to it. Addresses are numbers in it, so that it holds no pointer of Go. */
struct turn_group {
	uint64_t obj;
	uint64_t at;
	uint64_t ex;	/* of a send: the vb_qp_ex; 0 without extended posting */
	uint32_t ops;	/* of a send: the VB_QP_EX_WITH_ that the vb_qp_ex has; of a poll: count again */
	uint16_t kind;
	uint16_t look;	/* of a send or a poll: TURN_LOOK_ bits, what to look for in the list */
	uint32_t count; /* in: the length of the list or array. out: how many */
	int32_t err;	/* out: an errno, 0 for none */
};

/* turn_run carries out n groups in their order, and the polls among them up to spin
 * more times as long as they give nothing. */
void turn_run(struct turn_group *g, uint32_t n, uint32_t spin);

/* turn_post_ex posts a list by ibv_wr_*: all of it or, with an errno, nothing. */
int turn_post_ex(struct vb_qp_ex *q, uint32_t ops, struct vb_send_wr *wr);

#endif
