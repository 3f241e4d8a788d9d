/* Appends records to persistent memory of another process by librpma, one at a time: a WRITE and a persistent FLUSH, whose
 * completion ends the append. It is what way_rpma.go does.
 *
 *	append serve FILE ADDRESS PORT
 *	append polling|waiting OWN-ADDRESS ADDRESS PORT GAP OPERATIONS SIZE...
 *
 * The server prints "ready" when it listens, and ends when the other end has gone. The other end computes for GAP
 * microseconds before each append, and prints a line for it: the size of the record, and the time in nanoseconds. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <librpma.h>

/* way.go has the first three. A mapping of a devdax device is a multiple of MAPPED. */
enum { RING = 1 << 20, LARGEST = 4096, WARM = 100, MAPPED = 2 << 20, TIMEOUT_MS = 30000, DESCRIPTION = UINT8_MAX };

/* must ends the program if a call has failed. */
static void must(const char *what, int ret)
{
	if (ret) {
		fprintf(stderr, "%s: %s, errno %s\n", what, rpma_err_2str(ret), strerror(errno));
		exit(1);
	}
}

static struct rpma_peer *peer_at(const char *addr)
{
	struct ibv_context *ctx;
	struct rpma_peer *peer;

	must("rpma_utils_get_ibv_context", rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx));
	must("rpma_peer_new", rpma_peer_new(ctx, &peer));
	return peer;
}

static void expect(struct rpma_conn *conn, enum rpma_conn_event want)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	must("rpma_conn_next_event", rpma_conn_next_event(conn, &event));
	must(rpma_utils_conn_event_2str(event), event != want);
}

static void serve(const char *file, const char *addr, const char *port)
{
	struct rpma_peer *peer = peer_at(addr);
	char desc[DESCRIPTION];
	struct rpma_conn_private_data told = { desc, 0 };
	struct rpma_peer_cfg *config;
	struct rpma_mr_local *mr;
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	struct rpma_ep *ep;
	size_t mr_size, config_size;
	void *mem;
	int fd = open(file, O_RDWR);

	must("open", fd < 0);
	mem = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must("mmap", mem == MAP_FAILED);
	must("rpma_mr_reg", rpma_mr_reg(peer, mem, RING, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));
	must("rpma_peer_cfg_new", rpma_peer_cfg_new(&config));
	must("rpma_peer_cfg_set_direct_write_to_pmem", rpma_peer_cfg_set_direct_write_to_pmem(config, true));
	must("rpma_mr_get_descriptor_size", rpma_mr_get_descriptor_size(mr, &mr_size));
	must("rpma_peer_cfg_get_descriptor_size", rpma_peer_cfg_get_descriptor_size(config, &config_size));
	must("rpma_mr_get_descriptor", rpma_mr_get_descriptor(mr, desc));
	must("rpma_peer_cfg_get_descriptor", rpma_peer_cfg_get_descriptor(config, desc + mr_size));
	told.len = (uint8_t)(mr_size + config_size);
	must("rpma_ep_listen", rpma_ep_listen(peer, addr, port, &ep));
	puts("ready");
	fflush(stdout);
	must("rpma_ep_next_conn_req", rpma_ep_next_conn_req(ep, NULL, &req));
	must("rpma_conn_req_connect", rpma_conn_req_connect(&req, &told, &conn));
	expect(conn, RPMA_CONN_ESTABLISHED);
	expect(conn, RPMA_CONN_CLOSED);
	must("rpma_conn_disconnect", rpma_conn_disconnect(conn));
	must("rpma_conn_delete", rpma_conn_delete(&conn));
	must("rpma_ep_shutdown", rpma_ep_shutdown(&ep));
	must("rpma_peer_cfg_delete", rpma_peer_cfg_delete(&config));
	must("rpma_mr_dereg", rpma_mr_dereg(&mr));
	must("rpma_peer_delete", rpma_peer_delete(&peer));
}

/* The server's memory, and what is appended to it. */
struct ring {
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	struct rpma_mr_local *record;
	struct rpma_mr_remote *mr;
	size_t at;
	bool wait;
};

