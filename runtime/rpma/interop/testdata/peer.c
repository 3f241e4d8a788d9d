/* A peer that uses librpma, for the tests of this folder. Both ends of a connection follow the same script:
 *
 *	the active end connects   each sends the descriptors of its memory and of its configuration
 *	the active end drives     and the passive one answers
 *	the passive end drives    and the active one answers
 *	the second end sends a message of no bytes, and the first one disconnects
 *
 * To drive is to write, flush, write atomically, read, and send messages and numbers. Each step whose outcome
 * the other end decides, and each completion, is a line of the output.
 *
 * Arguments: active or passive; the address of this end; the address and the port to connect to or to listen on;
 * first, second or refused; native, or plain for a device that executes no FLUSH and no ATOMIC_WRITE. A passive peer writes a byte to
 * descriptor 3 when it listens. */
#include <sys/mman.h>
#include <unistd.h>
#include "peer.h"

enum { LISTENS = 3, RCQ_SIZE = 10, TIMEOUT_MS = 30000, ARGUMENTS = 7 };

static int (*query)(struct ibv_context *, const struct ibv_query_device_ex_input *, struct ibv_device_attr_ex *, size_t);

static int query_plain(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size)
{
	int ret = query(ctx, input, attr, size);

	attr->device_cap_flags_ex &= ~(uint64_t)(IB_UVERBS_DEVICE_FLUSH_GLOBAL | IB_UVERBS_DEVICE_FLUSH_PERSISTENT | IB_UVERBS_DEVICE_ATOMIC_WRITE);
	return ret;
}

/* make_plain hides FLUSH and ATOMIC_WRITE of a device from librpma, which then uses READ and WRITE. */
static void make_plain(struct ibv_context *ctx)
{
	struct verbs_context *v = verbs_get_ctx(ctx);

	must("verbs_get_ctx", v == NULL);
	query = v->query_device_ex;
	v->query_device_ex = query_plain;
}

/* expose registers the memory, for persistent flushes too if the device accepts that, and describes it. */
static struct rpma_conn_private_data expose(struct peer *p, char *desc)
{
	const int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST |
			  RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;
	struct rpma_conn_private_data all = { desc, 0 };
	struct rpma_peer_cfg *config;

	p->mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must("mmap", p->mem == MAP_FAILED);
	fill(p, READABLE, READABLE_LEN, READ);
	if (rpma_mr_reg(p->peer, p->mem, SIZE, usage | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &p->mr))
		must("rpma_mr_reg", rpma_mr_reg(p->peer, p->mem, SIZE, usage, &p->mr));
	must("rpma_peer_cfg_new", rpma_peer_cfg_new(&config));
	must("rpma_peer_cfg_set_direct_write_to_pmem", rpma_peer_cfg_set_direct_write_to_pmem(config, p->passive));
	must("rpma_mr_get_descriptor_size", rpma_mr_get_descriptor_size(p->mr, &p->mr_size));
	must("rpma_peer_cfg_get_descriptor_size", rpma_peer_cfg_get_descriptor_size(config, &p->config_size));
	must("rpma_mr_get_descriptor", rpma_mr_get_descriptor(p->mr, desc));
	must("rpma_peer_cfg_get_descriptor", rpma_peer_cfg_get_descriptor(config, desc + p->mr_size));
	must("rpma_peer_cfg_delete", rpma_peer_cfg_delete(&config));
	all.len = (uint8_t)(p->mr_size + p->config_size);
	hex("described", desc, all.len);
	return all;
}

