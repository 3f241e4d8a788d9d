package udp_test

import (
	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// withoutChecksums has s send no UDP checksums, and then Linux refuses to split datagrams (net/ipv4/udp.c,
// udp_send_skb: EINVAL).
func withoutChecksums(s *udp.Socket) error {
	return unix.SetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
}
