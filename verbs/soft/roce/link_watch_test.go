package roce

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// until waits until ok returns true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// Rule: while another goroutine runs the link, a datagram wakes the watching goroutine once: it arms the socket
// again when the datagram has been received.
func TestWatcherWaitsForTheRun(t *testing.T) {
	if sys.Portable {
		t.Skip("the portable socket is not armed")
	}
	d := new(device)
	d.port = must.Get(fabric.New(fabric.Config{}).Attach(gidOf(near), "device", d))(t)
	defer d.port.Detach()
	l := OpenPeers(d.port, "link", func() {})
	defer func() { must.Do(t, l.Close()) }()
	e := must.Get(l.Listen(netip.MustParseAddrPort("127.0.0.1:0"), false))(t)
	from := must.Get(net.Dial("udp", e.sock.Local().String()))(t)
	defer from.Close()
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		l.up.Exclusive(func() { close(inside); <-leave })
		close(left)
	}()
	<-inside
	must.Get(from.Write([]byte("no packet")))(t)
	until(t, "the watching goroutine takes the datagram's event", func() bool { return !e.armed.Load() })
	for range 10000 {
		if e.armed.Load() {
			t.Error("the socket was armed while the datagram was in it")
			break
		}
		runtime.Gosched()
	}
	close(leave)
	<-left
	until(t, "the socket is armed again", e.armed.Load)
	if s := l.Stats(); s.Received != 1 || s.Refused != 1 {
		t.Errorf("%+v, want 1 datagram, refused", s)
	}
}