/* learn reads what the other end has described. */
static void learn(struct peer *p)
{
	struct rpma_conn_private_data got;
	uint8_t again;
	size_t size;
	int types;
	bool direct;

	must("rpma_conn_get_private_data", rpma_conn_get_private_data(p->conn, &got));
	must("the length of private data", got.len < p->mr_size + p->config_size);
	hex("learned", got.ptr, p->mr_size + p->config_size);
	must("rpma_mr_remote_from_descriptor", rpma_mr_remote_from_descriptor(got.ptr, p->mr_size, &p->remote));
	must("rpma_peer_cfg_from_descriptor", rpma_peer_cfg_from_descriptor((char *)got.ptr + p->mr_size, p->config_size, &p->config));
	must("rpma_mr_remote_get_size", rpma_mr_remote_get_size(p->remote, &size));
	must("rpma_mr_remote_get_flush_type", rpma_mr_remote_get_flush_type(p->remote, &types));
	must("rpma_peer_cfg_get_direct_write_to_pmem", rpma_peer_cfg_get_direct_write_to_pmem(p->config, &direct));
	printf("remote %zu %d %d\n", size, types, direct);
	must("rpma_peer_cfg_get_descriptor", rpma_peer_cfg_get_descriptor(p->config, &again));
	hex("configuration", &again, p->config_size);
}

/* flush_persistent prints what became of a persistent flush. */
static void flush_persistent(struct peer *p)
{
	int ret = rpma_flush(p->conn, p->remote, WRITTEN, WRITTEN_LEN, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, word(PERSISTENT));

	printf("persistent %d\n", ret);
	if (ret == 0)
		done(p);
}

static void drive(struct peer *p)
{
	const int always = RPMA_F_COMPLETION_ALWAYS, from_notice = SOURCES + 2 * PLACE, from_send = SOURCES + 3 * PLACE, from_imm = SOURCES + 4 * PLACE;

	fill(p, SOURCES, WRITTEN_LEN, WRITE);
	must("rpma_write", rpma_write(p->conn, p->remote, WRITTEN, p->mr, SOURCES, WRITTEN_LEN, RPMA_F_COMPLETION_ON_ERROR, word(WRITE)));
	must("rpma_flush", rpma_flush(p->conn, p->remote, WRITTEN, WRITTEN_LEN, RPMA_FLUSH_TYPE_VISIBILITY, always, word(FLUSH)));
	done(p);
	flush_persistent(p); /* of a peer whose configuration is unknown */
	must("rpma_conn_apply_remote_peer_cfg", rpma_conn_apply_remote_peer_cfg(p->conn, p->config));
	flush_persistent(p);
	must("rpma_atomic_write", rpma_atomic_write(p->conn, p->remote, WORD, fill(p, SOURCES + PLACE, WORD_LEN, ATOMIC), always, word(ATOMIC)));
	done(p);
	must("rpma_flush", rpma_flush(p->conn, p->remote, WORD, WORD_LEN, RPMA_FLUSH_TYPE_VISIBILITY, always, word(FLUSH_WORD)));
	done(p);
	must("rpma_read", rpma_read(p->conn, p->mr, FETCHED, p->remote, READABLE, READABLE_LEN, always, word(READ)));
	done(p);
	hex("read", p->mem + FETCHED, READABLE_LEN);
	fill(p, from_notice, NOTICED_LEN, NOTICE);
	must("rpma_write_with_imm", rpma_write_with_imm(p->conn, p->remote, NOTICED, p->mr, from_notice, NOTICED_LEN, always, notice_number, word(NOTICE)));
	done(p);
	fill(p, from_send, MESSAGE_LEN, SEND);
	must("rpma_send", rpma_send(p->conn, p->mr, from_send, MESSAGE_LEN, always, word(SEND)));
	done(p);
	fill(p, from_imm, MESSAGE_LEN, SEND_IMM);
	must("rpma_send_with_imm", rpma_send_with_imm(p->conn, p->mr, from_imm, MESSAGE_LEN, always, send_number, word(SEND_IMM)));
	done(p);
}

static void answer(struct peer *p)
{
	for (int i = 0; i < MESSAGES; i++)
		arrival(p);
	hex("memory", p->mem, EXPOSED_LEN);
}

/* converse follows the script on an established connection. The first end learns by the message of no bytes that
 * the second has nothing outstanding, and disconnects. */
