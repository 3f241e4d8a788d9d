/* The floor of bandwidth: what the kernel's UDP carries between two processes, with the work on each
 * byte that reliable packets of RoCE need. Bursts of 64 KiB in segments of 4 KiB leave by segmentation
 * offload (UDP_SEGMENT) and arrive by UDP_GRO. The sender computes the CRC-32 of each segment; the
 * receiver checks it, copies the payload once to where it belongs, and acknowledges each burst. There
 * are no connections, no retransmission and no memory protection.
 *
 *	gso serve         the receiver; a round's answer is its port, and its CPU time until now
 *	gso send PORT     the sender; a round is "round ops=BURSTS"
 *
 * Each is a side of package benchmarks/internal/side. Nothing is lost over loopback while the window
 * fits the receive buffer; a lost datagram ends the round with an error. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "crc.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
	PAYLOAD = 4096,
	SEGMENTS = 16,          /* of a burst */
	MESSAGES = 2,           /* of a burst: one holds less than 64 KiB, headers included */
	PER_MESSAGE = SEGMENTS / MESSAGES,
	WINDOW = 16,            /* bursts */
	BUFFER = 16 << 20,      /* of the receiver: the window as the kernel accounts for it, with room */
	BATCH = 8,              /* messages received by one call */
	LOOKS = 200,            /* empty looks before a side sleeps: some 40 microseconds */
	PATIENCE = 5000,        /* milliseconds of silence until a datagram counts as lost */
};

struct header {
	uint64_t seq; /* of the segment */
	uint32_t crc; /* of the payload */
	uint32_t len;
};

struct segment {
	struct header h;
	uint8_t payload[PAYLOAD];
};

/* An acknowledgment is the number of bursts that have arrived. */
typedef uint64_t ack;

#define CHECK(cond)                                                                                   \
	do {                                                                                          \
		if (!(cond)) {                                                                        \
			printf("cannot %s:%d: %s: %s\n", __FILE__, __LINE__, #cond, strerror(errno)); \
			exit(1);                                                                      \
		}                                                                                     \
	} while (0)

static double used(void)
{
	struct rusage u;

	CHECK(!getrusage(RUSAGE_SELF, &u));
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
}

static double now(void)
{
	struct timespec t;

	CHECK(!clock_gettime(CLOCK_MONOTONIC, &t));
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* open_socket returns a socket at a port of loopback that the system selects. */
static int open_socket(int *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int size = BUFFER, fd;

	CHECK((fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) >= 0);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size))); /* as much as the system grants */
	CHECK(!bind(fd, (struct sockaddr *)&a, sizeof(a)));
	CHECK(!getsockname(fd, (struct sockaddr *)&a, &len));
	*port = ntohs(a.sin_port);
	return fd;
}

/* readable waits until fd has a datagram; it returns 0 after PATIENCE. */
static int readable(int fd, int patience)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, patience);
	while (n < 0 && errno == EINTR);
	CHECK(n >= 0);
	return n;
}

static struct segment in[BATCH][PER_MESSAGE + 1]; /* one more: a longer message would show */
static uint8_t memory[SEGMENTS * PAYLOAD];        /* where the payload belongs */

/* take checks a message of n bytes in segments of size each, and copies the payload. */
static void take(const struct segment *s, size_t n, size_t size, uint64_t *next)
{
	CHECK(size == sizeof(*s) && n % size == 0);
	for (; n; n -= size, s++, ++*next) {
		CHECK(s->h.seq == *next && s->h.len == PAYLOAD); /* else one was lost */
		CHECK(crc32(s->payload, PAYLOAD) == s->h.crc);
		memcpy(memory + *next % SEGMENTS * PAYLOAD, s->payload, PAYLOAD);
	}
}