static void append(struct ring *r, size_t size)
{
	size_t at = r->at + size > RING ? 0 : r->at;
	struct ibv_wc wc;
	int ret;

	r->at = at + size;
	must("rpma_write", rpma_write(r->conn, r->mr, at, r->record, 0, size, RPMA_F_COMPLETION_ON_ERROR, NULL));
	must("rpma_flush", rpma_flush(r->conn, r->mr, at, size, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, NULL));
	do {
		if (r->wait)
			must("rpma_cq_wait", rpma_cq_wait(r->cq));
	} while ((ret = rpma_cq_get_wc(r->cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION);
	must("rpma_cq_get_wc", ret);
	must(ibv_wc_status_str(wc.status), wc.status != IBV_WC_SUCCESS);
}

static int64_t now(void)
{
	struct timespec t;

	must("clock_gettime", clock_gettime(CLOCK_MONOTONIC, &t));
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void measure(struct ring *r, size_t size, int64_t gap, int n)
{
	int64_t *took = calloc((size_t)(WARM + n), sizeof(*took));

	must("calloc", took == NULL);
	for (int i = 0; i < WARM + n; i++) {
		int64_t t = now();

		while (gap && now() - t < gap)
			;
		t = now();
		append(r, size);
		took[i] = now() - t;
	}
	for (int i = WARM; i < WARM + n; i++)
		printf("%zu %lld\n", size, (long long)took[i]);
	free(took);
}

static void call(char **argv)
{
	struct ring r = { .wait = strcmp(argv[1], "waiting") == 0 };
	struct rpma_peer *peer = peer_at(argv[2]);
	struct rpma_conn_private_data told;
	struct rpma_peer_cfg *config;
	struct rpma_conn_cfg *cfg;
	struct rpma_conn_req *req;
	size_t mr_size;
	void *mem = mmap(NULL, LARGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must("mmap", mem == MAP_FAILED);
	must("rpma_mr_reg", rpma_mr_reg(peer, mem, LARGEST, RPMA_MR_USAGE_WRITE_SRC, &r.record));
	must("rpma_conn_cfg_new", rpma_conn_cfg_new(&cfg));
	must("rpma_conn_cfg_set_timeout", rpma_conn_cfg_set_timeout(cfg, TIMEOUT_MS)); /* under emulation */
	must("rpma_conn_req_new", rpma_conn_req_new(peer, argv[3], argv[4], cfg, &req));
	must("rpma_conn_cfg_delete", rpma_conn_cfg_delete(&cfg));
	must("rpma_conn_req_connect", rpma_conn_req_connect(&req, NULL, &r.conn));
	expect(r.conn, RPMA_CONN_ESTABLISHED);
	must("rpma_conn_get_private_data", rpma_conn_get_private_data(r.conn, &told));
	must("rpma_mr_get_descriptor_size", rpma_mr_get_descriptor_size(r.record, &mr_size));
	must("the length of private data", told.len <= mr_size);
	must("rpma_mr_remote_from_descriptor", rpma_mr_remote_from_descriptor(told.ptr, mr_size, &r.mr));
	must("rpma_peer_cfg_from_descriptor", rpma_peer_cfg_from_descriptor((char *)told.ptr + mr_size, told.len - mr_size, &config));
	must("rpma_conn_apply_remote_peer_cfg", rpma_conn_apply_remote_peer_cfg(r.conn, config));
	must("rpma_conn_get_cq", rpma_conn_get_cq(r.conn, &r.cq));
	for (char **size = argv + 7; *size; size++)
		measure(&r, (size_t)atoi(*size), atoi(argv[5]) * 1000LL, atoi(argv[6]));
	must("rpma_conn_disconnect", rpma_conn_disconnect(r.conn));
	expect(r.conn, RPMA_CONN_CLOSED);
	must("rpma_peer_cfg_delete", rpma_peer_cfg_delete(&config));
	must("rpma_mr_remote_delete", rpma_mr_remote_delete(&r.mr));
	must("rpma_conn_delete", rpma_conn_delete(&r.conn));
	must("rpma_mr_dereg", rpma_mr_dereg(&r.record));
	must("rpma_peer_delete", rpma_peer_delete(&peer));
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "serve") == 0)
		serve(argv[2], argv[3], argv[4]);
	else if (argc > 7)
		call(argv);
	else
		must("arguments", 1);
	return 0;
}