static void converse(struct peer *p, bool first)
{
	must("rpma_conn_get_cq", rpma_conn_get_cq(p->conn, &p->cq));
	must("rpma_conn_get_rcq", rpma_conn_get_rcq(p->conn, &p->rcq));
	if (first)
		must("rpma_recv", rpma_recv(p->conn, NULL, 0, 0, word(RECV + MESSAGES)));
	learn(p);
	if (p->passive)
		answer(p);
	drive(p);
	if (!p->passive)
		answer(p);
	if (first) {
		arrival(p);
		must("rpma_conn_disconnect", rpma_conn_disconnect(p->conn));
		event(p);
	} else {
		must("rpma_send", rpma_send(p->conn, NULL, 0, 0, RPMA_F_COMPLETION_ON_ERROR, word(BYE)));
		event(p);
		must("rpma_conn_disconnect", rpma_conn_disconnect(p->conn));
	}
	must("rpma_mr_remote_delete", rpma_mr_remote_delete(&p->remote));
	must("rpma_peer_cfg_delete", rpma_peer_cfg_delete(&p->config));
}

/* request makes a connection request, or waits for one. */
static struct rpma_conn_req *request(struct peer *p, const char *addr, const char *port)
{
	struct rpma_conn_req *req;
	struct rpma_conn_cfg *cfg;

	must("rpma_conn_cfg_new", rpma_conn_cfg_new(&cfg));
	must("rpma_conn_cfg_set_rcq_size", rpma_conn_cfg_set_rcq_size(cfg, RCQ_SIZE));
	must("rpma_conn_cfg_set_timeout", rpma_conn_cfg_set_timeout(cfg, TIMEOUT_MS));
	if (p->passive) {
		must("rpma_ep_listen", rpma_ep_listen(p->peer, addr, port, &p->ep));
		must("write", write(LISTENS, "", 1) != 1);
		must("rpma_ep_next_conn_req", rpma_ep_next_conn_req(p->ep, cfg, &req));
	} else {
		must("rpma_conn_req_new", rpma_conn_req_new(p->peer, addr, port, cfg, &req));
	}
	must("rpma_conn_cfg_delete", rpma_conn_cfg_delete(&cfg));
	return req;
}

int main(int argc, char **argv)
{
	struct peer p = { 0 };
	struct ibv_context *ctx;
	struct rpma_conn_private_data described;
	struct rpma_conn_req *req;
	char desc[UINT8_MAX];
	bool refused;

	must("arguments", argc != ARGUMENTS);
	setvbuf(stdout, NULL, _IOLBF, 0);
	p.passive = strcmp(argv[1], "passive") == 0;
	refused = strcmp(argv[5], "refused") == 0;
	must("rpma_utils_get_ibv_context", rpma_utils_get_ibv_context(argv[2], RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx));
	printf("device %s\n", ctx->device->name);
	if (strcmp(argv[6], "plain") == 0)
		make_plain(ctx);
	must("rpma_peer_new", rpma_peer_new(ctx, &p.peer));
	described = expose(&p, desc);
	req = request(&p, argv[3], argv[4]);
	if (p.passive && refused) {
		must("rpma_conn_req_delete", rpma_conn_req_delete(&req));
	} else {
		for (int i = 0; i < MESSAGES; i++)
			must("rpma_conn_req_recv", rpma_conn_req_recv(req, p.mr, INBOX + i * PLACE, PLACE, word(RECV + i)));
		must("rpma_conn_req_connect", rpma_conn_req_connect(&req, &described, &p.conn));
		event(&p);
		if (!refused)
			converse(&p, strcmp(argv[5], "first") == 0);
		must("rpma_conn_delete", rpma_conn_delete(&p.conn));
	}
	must("rpma_ep_shutdown", rpma_ep_shutdown(&p.ep)); /* does nothing at an active end */
	must("rpma_mr_dereg", rpma_mr_dereg(&p.mr));
	must("rpma_peer_delete", rpma_peer_delete(&p.peer));
	printf("end\n");
	return 0;
}
