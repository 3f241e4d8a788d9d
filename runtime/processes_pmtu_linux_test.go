package runtime

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// narrowRoute is the MTU in bytes that the router's routes get in TestANarrowerPathKeepsItsConnections.
const narrowRoute = 800

// narrowedMachine is a program. The client sends messages that the server sends back. It reads a line after the first
// ones, and dials once more after the last.
func narrowedMachine(t *testing.T, m *self) {
	ctx := t.Context()
	if m.role == "server" {
		m.route(t)
		ln := must.Get(m.rt.Listen(":7471"))(t)
		fmt.Println("listens")
		c := must.Get(ln.Accept(ctx))(t)
		for range 4 {
			k := must.Get(c.RecvWait(ctx))(t)
			must.Get(must.Get(c.SendBytes(ctx, k.Data))(t).Await(ctx))(t)
			must.Do(t, k.Release())
		}
		d := must.Get(ln.Accept(ctx))(t)
		must.Get(m.in.ReadString('\n'))(t)
		must.Do(t, c.Close(ctx))
		must.Do(t, d.Close(ctx))
		return
	}
	m.route(t)
	const addr = serverNet + "2:7471"
	c := must.Get(m.rt.Dial(ctx, addr))(t)
	send := func() {
		for _, n := range []int{1000, 256 << 10} {
			fmt.Println(echoed(ctx, c, bytes.Repeat([]byte{byte(n)}, n)))
		}
	}
	send()
	must.Get(m.in.ReadString('\n'))(t)
	send()
	d := must.Get(m.rt.Dial(ctx, addr))(t)
	fmt.Println(must.Get(d.Attributes(ctx))(t).PathMTU.Bytes())
	must.Get(m.in.ReadString('\n'))(t)
	must.Do(t, c.Close(ctx))
	must.Do(t, d.Close(ctx))
}

// Rule: if the path becomes narrower than the packets of a connection, the connection goes on: its packets cross in IP
// fragments. A new connection has packets that the path carries whole.
func TestANarrowerPathKeepsItsConnections(t *testing.T) {
	server, client := machines(t, "", narrowedMachine)
	if server == nil {
		return
	}
	hears := func(when, want string) {
		t.Helper()
		if got := client.hears(); got != want {
			t.Fatalf("%s: the client printed %q, want %q", when, got, want)
		}
	}
	for range 2 {
		hears("a path of 1500 bytes", "echoed")
	}
	for net, dev := range map[string]string{serverNet: "server", clientNet: "client"} {
		command(t, "", "ip", "route", "change", net+"0/24", "dev", dev, "mtu", fmt.Sprint(narrowRoute))
	}
	client.tell("narrow")
	for range 2 {
		hears("a narrower path", "echoed")
	}
	mtu := verbs.MTU512
	if sys.Portable { // it knows the MTU of the interface, not that of the route
		mtu = verbs.MTU1024
	}
	hears("a new connection", fmt.Sprint(mtu.Bytes()))
	client.end()
	server.end()
}
