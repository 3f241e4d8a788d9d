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

// machineRole is the environment variable of a process with a network namespace of its own: what it does.
const machineRole = "VERBENA_MACHINE"

// The networks on both sides of the router; each host has the address 2, the router 1.
const (
	serverNet = "10.9.1."
	clientNet = "10.9.2."
)

// command runs a program and fails the test if it does.
func command(t *testing.T, stdin string, line ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(line, " "), err, out)
	}
}

// machine is a process in a network namespace of its own, joined to that of the test by a pair of interfaces.
type machine struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

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
		_ = h.cmd.Wait() // the signal, if the test has failed
	})
	command(t, "", "ip", "link", "add", role, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(h.cmd.Process.Pid))
	command(t, "", "ip", "addr", "add", network+"1/24", "dev", role)
	command(t, "", "ip", "link", "set", role, "up")
	h.tell("go")
	return h
}

func (h *machine) tell(what string) {
	h.t.Helper()
	must.Get(fmt.Fprintln(h.in, what))(h.t)
}

// hears returns the next line of the process.
func (h *machine) hears() string {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("a process ended: %q, %v, %v", line, err, h.cmd.Wait())
	}
	return strings.TrimSpace(line)
}

// A program runs on a machine. It ends when it reads a line.
type program func(t *testing.T, m *self)

// self is what a program knows of its machine.
type self struct {
	role, network string
	rt            *Runtime
	in            *bufio.Reader
}

// route gives the machine a route to the other network.
func (m *self) route(t *testing.T) {
	t.Helper()
	command(t, "", "ip", "route", "add", "default", "via", m.network+"1")
}

// beMachine configures the machine of this process, and runs its program.
func beMachine(t *testing.T, role string, run program) {
	in := bufio.NewReader(os.Stdin)
	must.Get(in.ReadString('\n'))(t)
	command(t, "", "ip", "link", "set", "lo", "up")
	command(t, "", "ip", "link", "set", "eth0", "up")
	m := &self{role: role, network: clientNet, rt: mustOpen(t, Config{Provider: process(t)}), in: in}
	if role == "server" {
		m.network = serverNet
	}
	command(t, "", "ip", "addr", "add", m.network+"2/24", "dev", "eth0")
	run(t, m)
}

// echoMachine is a listener that answers messages, or a dialer that sends some. The server has no route to the network
// of the client.
func echoMachine(t *testing.T, m *self) {
	ctx := t.Context() // the test kills this process if it fails: another may take long to start
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
	for _, n := range []int{8, c.MaxMessage()} {
		fmt.Println(echoed(ctx, c, bytes.Repeat([]byte{byte(n)}, n)))
	}
	must.Get(m.in.ReadString('\n'))(t)
	must.Do(t, c.Close(ctx))
}

// echoed sends a message, and reports whether it comes back.
func echoed(ctx context.Context, c *Conn, b []byte) string {
	if _, err := c.SendBytes(ctx, b); err != nil {
		return err.Error()
	}
	m, err := c.RecvWait(ctx)
	switch {
	case err != nil:
		return err.Error()
	case !bytes.Equal(m.Data, b):
		return fmt.Sprintf("%d bytes came back changed", len(b))
	}
	if err := m.Release(); err != nil {
		return err.Error()
	}
	return "echoed"
}

// machines starts a server and a client behind a router, which has the rules of nft if there are some; both run a program. Without a server the
// test must return: its process is that of a machine, or it has run in another one.
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
		t.Fatalf("the server says %q", got)
	}
	return server, startMachine(t, "client", clientNet)
}

// end ends the program of a machine, and waits for that.
func (h *machine) end() {
	h.t.Helper()
	h.tell("end")
	for line, err := h.out.ReadString('\n'); err == nil; line, err = h.out.ReadString('\n') {
		if line != "PASS\n" {
			h.t.Errorf("a process says %q", line)
		}
	}
	must.Do(h.t, h.cmd.Wait())
}

// Rule: a process behind a router that translates addresses and ports reaches a listener; messages pass in
// both directions, of any length, over a path with the MTU of an Ethernet.
func TestDialerBehindNAT(t *testing.T) {
	server, client := machines(t, `table ip nat {
		chain out { type nat hook postrouting priority srcnat; oifname "server" masquerade random; }
	}`, echoMachine)
	if server == nil {
		return
	}
	for range 2 {
		if got := client.hears(); got != "echoed" {
			t.Errorf("the client says %q", got)
		}
	}
	if got := server.hears(); got != serverNet+"1" {
		t.Errorf("the server sees a peer at %s, want the router's address %s1", got, serverNet)
	}
	client.end()
	server.end()
}

// plainMachine connects without a connection manager: it exchanges the address of its queue pair over TCP, then a
// message, and prints its address of the connection.
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

// Rule: processes of two machines are connected without a connection manager and without configuration.
func TestPlainConnectionBetweenMachines(t *testing.T) {
	server, client := machines(t, "", plainMachine)
	if server == nil {
		return
	}
	for host, want := range map[*machine]string{server: serverNet + "2 hello", client: clientNet + "2 hello"} {
		if got := host.hears(); got != want {
			t.Errorf("a machine says %q, want %q", got, want)
		}
	}
	client.end()
	server.end()
}