static void *receive(void *arg)
{
	int fd = *(int *)arg, looks = 0;
	struct mmsghdr m[BATCH] = { 0 };
	struct iovec v[BATCH];
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control[BATCH];
	struct sockaddr_in from;
	uint64_t next = 0;

	for (;;) {
		int n;

		for (int i = 0; i < BATCH; i++) {
			v[i] = (struct iovec){ in[i], sizeof(in[i]) };
			m[i].msg_hdr = (struct msghdr){ .msg_iov = &v[i], .msg_iovlen = 1, .msg_control = &control[i], .msg_controllen = sizeof(control[i]),
				.msg_name = i ? NULL : &from, .msg_namelen = i ? 0 : sizeof(from) };
		}
		n = recvmmsg(fd, m, BATCH, MSG_DONTWAIT, NULL);
		if (n < 0) {
			CHECK(errno == EAGAIN || errno == EINTR);
			if (++looks >= LOOKS)
				readable(fd, -1);
			continue;
		}
		looks = 0;
		for (int i = 0; i < n; i++) {
			size_t size = m[i].msg_len; /* without a control message it is one segment */
			uint64_t bursts = next / SEGMENTS;
			ack a;

			CHECK(!(m[i].msg_hdr.msg_flags & MSG_TRUNC));
			for (struct cmsghdr *c = CMSG_FIRSTHDR(&m[i].msg_hdr); c; c = CMSG_NXTHDR(&m[i].msg_hdr, c))
				if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
					int of;

					memcpy(&of, CMSG_DATA(c), sizeof(of));
					size = of;
				}
			take(in[i], m[i].msg_len, size, &next);
			if ((a = next / SEGMENTS) > bursts)
				CHECK(sendto(fd, &a, sizeof(a), 0, (struct sockaddr *)&from, sizeof(from)) == sizeof(a));
		}
	}
	return NULL;
}

static uint8_t source[SEGMENTS * PAYLOAD];
static uint64_t sent, acked; /* bursts */

static void send_burst(int fd)
{
	static struct header h[SEGMENTS];
	static struct iovec v[2 * SEGMENTS];
	union {
		char room[CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr c;
	} control = { .c = { .cmsg_len = CMSG_LEN(sizeof(uint16_t)), .cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT } };
	const uint16_t size = sizeof(struct segment);
	struct mmsghdr m[MESSAGES] = { 0 };
	int done = 0;

	memcpy(CMSG_DATA(&control.c), &size, sizeof(size));
	for (int i = 0; i < SEGMENTS; i++) {
		uint8_t *p = source + i * PAYLOAD;

		h[i] = (struct header){ .seq = sent * SEGMENTS + i, .crc = crc32(p, PAYLOAD), .len = PAYLOAD };
		v[2 * i] = (struct iovec){ &h[i], sizeof(h[i]) };
		v[2 * i + 1] = (struct iovec){ p, PAYLOAD };
	}
	for (int i = 0; i < MESSAGES; i++)
		m[i].msg_hdr = (struct msghdr){ .msg_iov = &v[2 * PER_MESSAGE * i], .msg_iovlen = 2 * PER_MESSAGE, .msg_control = &control, .msg_controllen = sizeof(control) };
	while (done < MESSAGES) {
		int n = sendmmsg(fd, m + done, MESSAGES - done, 0);

		CHECK(n > 0 || errno == EINTR);
		done += n > 0 ? n : 0;
	}
	sent++;
}

/* await_acks reads acknowledgments until at most outstanding bursts are not acknowledged. */
static void await_acks(int fd, uint64_t outstanding)
{
	int looks = 0;

	while (sent - acked > outstanding) {
		ack a;
		ssize_t n = recv(fd, &a, sizeof(a), MSG_DONTWAIT);

		if (n == sizeof(a)) {
			CHECK(a > acked && a <= sent);
			acked = a;
			looks = 0;
			continue;
		}
		CHECK(n < 0 && (errno == EAGAIN || errno == EINTR));
		if (++looks >= LOOKS)
			CHECK(readable(fd, PATIENCE) && "a datagram was lost");
	}
}

static void send_rounds(const char *text)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(text)) };
	char line[256];
	int port, fd = open_socket(&port);

	CHECK(!connect(fd, (struct sockaddr *)&to, sizeof(to)));
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = i * 31 + i / 256;
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		double cpu = used(), wall = now();
		long ops;

		if (sscanf(line, "round ops=%ld", &ops) != 1 || ops < 1) {
			printf("cannot what is that: %s", line);
			continue;
		}
		for (long i = 0; i < ops; i++) {
			await_acks(fd, WINDOW - 1);
			send_burst(fd);
		}
		await_acks(fd, 0);
		wall = now() - wall;
		cpu = used() - cpu;
		printf("ok cpu_ns=%.0f ops=%ld wall_ns=%.0f\n", cpu, ops, wall);
	}
}

int main(int argc, char **argv)
{
	char line[256];
	pthread_t t;
	int port, fd, on = 1;

	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(crc_begin() && "the CRC is wrong");
	if (argc == 3 && !strcmp(argv[1], "send")) {
		send_rounds(argv[2]);
		return 0;
	}
	CHECK(argc == 2 && !strcmp(argv[1], "serve"));
	fd = open_socket(&port);
	CHECK(!setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)));
	CHECK(!pthread_create(&t, NULL, receive, &fd));
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin))
		printf("ok cpu_ns=%.0f port=%d\n", used(), port);
	return 0; /* ends the receiver */
}
