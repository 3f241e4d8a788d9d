package runtime

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: if Config.ConnectTimeout is over before the TCP connection is established, DialPlain returns
// ErrConnectTimeout, whichever timer of package net expires first.
func TestDialPlainToAFullBacklog(t *testing.T) {
	fd := must.Get(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
	defer syscall.Close(fd)
	must.Do(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must.Do(t, syscall.Listen(fd, 0))
	at := must.Get(syscall.Getsockname(fd))(t).(*syscall.SockaddrInet4)
	addr := netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)).String()
	defer must.Get(net.Dial("tcp", addr))(t).Close() // fills the backlog: Linux drops the SYNs of further connections
	rt := mainBed.open(t, Config{ConnectTimeout: time.Millisecond}, 0)
	for range 20 {
		_, err := rt.DialPlain(testContext(t), addr, PlainOptions{})
		if !errors.Is(err, ErrConnectTimeout) || errors.Is(err, context.Canceled) {
			t.Fatalf("DialPlain to a listener with a full backlog: %v, want ErrConnectTimeout", err)
		}
	}
}
