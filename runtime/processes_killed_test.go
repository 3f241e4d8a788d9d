package runtime

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// victim is the environment variable with the role of a process that a test kills: "serve", or "dial " and
// the address to dial.
const victim = "VERBENA_VICTIM"

// quick has options with which a connection soon notices that its peer is lost.
var quick = Options{PeerTimeout: 200 * time.Millisecond, KeepAlive: 100 * time.Millisecond}

// lostWithin is the limit for connections with the options quick: after their peer was killed, they end
// within this time. KeepAlive (0.1 s) may pass before a probe. Then the software RNIC gives up after
// 134 ms × 8 = 1.1 s (ACK timeout code 15, 7 retries). The rest is a margin for a busy machine.
const lostWithin = 5 * time.Second

// beVictim is the program of a process that a test kills. It dials or serves, and exchanges messages of all
// sizes until it is killed.
func beVictim(t *testing.T, role string) {
	rt := must.Get(Open(Config{Provider: process(t)}))(t)
	ctx := context.Background()
	addr, dials := strings.CutPrefix(role, "dial ")
	if dials {
		for range 10 {
			go chat(must.Get(rt.DialOptions(ctx, addr, quick))(t))
		}
		select {}
	}
	ln := must.Get(rt.ListenOptions("127.0.0.1:0", quick))(t)
	fmt.Println(ln.Addr())
	for {
		c := must.Get(ln.Accept(ctx))(t)
		go chat(c)
	}
}

// chat sends messages, and receives the peer's messages, until the connection ends. It returns the error of
// the receive, joined with the error of Close.
func chat(c *Conn) error {
	ctx := context.Background()
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n = n*3%c.MaxMessage() + 1 {
			f, err := c.SendBytes(ctx, make([]byte, n))
			if err != nil {
				return
			}
			if _, err := f.Await(ctx); err != nil {
				return
			}
		}
	})
	for {
		m, err := c.RecvWait(ctx)
		if err != nil {
			wg.Wait()
			return errors.Join(err, c.Close(ctx))
		}
		_ = m.Release()
	}
}

// peerGone reports whether err means that the peer has disconnected or does not answer.
func peerGone(err error) bool {
	wc, ok := errors.AsType[*verbs.WCError](err)
	return ok && wc.Status == verbs.WCRetryExcErr || errors.Is(err, ErrPeerTimeout) || errors.Is(err, ErrPeerClosed)
}

// startVictim starts this test in another process, with the role in the environment variable victim. It
// returns a function that kills the process and waits until the process has ended. This function is also
// called when the test ends.
func startVictim(t *testing.T, role string) (kill func(), output *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), victim+"="+role)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // returns an error, because a signal ended the process
	})
	t.Cleanup(kill)
	return kill, bufio.NewReader(out)
}

// Rule: if a client process is killed, at any moment, the server's connections with this process end within
// lostWithin. Each ends with an error for which peerGone is true. The server's listener still accepts
// connections.
func TestKilledClient(t *testing.T) {
	if role := os.Getenv(victim); role != "" {
		beVictim(t, role)
	}
	skipPortableProcesses(t)
	server := mustOpen(t, Config{Provider: process(t)})
	ln := must.Get(server.ListenOptions("127.0.0.1:0", quick))(t)
	var killed sync.WaitGroup // of the goroutines that kill a client
	var open sync.WaitGroup   // of the goroutines that serve a connection
	ctx, cancel := context.WithCancel(t.Context())
	accepted := make(chan int, 1)
	go func() {
		n := 0
		for {
			c, err := ln.Accept(ctx)
			if err != nil {
				accepted <- n
				return
			}
			n++
			open.Go(func() {
				if err := chat(c); !peerGone(err) {
					t.Errorf("a connection with a killed client ended with %v, want RETRY_EXC_ERR, ErrPeerTimeout or ErrPeerClosed", err)
				}
			})
		}
	}()
	for range 4 {
		for range 3 {
			kill, _ := startVictim(t, "dial "+ln.Addr().String())
			killed.Go(func() {
				<-time.After(rand.N(200 * time.Millisecond)) // the kill may hit any stage of the process
				kill()
			})
		}
		killed.Wait()
	}
	finished := make(chan struct{})
	go func() {
		cancel()
		n := <-accepted
		open.Wait()
		t.Logf("%d connections were accepted", n)
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(lostWithin):
		t.Fatalf("%v after the last client was killed, not all connections have ended", lostWithin)
	}
	client := mustOpen(t, Config{Provider: process(t)})
	c := must.Get(client.Dial(testContext(t), ln.Addr().String()))(t)
	must.Do(t, c.Close(testContext(t)))
}

// Rule: if a server process is killed, at any moment, the client's connections with this process end within
// lostWithin, each with an error for which peerGone is true. A Dial that is in progress may fail. A Dial
// that begins after the kill is refused with the reason RejInvalidServiceID.
func TestKilledServer(t *testing.T) {
	if role := os.Getenv(victim); role != "" {
		beVictim(t, role)
	}
	skipPortableProcesses(t)
	client := mustOpen(t, Config{Provider: process(t)})
	for range 4 {
		kill, out := startVictim(t, "serve")
		line, err := out.ReadString('\n')
		must.Do(t, err)
		addr := strings.TrimSpace(line)
		var open sync.WaitGroup
		for range 3 {
			open.Go(func() {
				c, err := client.DialOptions(testContext(t), addr, quick)
				if err == nil {
					err = chat(c)
				}
				_, rejected := errors.AsType[*RejectError](err)
				if !peerGone(err) && !rejected && !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrConnectTimeout) {
					t.Errorf("Dial or the connection ended with %v, want a *RejectError, ErrUnreachable, ErrConnectTimeout, RETRY_EXC_ERR, ErrPeerTimeout or ErrPeerClosed", err)
				}
			})
		}
		<-time.After(rand.N(50 * time.Millisecond)) // the kill may hit any stage of the handshakes
		kill()
		ended := make(chan struct{})
		go func() { open.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(lostWithin):
			t.Fatalf("%v after the server was killed, not all connections have ended", lostWithin)
		}
		_, err = client.Dial(testContext(t), addr)
		if e, ok := errors.AsType[*RejectError](err); !ok || e.Reason != verbs.RejInvalidServiceID {
			t.Errorf("Dial of the killed server returned %v, want a *RejectError with the reason RejInvalidServiceID", err)
		}
	}
}

// skipPortableProcesses skips the test in the portable build, and on devices of the system.
func skipPortableProcesses(t *testing.T) {
	t.Helper()
	if sys.Portable {
		t.Skip("the portable build uses package net, which does not report that the destination port is closed")
	}
	notOnDevice(t, "the test is about the software RNIC")
}
