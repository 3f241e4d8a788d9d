/* Extended completion queues: ibv_start_poll and the readers. The queue's lock is held from
 * start_poll to end_poll, as in drivers. */
#include "nd.h"

static struct nd_cq *of(struct vb_cq_ex *c) { return (struct nd_cq *)c; }

static int next(struct vb_cq_ex *c)
{
	struct nd_cq *cq = of(c);

	if (!nd_cq_take(cq, &cq->at))
		return ENOENT;
	c->wr_id = cq->at.wr_id;
	c->status = cq->at.status;
	return 0;
}

static int start_poll(struct vb_cq_ex *c, struct vb_poll_cq_attr *attr)
{
	struct nd_cq *cq = of(c);
	int err;

	if (attr->comp_mask)
		return EINVAL;
	if (__builtin_expect(__atomic_load_n(&nd_scripted, __ATOMIC_RELAXED), 0)) {
		ND_CALL("ibv_start_poll", cq->ctx->dev);
		nd_late_polled(cq);
	}
	if (nd_fatal(cq->ctx->dev))
		return EIO;
	pthread_spin_lock(&cq->lock);
	cq->polls++;
	err = next(c);
	if (!err)
		return 0;
	cq->empty++;
	if (cq->dead)
		err = EIO;
	pthread_spin_unlock(&cq->lock); /* after an error end_poll is not called */
	return err;
}

static void end_poll(struct vb_cq_ex *c) { pthread_spin_unlock(&of(c)->lock); }

static vb_enum opcode(struct vb_cq_ex *c) { return of(c)->at.opcode; }
static uint32_t vendor_err(struct vb_cq_ex *c) { return of(c)->at.vendor_err; }
static uint32_t byte_len(struct vb_cq_ex *c) { return of(c)->at.byte_len; }
static uint32_t imm_data(struct vb_cq_ex *c) { return of(c)->at.imm; }
static uint32_t qp_num(struct vb_cq_ex *c) { return of(c)->at.qp_num; }
static uint32_t src_qp(struct vb_cq_ex *c) { return of(c)->at.src_qp; }
static unsigned wc_flags(struct vb_cq_ex *c) { return of(c)->at.wc_flags; }
static uint32_t slid(struct vb_cq_ex *c) { return of(c)->at.slid; }
static uint8_t sl(struct vb_cq_ex *c) { return of(c)->at.sl; }
static uint8_t path_bits(struct vb_cq_ex *c) { return of(c)->at.path_bits; }

struct vb_cq_ex *nd_create_cq_ex(struct vb_context *c, struct vb_cq_init_attr_ex *a)
{
	struct nd_cq *cq;
	struct vb_cq_ex *x;

	ND_CALL_PTR("ibv_create_cq_ex", nd_dev_of(c));
	nd_command(c);
	if ((a->wc_flags & ~(uint64_t)VB_WC_STANDARD_FLAGS) || (a->comp_mask & ~VB_CQ_INIT_ATTR_MASK_FLAGS))
		return nd_null(EOPNOTSUPP);
	if ((a->comp_mask & VB_CQ_INIT_ATTR_MASK_FLAGS) && (a->flags & ~VB_CREATE_CQ_ATTR_SINGLE_THREADED))
		return nd_null(EOPNOTSUPP);
	cq = nd_cq_make(c, a->cqe > ND_MAX_CQE ? 0 : (int)a->cqe, a->cq_context, a->channel, a->comp_vector);
	if (!cq)
		return NULL;
	x = &cq->cq;
	x->start_poll = start_poll;
	x->next_poll = next;
	x->end_poll = end_poll;
	x->read_opcode = opcode;
	x->read_vendor_err = vendor_err;
	x->read_wc_flags = wc_flags;
#define READER(bit, member, fn) do { if (a->wc_flags & (bit)) x->member = fn; } while (0)
	READER(VB_WC_EX_WITH_BYTE_LEN, read_byte_len, byte_len);
	READER(VB_WC_EX_WITH_IMM, read_imm_data, imm_data);
	READER(VB_WC_EX_WITH_QP_NUM, read_qp_num, qp_num);
	READER(VB_WC_EX_WITH_SRC_QP, read_src_qp, src_qp);
	READER(VB_WC_EX_WITH_SLID, read_slid, slid);
	READER(VB_WC_EX_WITH_SL, read_sl, sl);
	READER(VB_WC_EX_WITH_DLID_PATH_BITS, read_dlid_path_bits, path_bits);
#undef READER
	return x;
}
