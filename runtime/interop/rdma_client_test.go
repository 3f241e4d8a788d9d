package interop

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// rdma_client and rdma_server exchange one message of 16 bytes each way (rdma-core,
// librdmacm/examples/rdma_client.c and rdma_server.c), as long as one of rping. At the end they print their result, which is
// also their exit code.

// Rule: the smallest client of librdmacm connects to a listener, and both ends receive a message.
func TestRdmaClient(t *testing.T) {
	onDevices(t, "rdma_client", func(b *bench) {
		rt := b.open()
		ln, err := rt.ListenOptions(net.JoinHostPort(b.ours.addr.String(), "0"), raw)
		b.must(err)
		p := b.start("rdma_client", "-s", b.ours.addr.String(), "-p", strconv.Itoa(int(ln.Addr().Port())))
		c, err := ln.Accept(b.ctx)
		b.must(err)
		e := b.newEnd(rt, c, infoSize)
		_, err = e.hear()
		b.must(err)
		e.answer()
		ended(b, p.succeeded(), "rdma_client: end 0")
	})
}

// Rule: a connection can be dialed to the smallest server of librdmacm, and both ends receive a message.
func TestRdmaServer(t *testing.T) {
	onDevices(t, "rdma_server", func(b *bench) {
		rt := b.open()
		port := b.rdmaPort()
		p := b.start("rdma_server", "-s", b.theirs.addr.String(), "-p", port)
		to := netip.AddrPortFrom(b.theirs.addr, atoi16(port)).String()
		c := untilListening(p, func() (*verbena.Conn, error) { return rt.DialOptions(b.ctx, to, raw) }, nobodyListens)
		e := b.newEnd(rt, c, infoSize)
		e.answer()
		_, err := e.hear()
		b.must(err)
		b.closing(c)
		ended(b, p.succeeded(), "rdma_server: end 0")
	})
}

// answer sends a message. The program disconnects soon after it, and may leave it unacknowledged: see end.serve.
func (e *end) answer() {
	e.b.Helper()
	if err := e.tell(make([]byte, infoSize)); !errors.Is(err, verbena.ErrPeerClosed) {
		e.b.must(err)
	}
}

// ended checks that a program has printed its result.
func ended(b *bench, out, line string) {
	b.Helper()
	if !strings.Contains(out, line+"\n") {
		b.Errorf("the program printed %q, not %q", out, line)
	}
}
