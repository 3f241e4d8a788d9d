package runtime

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
)

// The tests of this file run three processes, each in a network namespace of its own. The process of the
// test is a router. The processes "server" and "client" stand for two machines:
//
//	server 10.9.1.2 ── 10.9.1.1 router 10.9.2.1 ── 10.9.2.2 client

// machineRole is the environment variable with the role of a machine's process: "server" or "client".
const machineRole = "VERBENA_MACHINE"

// serverNet and clientNet are the first three bytes of the addresses in the two networks. In each network
// the last byte is 1 for the router and 2 for the machine.
const (
	serverNet = "10.9.1."
	clientNet = "10.9.2."
)

// command runs a program with the standard input stdin. If the program fails, the test fails.
func command(t *testing.T, stdin string, line ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(line, " "), err, out)
	}
}

// machine is a process in a network namespace of its own. A pair of veth interfaces connects the namespace to
// that of the test.
type machine struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer     // the standard input of the process
	out *bufio.Reader // the standard output of the process
}

// startMachine starts a machine. It also gives the router an address in the machine's network: the address
// whose last byte is 1.
func startMachine(t *testing.T, role, network string) *machine {
	t.Helper()
	h := &machine{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")}
	h.cmd.Env = append(os.Environ(), machineRole+"="+role)
	h.cmd.Stderr = os.Stderr
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	h.in = must.Get(h.cmd.StdinPipe())(t)
	h.out = bufio.NewReader(must.Get(h.cmd.StdoutPipe())(t))
	must.Do(t, h.cmd.Start())
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait() // returns an error if a signal ended the process, as after a failed test
	})
	command(t, "", "ip", "link", "add", role, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(h.cmd.Process.Pid))
	command(t, "", "ip", "addr", "add", network+"1/24", "dev", role)
	command(t, "", "ip", "link", "set", role, "up")
	h.tell("go")
	return h
}

// tell writes a line to the process.
func (h *machine) tell(what string) {
	h.t.Helper()
	if _, err := fmt.Fprintln(h.in, what); err != nil {
		printed, _ := io.ReadAll(h.out)
		h.t.Fatalf("the process has ended: %v; it printed\n%s", err, printed)
	}
}

// hears returns the next line that the process prints.
func (h *machine) hears() string {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("reading a line of a machine's process: %v; it printed %q and ended with %v", err, line, h.cmd.Wait())
	}
	return strings.TrimSpace(line)
}

// program is the function that a machine's process runs. It returns after it has read a line.
type program func(t *testing.T, m *self)

// self describes the machine to its program.
type self struct {
	role, network string        // of the machine: "server" and serverNet, or "client" and clientNet
	rt            *Runtime      // the runtime of the process
	in            *bufio.Reader // the standard input of the process
}

// route makes the router the default route of the machine.
func (m *self) route(t *testing.T) {
	t.Helper()
	command(t, "", "ip", "route", "add", "default", "via", m.network+"1")
}

// beMachine is the main function of a machine's process: it configures the machine and runs its program.
func beMachine(t *testing.T, role string, run program) {
	in := bufio.NewReader(os.Stdin)
	must.Get(in.ReadString('\n'))(t) // startMachine writes this line when eth0 exists
	command(t, "", "ip", "link", "set", "lo", "up")
	command(t, "", "ip", "link", "set", "eth0", "up")
	m := &self{role: role, network: clientNet, rt: mustOpen(t, Config{Provider: process(t)}), in: in}
	if role == "server" {
		m.network = serverNet
	}
	command(t, "", "ip", "addr", "add", m.network+"2/24", "dev", "eth0")
	run(t, m)
}

// echoMachine is a program. The server accepts a connection and sends two messages back. The client dials the
// server, sends two messages and checks that they come back. The server has no route to the client's network.
func echoMachine(t *testing.T, m *self) {
	ctx := t.Context() // no time limit, because the other process may start late; if the test fails, its process kills this process
	if m.role == "server" {
		ln := must.Get(m.rt.Listen(":7471"))(t)
		fmt.Println("listens")
		c := must.Get(ln.Accept(ctx))(t)
		fmt.Println(c.RemoteAddr().Addr())
		for range 2 {
			k := must.Get(c.RecvWait(ctx))(t)
			must.Get(must.Get(c.SendBytes(ctx, k.Data))(t).Await(ctx))(t)
			must.Do(t, k.Release())
		}
		must.Get(m.in.ReadString('\n'))(t)
		must.Do(t, c.Close(ctx))
		return
	}
	m.route(t)
	c := must.Get(m.rt.Dial(ctx, serverNet+"2:7471"))(t)
	// The second message is read from the peer's memory, in packets of 1500 bytes. It is not the longest one,
	// because an emulated machine may carry less than the 8 MiB a second that the bound of READs assumes.
	for _, n := range []int{8, 256 << 10} {
		fmt.Println(echoed(ctx, c, bytes.Repeat([]byte{byte(n)}, n)))
	}
	must.Get(m.in.ReadString('\n'))(t)
	must.Do(t, c.Close(ctx))
}

