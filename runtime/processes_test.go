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

// process returns a software RNIC of another process: it shares no fabric with that of this process.
func process(t *testing.T) *soft.Provider {
	t.Helper()
	return must.Get(soft.New(soft.Config{
		Fabric:  fabric.New(fabric.Config{JumboMTU: true}),
		Devices: []soft.DeviceConfig{{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1"), Link: soft.LinkPeers}},
	}))(t)
}

// Rule: without configuration a listener of one process is reached from another, at each address of the
// machine.
func TestTwoProcesses(t *testing.T) {
	server, client := mustOpen(t, Config{Provider: process(t)}), mustOpen(t, Config{Provider: process(t)})
	ctx := testContext(t)
	ln := must.Get(server.Listen(":0"))(t)
	hosts := []string{"127.0.0.1", "[::1]", "localhost"}
	if udp.ReportsTo { // else an answer may come from another address
		hosts = append(hosts, "127.1.2.3")
	}
	for _, host := range hosts {
		c, err := client.Dial(ctx, fmt.Sprintf("%s:%d", host, ln.Addr().Port()))
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		o := must.Get(ln.Accept(ctx))(t)
		if c.Link() != "peers" || o.Link() != "peers" {
			t.Errorf("%s: the links are %q and %q, want \"peers\"", host, c.Link(), o.Link())
		}
		if _, err := c.SendBytes(ctx, []byte("hello from "+host)); err != nil {
			t.Fatal(err)
		}
		m := must.Get(o.RecvWait(ctx))(t)
		if got := string(m.Data); got != "hello from "+host {
			t.Errorf("%s: got %q", host, got)
		}
		must.Do(t, m.Release())
		t.Logf("%v to %v, accepted at %v from %v", c.LocalAddr(), c.RemoteAddr(), o.LocalAddr(), o.RemoteAddr())
		must.Do(t, c.Close(ctx))
		must.Do(t, o.Close(ctx))
	}
	c := must.Get(server.Dial(ctx, ln.Addr().String()))(t) // from the process of the listener
	o := must.Get(ln.Accept(ctx))(t)
	if c.Link() != "process" || o.Link() != "process" {
		t.Errorf("within a process the links are %q and %q, want \"process\"", c.Link(), o.Link())
	}
}

// Rule: if processes exchange the addresses of their queue pairs over TCP at a loopback address, they are connected by
// the device's own address, within a process and between two. For another address see TestPlainConnectionBetweenMachines.
func TestPlainConnectionOverLoopback(t *testing.T) {
	here, there := mustOpen(t, Config{Provider: process(t)}), mustOpen(t, Config{Provider: process(t)})
	for _, host := range []string{"127.0.0.1", "::1"} {
		for link, server := range map[string]*Runtime{"within a process": here, "between two": there} {
			c, s := joinedOverTCP(t, here, server, host)
			say(t, c, s, "hello")
			say(t, s, c, "hello yourself")
			for _, at := range []netip.AddrPort{c.LocalAddr(), c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr()} {
				if at.Addr() != here.Device().Addr[0] {
					t.Errorf("%s, %s: an end is at %v, want %v", link, host, at, here.Device().Addr)
				}
			}
			s.Abort()
			c.Abort()
		}
	}
}

// Rule: a datagram from another process is answered there, at the queue pair that has sent it.
func TestPacketAndReplyBetweenProcesses(t *testing.T) {
	server, client := mustOpen(t, Config{Provider: process(t)}), mustOpen(t, Config{Provider: process(t)})
	a, b := mustListenPacket(t, client, Options{}), mustListenPacket(t, server, Options{})
	packetAndReply(t, a, b, fmt.Sprintf("127.0.0.1:%d", b.Addr().Port()))
}

// Rule: a WRITE to another process allocates nothing at either end.
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
		once() // pools grow
	}
	if n := testing.AllocsPerRun(2000, once); n != 0 { // rounded down: a keep-alive or a timer may allocate
		t.Errorf("%v allocations for a WRITE, want 0", n)
	}
}
