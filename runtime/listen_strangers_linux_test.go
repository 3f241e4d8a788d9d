//go:build !portable

package runtime

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
)

// forgedREQ is an IPv4 datagram with request n, as if it came from src.
func forgedREQ(n uint32, src, to netip.AddrPort) []byte {
	h, m := askedREQ(n, src.Addr(), to, []byte("no hello")) // it is refused at once
	b := append(append(h.Append(nil), m[:]...), make([]byte, roce.ICRCLen)...)
	binary.LittleEndian.PutUint32(b[len(b)-roce.ICRCLen:], new(roce.Cover).Sum(b))
	const headers = 20 + 8
	ip := make([]byte, headers, headers+len(b))
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	from, at := src.Addr().As4(), to.Addr().As4()
	copy(ip[12:], from[:])
	copy(ip[16:], at[:])
	binary.BigEndian.PutUint16(ip[20:], src.Port())
	binary.BigEndian.PutUint16(ip[22:], to.Port())
	binary.BigEndian.PutUint16(ip[24:], uint16(8+len(b)))
	return append(ip, b...)
}

// Rule: the device answers forged requests from unused addresses of its own network. These answers neither end a
// connection, with or without a socket of its path, nor make a Dial fail. (The bug: they filled the send buffer that all
// connections shared.)
func TestForgedRequestsEndNoConnection(t *testing.T) {
	if !netns.Enter(t) {
		return
	}
	command(t, "", "ip", "link", "add", "own", "type", "veth", "peer", "name", "nobody")
	command(t, "", "ip", "addr", "add", "10.9.1.1/24", "dev", "own")
	command(t, "", "ip", "link", "set", "own", "up")
	command(t, "", "ip", "link", "set", "nobody", "up")
	server := mustOpen(t, Config{Provider: process(t)})
	ctx := testContext(t)
	ln := must.Get(server.Listen(":0"))(t)
	at := netip.AddrPortFrom(netip.MustParseAddr("10.9.1.1"), ln.Addr().Port())
	var theirs, ours []*Conn
	connect := func() {
		t.Helper()
		client := mustOpen(t, Config{Provider: process(t)}) // of another path
		theirs = append(theirs, must.Get(client.Dial(ctx, fmt.Sprintf("127.0.0.1:%d", at.Port())))(t))
		ours = append(ours, must.Get(ln.Accept(ctx))(t))
	}
	for range 12 { // more than paths have sockets
		connect()
	}

	end, ended, flooded := make(chan struct{}), make(chan struct{}), make(chan struct{})
	fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW))(t)
	go func() { // 1,000 requests a second
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := uint32(1); ; n++ {
			if n%10 == 0 {
				select {
				case <-end:
					return
				case <-tick.C:
				}
			}
			if n == 500 { // the answers are more than a send buffer holds
				close(flooded)
			}
			src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 1, byte(2 + n%250)}), uint16(1024+n))
			_ = unix.Sendto(fd, forgedREQ(n, src, at), 0, &unix.SockaddrInet4{Addr: at.Addr().As4()})
		}
	}()
	<-flooded
	for i, c := range ours {
		f, err := c.SendBytes(ctx, []byte("beside the flood"))
		if err == nil {
			_, err = f.Await(ctx)
		}
		if err != nil {
			t.Errorf("connection %d: %v", i, err)
			continue
		}
		release(t, must.Get(theirs[i].RecvWait(ctx))(t))
	}
	connect()
	close(end)
	<-ended
	must.Do(t, unix.Close(fd))
}
