/* A batch (verbs.IOBatch), as C executes it; see batch.c and frame.go. */
#ifndef BATCH_H
#define BATCH_H

#include "shim.h"

/* The kinds of groups, in the order of a batch. */
enum {
	BATCH_RECV = 0,	   /* obj is a vb_qp, at the first vb_recv_wr */
	BATCH_SRQ_RECV = 1, /* obj is a vb_srq, at the first vb_recv_wr */
	BATCH_SEND = 2,	   /* obj is a vb_qp, at the first vb_send_wr */
	BATCH_SEND_EX = 3,  /* the same, posted with ibv_wr_* */
	BATCH_ARM = 4,	   /* obj is a vb_cq */
	BATCH_ARM_SOLICITED = 5,
	BATCH_POLL = 6,	  /* obj is a vb_cq, at an array of count vb_wc */
	BATCH_POLL_EX = 7, /* the same, for a vb_cq_ex */
	BATCH_NONE = 8	  /* nothing to do */
};

enum {
	BATCH_LOOK_BINDINGS = 1, /* there are memory windows: a list may bind them */
	BATCH_LOOK_OPCODES = 2,	/* the library accepts any opcode */
	BATCH_LOOK_INVALID = 4	/* for a poll: WITH_INV has the kernel's number */
};

/* One group. The array of groups is in Go memory, on the stack or the heap, and lent from the
 * call of batch_run to its return: C keeps no pointer to it. Addresses in it are numbers, so that
 * it holds no Go pointer. */
struct batch_group {
	uint64_t obj;
	uint64_t at;
	uint64_t ex;	/* for a send: the vb_qp_ex; 0 without extended posting */
	uint32_t ops;	/* for a send: the ops flags of the vb_qp_ex (VB_QP_EX_WITH_); for a poll:
	             	 * count again */
	uint16_t kind;
	uint16_t look;	/* for a send or a poll: BATCH_LOOK_ bits, the checks to make */
	uint32_t count; /* in: the length of the list or array; out: the number done */
	int32_t err;	/* out: an errno, 0 for none */
};

/* batch_run executes n groups in order, and repeats the polls among them up to spin times as long
 * as they yield nothing. */
void batch_run(struct batch_group *g, uint32_t n, uint32_t spin);

/* batch_ops returns those of ops, the operations that extended posting was requested for, that q has all
 * functions for: a driver may accept all flags and set the functions that it has
 * (providers/bnxt_re/verbs.c, bnxt_re_set_qp_ex_ops). 0: no extended posting. */
uint32_t batch_ops(const struct vb_qp_ex *q, uint32_t ops);

/* batch_post_ex posts a list with ibv_wr_*: all of it or, with an errno, nothing. */
int batch_post_ex(struct vb_qp_ex *q, uint32_t ops, struct vb_send_wr *wr);

#endif
