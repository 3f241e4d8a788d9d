/* What peer.c does with the memory of a peer, and what it prints. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <librpma.h>

/* The memory of each end. script_test.go has the same. */
enum {
	SIZE = 4096,
	WRITTEN = 0, WRITTEN_LEN = 64,   /* filled by the peer's write */
	WORD = 64, WORD_LEN = 8,         /* by its atomic write */
	NOTICED = 128, NOTICED_LEN = 16, /* by its write with a number */
	EXPOSED_LEN = 192,               /* nothing beyond is the peer's to write */
	READABLE = 1024, READABLE_LEN = 32,
	FETCHED = 1088,
	SOURCES = 2048, INBOX = 3072, /* of operations and of messages, PLACE bytes each */
	PLACE = 64, MESSAGE_LEN = 24, MESSAGES = 3,
};

/* Operations: the words of their completions, and the seeds of their data. */
enum { WRITE = 1, FLUSH, PERSISTENT, ATOMIC, FLUSH_WORD, READ, NOTICE, SEND, SEND_IMM, BYE, RECV = 100 };

/* The numbers that come with a write and with a message. */
static const uint32_t notice_number = 0x01020304, send_number = 0xa1b2c3d4;

struct peer {
	bool passive;
	char *mem;
	struct rpma_peer *peer;
	struct rpma_mr_local *mr;
	size_t mr_size, config_size;  /* of descriptors */
	struct rpma_mr_remote *remote;
	struct rpma_peer_cfg *config; /* of the other end */
	struct rpma_ep *ep;           /* of a passive end; the request uses its event channel */
	struct rpma_conn *conn;
	struct rpma_cq *cq, *rcq;
};

/* must ends the program if a call has failed. */
static void must(const char *what, int ret)
{
	if (ret) {
		fprintf(stderr, "%s: %s, errno %s\n", what, rpma_err_2str(ret), strerror(errno));
		exit(1);
	}
}

static void hex(const char *what, const void *at, size_t n)
{
	printf("%s ", what);
	for (size_t i = 0; i < n; i++)
		printf("%02x", ((const uint8_t *)at)[i]);
	printf("\n");
}

/* fill writes the data of an operation of this end. */
static char *fill(struct peer *p, int at, int n, int seed)
{
	for (int i = 0; i < n; i++)
		p->mem[at + i] = (char)(1 + 7 * i + 31 * seed + 101 * p->passive);
	return p->mem + at;
}

static const void *word(int n)
{
	return (const void *)(uintptr_t)n;
}

/* next waits for a completion. rpma_cq_wait may return without one. */
static struct ibv_wc next(struct rpma_cq *cq)
{
	struct ibv_wc wc;
	int ret;

	while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
		must("rpma_cq_wait", rpma_cq_wait(cq));
	must("rpma_cq_get_wc", ret);
	return wc;
}

/* done prints the word and the status of the next completion of an operation. */
static void done(struct peer *p)
{
	struct ibv_wc wc = next(p->cq);

	printf("done %d %d\n", (int)wc.wr_id, wc.status);
}

/* arrival prints the status, the kind, the length and the number of what arrives next, and the message, which is
 * at the place that the word of its receive names. */
static void arrival(struct peer *p)
{
	struct ibv_wc wc = next(p->rcq);
	int place = (int)wc.wr_id - RECV;

	must("the word of a receive", place < 0 || place > MESSAGES);
	printf("arrival %d %d %u ", wc.status, wc.opcode, wc.byte_len);
	if (wc.wc_flags & IBV_WC_WITH_IMM)
		printf("%08x ", ntohl(wc.imm_data));
	hex("message", p->mem + INBOX + place * PLACE, wc.opcode == IBV_WC_RECV ? wc.byte_len : 0);
}

static void event(struct peer *p)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	must("rpma_conn_next_event", rpma_conn_next_event(p->conn, &event));
	printf("event %s\n", rpma_utils_conn_event_2str(event));
}
