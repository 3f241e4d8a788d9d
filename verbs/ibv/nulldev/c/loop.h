/* The work of loopback: what carries requests, and waits. nd.h includes it. */
#ifndef ND_LOOP_H
#define ND_LOOP_H

/* loop.c, respond.c, datagram.c, timer.c: with nd_mu held */
enum nd_outcome { ND_DONE, ND_FAILED, ND_NO_PEER, ND_NO_RECV };
void nd_progress(struct nd_qp *qp);
void nd_kick(void); /* makes all waiting requests try again */
void nd_complete(struct nd_qp *qp, struct nd_send *w, int status, uint32_t bytes);
void nd_flush_sends(struct nd_qp *qp);
void nd_flush_recvs(struct nd_qp *qp);
enum nd_outcome nd_carry(struct nd_qp *qp, struct nd_send *w, int *status, uint32_t *bytes);
enum nd_outcome nd_datagram(struct nd_qp *qp, struct nd_send *w, int *status);
/* A list of memory ranges: of a send, or of a receive. */
struct nd_bytes {
	struct nd_pd *pd;
	const struct vb_sge *sge;
	int n;
	const uint8_t *inl; /* instead of sge */
	uint64_t len;
};
struct nd_bytes nd_bytes_of(struct nd_pd *pd, const struct vb_sge *sge, int n, const uint8_t *inl, uint64_t len);
bool nd_bytes_ok(const struct nd_bytes *b, unsigned access);
void nd_copy_in(void *to, const struct nd_bytes *from);
void nd_copy_out(const struct nd_bytes *to, uint64_t skip, const void *from, uint64_t len);
void nd_copy(const struct nd_bytes *to, uint64_t skip, const struct nd_bytes *from);
/* The next receive of a queue pair, or of srq; NULL when there is none. */
struct nd_recv *nd_recv_next(struct nd_qp *qp, struct nd_srq *srq);
/* Takes it, and completes it with the fields of e. */
void nd_recv_done(struct nd_qp *qp, struct nd_srq *srq, struct nd_cqe e);
/* Waits for a peer or, if rnr, for a receive: at most ns, 0: no limit. Reports whether the time
 * is over. */
bool nd_wait(struct nd_qp *qp, bool rnr, uint64_t ns);
void nd_unwait(struct nd_qp *qp);
void nd_timer_stop(void);

#endif