// echoed sends the message b and waits for the answer. It returns "echoed" if the answer is equal to b,
// otherwise a description of the error.
func echoed(ctx context.Context, c *Conn, b []byte) string {
	if _, err := c.SendBytes(ctx, b); err != nil {
		return err.Error()
	}
	m, err := c.RecvWait(ctx)
	switch {
	case err != nil:
		return err.Error()
	case !bytes.Equal(m.Data, b):
		return fmt.Sprintf("the answer to a message of %d bytes has %d bytes, and differs from the message", len(b), len(m.Data))
	}
	if err := m.Release(); err != nil {
		return err.Error()
	}
	return "echoed"
}

// machines starts a server and a client, which execute the program run. The router gets the nft(8) rules in
// the string rules, unless the string is empty. If server is nil, the calling test must return, because this process is a
// machine's process, or because netns.Enter has run the test in another process.
func machines(t *testing.T, rules string, run program) (server, client *machine) {
	t.Helper()
	if role := os.Getenv(machineRole); role != "" {
		beMachine(t, role, run)
		return nil, nil
	}
	needs := []string{"ip"}
	if rules != "" {
		needs = append(needs, "nft")
	}
	for _, name := range needs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%v (Debian: apt-get install iproute2 nftables)", err)
		}
	}
	if !netns.Enter(t) {
		return nil, nil
	}
	must.Do(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	if rules != "" {
		command(t, rules, "nft", "-f", "-")
	}
	server = startMachine(t, "server", serverNet)
	if got := server.hears(); got != "listens" {
		t.Fatalf("the server printed %q, want %q", got, "listens")
	}
	return server, startMachine(t, "client", clientNet)
}

// end ends the program of the machine, and waits until the process has ended.
func (h *machine) end() {
	h.t.Helper()
	h.tell("end")
	for line, err := h.out.ReadString('\n'); err == nil; line, err = h.out.ReadString('\n') {
		if line != "PASS\n" {
			h.t.Errorf("the ending process printed %q, want %q", line, "PASS\n")
		}
	}
	must.Do(h.t, h.cmd.Wait())
}

// Rule: if a router translates the client's address and port (NAT), the client can dial a listener in the network
// on the other side of the router. Messages of any length pass in both directions. The path has the MTU of
// Ethernet (1500 bytes).
func TestDialerBehindNAT(t *testing.T) {
	server, client := machines(t, `table ip nat {
		chain out { type nat hook postrouting priority srcnat; oifname "server" masquerade random; }
	}`, echoMachine)
	if server == nil {
		return
	}
	for range 2 {
		if got := client.hears(); got != "echoed" {
			t.Errorf("the client printed %q, want %q", got, "echoed")
		}
	}
	if got := server.hears(); got != serverNet+"1" {
		t.Errorf("the address of the server's peer is %s, want the router's address %s1", got, serverNet)
	}
	client.end()
	server.end()
}

// plainMachine is a program. It exchanges the addresses of the queue pairs over TCP, and connects without a
// connection manager. Each end sends a message to the peer. Then the program prints the local address of the
// connection and the message that it received.
func plainMachine(t *testing.T, m *self) {
	m.route(t)
	ctx, rt := t.Context(), m.rt
	p := must.Get(rt.Prepare(PlainOptions{}))(t)
	buf := must.Get(rt.Alloc(5))(t)
	recv := must.Get(p.PostRecv(buf.Slice()))(t)
	var c *Conn
	if m.role == "server" {
		ln := must.Get(net.Listen("tcp", ":7471"))(t)
		fmt.Println("listens")
		nc := must.Get(ln.Accept())(t)
		c = must.Get(p.Accept(ctx, nc))(t)
		must.Do(t, errors.Join(nc.Close(), ln.Close()))
	} else {
		nc := must.Get(net.Dial("tcp", serverNet+"2:7471"))(t)
		c = must.Get(p.Dial(ctx, nc))(t)
		must.Do(t, nc.Close())
	}
	must.Get(must.Get(c.SendBytes(ctx, []byte("hello")))(t).Await(ctx))(t)
	must.Get(recv.Await(ctx))(t)
	fmt.Printf("%v %s\n", c.LocalAddr().Addr(), buf.Bytes())
	must.Do(t, errors.Join(buf.Release(), c.Close(ctx)))
	must.Get(m.in.ReadString('\n'))(t)
}

// Rule: if two processes on different machines exchange the addresses of their queue pairs over TCP, they
// connect without a connection manager and without configuration.
func TestPlainConnectionBetweenMachines(t *testing.T) {
	server, client := machines(t, "", plainMachine)
	if server == nil {
		return
	}
	for host, want := range map[*machine]string{server: serverNet + "2 hello", client: clientNet + "2 hello"} {
		if got := host.hears(); got != want {
			t.Errorf("a machine printed %q, want %q", got, want)
		}
	}
	client.end()
	server.end()
}
