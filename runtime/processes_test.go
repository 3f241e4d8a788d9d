package runtime

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// process returns a software RNIC that shares no fabric with any other software RNIC. So it reaches others only
// over UDP, as if it ran in a process of its own.
func process(t *testing.T) *soft.Provider {
	t.Helper()
	return must.Get(soft.New(soft.Config{
		Fabric:  fabric.New(fabric.Config{JumboMTU: true}),
		Devices: []soft.DeviceConfig{{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1"), Link: soft.LinkPeers}},
	}))(t)
}

// Rule: without configuration, a process can dial a listener of another process at each address of the
// machine. If the dialer is in the listener's process, the connection uses no socket.
func TestTwoProcesses(t *testing.T) {
	server, client := mustOpen(t, Config{Provider: process(t)}), mustOpen(t, Config{Provider: process(t)})
	ctx := testContext(t)
	ln := must.Get(server.Listen(":0"))(t)
	hosts := []string{"127.0.0.1", "[::1]", "localhost"}
	if udp.ReportsTo { // the socket reports the destination address, which the answer needs as its source address
		hosts = append(hosts, "127.1.2.3")
	}
	for _, host := range hosts {
		c, err := client.Dial(ctx, fmt.Sprintf("%s:%d", host, ln.Addr().Port()))
		if err != nil {
			t.Fatalf("dialing %s: %v", host, err)
		}
		o := must.Get(ln.Accept(ctx))(t)
		if c.Link() != "peers" || o.Link() != "peers" {
			t.Errorf("%s: the links of the two ends are %q and %q, want \"peers\"", host, c.Link(), o.Link())
		}
		if _, err := c.SendBytes(ctx, []byte("hello from "+host)); err != nil {
			t.Fatal(err)
		}
		m := must.Get(o.RecvWait(ctx))(t)
		if got := string(m.Data); got != "hello from "+host {
			t.Errorf("%s: received %q, want %q", host, got, "hello from "+host)
		}
		must.Do(t, m.Release())
		t.Logf("the dialing end is %v to %v, the accepting end is %v to %v", c.LocalAddr(), c.RemoteAddr(), o.LocalAddr(), o.RemoteAddr())
		must.Do(t, c.Close(ctx))
		must.Do(t, o.Close(ctx))
	}
	c := must.Get(server.Dial(ctx, ln.Addr().String()))(t) // dials from the listener's process
	o := must.Get(ln.Accept(ctx))(t)
	if c.Link() != "process" || o.Link() != "process" {
		t.Errorf("within a process the links of the two ends are %q and %q, want \"process\"", c.Link(), o.Link())
	}
}

// Rule: if two runtimes exchange the addresses of their queue pairs over TCP at a loopback address, the connection
// uses the address of their devices. This holds within a process and between processes. For TCP at other
// addresses see TestPlainConnectionBetweenMachines.
func TestPlainConnectionOverLoopback(t *testing.T) {
	here, there := mustOpen(t, Config{Provider: process(t)}), mustOpen(t, Config{Provider: process(t)})
	for _, host := range []string{"127.0.0.1", "::1"} {
		for link, server := range map[string]*Runtime{"within a process": here, "between processes": there} {
			c, s := joinedOverTCP(t, here, server, host)
			say(t, c, s, "hello")
			say(t, s, c, "hello too")
			for _, at := range []netip.AddrPort{c.LocalAddr(), c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr()} {
				if at.Addr() != here.Device().Addr[0] {
					t.Errorf("%s, TCP at %s: an end has the address %v, want the device's address %v", link, host, at.Addr(), here.Device().Addr[0])
				}
			}
			s.Abort()
			c.Abort()
		}
	}
}

// Rule: if a datagram comes from another process, a reply reaches the queue pair that has sent the datagram.
func TestPacketAndReplyBetweenProcesses(t *testing.T) {
	server, client := mustOpen(t, Config{Provider: process(t)}), mustOpen(t, Config{Provider: process(t)})
	a, b := mustListenPacket(t, client, Options{}), mustListenPacket(t, server, Options{})
	packetAndReply(t, a, b, fmt.Sprintf("127.0.0.1:%d", b.Addr().Port()))
}

// Rule: if a WRITE goes to another process, neither end allocates memory for the WRITE.
func TestWritesToAnotherProcessAllocateNothing(t *testing.T) {
	if sys.Portable || raceEnabled {
		t.Skip("the portable socket and the race detector allocate")
	}
	server, client := mustOpen(t, Config{Provider: process(t)}), mustOpen(t, Config{Provider: process(t)})
	ctx := testContext(t)
	ln := must.Get(server.Listen("127.0.0.1:0"))(t)
	c := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
	to, from := must.Get(server.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t), must.Get(client.NewRegion(64, 0))(t)
	write := WriteOp(must.Get(from.Slice(0, 64))(t), must.Get(to.Remote(0, 64))(t))
	once := func() {
		if _, err := c.Do(ctx, &write); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		once() // the first operations allocate: pools grow
	}
	// AllocsPerRun rounds down to a whole number per run. So a few allocations of a probe or a timer do not count.
	if n := testing.AllocsPerRun(2000, once); n != 0 {
		t.Errorf("a WRITE made %v allocations, want 0", n)
	}
}
