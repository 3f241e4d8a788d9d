package runtime

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
)

// natRole is the environment variable of a process with a network namespace of its own: what it does.
const natRole = "VERBENA_NAT"

// The networks on both sides of the router; each host has the address 2, the router 1. The server's has no
// route to the client's.
const (
	natServer = "10.9.1."
	natClient = "10.9.2."
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

// natHost is a process in a network namespace of its own, joined to that of the test by a pair of interfaces.
type natHost struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func startNATHost(t *testing.T, role, network string) *natHost {
	t.Helper()
	h := &natHost{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")}
	h.cmd.Env = append(os.Environ(), natRole+"="+role)
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

func (h *natHost) tell(what string) {
	h.t.Helper()
	must.Get(fmt.Fprintln(h.in, what))(h.t)
}

// hears returns the next line of the process.
func (h *natHost) hears() string {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("a process ended: %q, %v, %v", line, err, h.cmd.Wait())
	}
	return strings.TrimSpace(line)
}

// beNATHost is the program of a process behind the router or before it.
func beNATHost(t *testing.T, role string) {
	in := bufio.NewReader(os.Stdin)
	must.Get(in.ReadString('\n'))(t)
	command(t, "", "ip", "link", "set", "lo", "up")
	command(t, "", "ip", "link", "set", "eth0", "up")
	ctx := t.Context() // the test kills this process if it fails: another may take long to start
	rt := mustOpen(t, Config{Provider: process(t)})
	if role == "server" {
		command(t, "", "ip", "addr", "add", natServer+"2/24", "dev", "eth0")
		ln := must.Get(rt.Listen(":7471"))(t)
		fmt.Println("listens")
		c := must.Get(ln.Accept(ctx))(t)
		fmt.Println(c.RemoteAddr().Addr())
		for range 2 {
			m := must.Get(c.RecvWait(ctx))(t)
			must.Get(must.Get(c.SendBytes(ctx, m.Data))(t).Await(ctx))(t)
			must.Do(t, m.Release())
		}
		must.Get(in.ReadString('\n'))(t)
		must.Do(t, c.Close(ctx))
		return
	}
	command(t, "", "ip", "addr", "add", natClient+"2/24", "dev", "eth0")
	command(t, "", "ip", "route", "add", "default", "via", natClient+"1")
	c := must.Get(rt.Dial(ctx, natServer+"2:7471"))(t)
	for _, n := range []int{8, c.MaxMessage()} {
		fmt.Println(echoed(ctx, c, bytes.Repeat([]byte{byte(n)}, n)))
	}
	must.Get(in.ReadString('\n'))(t)
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

// Rule: a process behind a router that translates addresses and ports reaches a listener; messages pass in
// both directions, of any length, over a path with the MTU of an Ethernet.
func TestDialerBehindNAT(t *testing.T) {
	if role := os.Getenv(natRole); role != "" {
		beNATHost(t, role)
		return
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v (Debian: apt-get install iproute2 nftables)", err)
		}
	}
	if !netns.Enter(t) {
		return
	}
	must.Do(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	command(t, `table ip nat {
		chain out { type nat hook postrouting priority srcnat; oifname "server" masquerade random; }
	}`, "nft", "-f", "-")
	server := startNATHost(t, "server", natServer)
	if got := server.hears(); got != "listens" {
		t.Fatalf("the server says %q", got)
	}
	client := startNATHost(t, "client", natClient)
	for range 2 {
		if got := client.hears(); got != "echoed" {
			t.Errorf("the client says %q", got)
		}
	}
	if got := server.hears(); got != natServer+"1" {
		t.Errorf("the server sees a peer at %s, want the router's address %s1", got, natServer)
	}
	for _, h := range []*natHost{client, server} {
		h.tell("end")
		for line, err := h.out.ReadString('\n'); err == nil; line, err = h.out.ReadString('\n') {
			if line != "PASS\n" {
				t.Errorf("a process says %q", line)
			}
		}
		must.Do(t, h.cmd.Wait())
	}
}
