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

// victim is the environment variable of a process that a test kills: what the process does, and the address
// that it dials.
const victim = "VERBENA_VICTIM"

// quick are options with which a lost peer is noticed soon.
var quick = Options{PeerTimeout: 200 * time.Millisecond, KeepAlive: 100 * time.Millisecond}

// lostWithin bounds how long a connection with the options quick may outlive its peer: the silence until a
// probe, and the bound of Options.PeerTimeout (4 × 33 ms × 8 retries), with a margin for a busy machine.
const lostWithin = 5 * time.Second

// beVictim runs a process that is killed: it dials or serves, and exchanges messages of all sizes.
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

// chat sends messages and receives those of the peer until the connection ends, and returns why it has.
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

// peerGone reports whether err means that the peer has gone.
func peerGone(err error) bool {
	wc, ok := errors.AsType[*verbs.WCError](err)
	return ok && wc.Status == verbs.WCRetryExcErr || errors.Is(err, ErrPeerTimeout) || errors.Is(err, ErrPeerClosed)
}

// startVictim starts a process that is killed.
func startVictim(t *testing.T, role string) (kill func(), output *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), victim+"="+role)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the signal
	})
	t.Cleanup(kill)
	return kill, bufio.NewReader(out)
}

// Rule: if a process is killed at any moment, each connection with it ends at the other process within its
// bound, with an error that says that the peer is gone; the listener goes on, and nothing is left.
func TestKilledClient(t *testing.T) {
	if role := os.Getenv(victim); role != "" {
		beVictim(t, role)
	}
	skipPortableProcesses(t)
	server := mustOpen(t, Config{Provider: process(t)})
	ln := must.Get(server.ListenOptions("127.0.0.1:0", quick))(t)
	var killed sync.WaitGroup // the kills
	var open sync.WaitGroup   // the connections
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
					t.Errorf("a connection of a killed peer ended with %v", err)
				}
			})
		}
	}()
	for range 4 {
		for range 3 {
			kill, _ := startVictim(t, "dial "+ln.Addr().String())
			killed.Go(func() {
				<-time.After(rand.N(200 * time.Millisecond)) // any moment
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
		t.Fatalf("connections are left %v after the last peer was killed", lostWithin)
	}
	// The listener goes on.
	client := mustOpen(t, Config{Provider: process(t)})
	c := must.Get(client.Dial(testContext(t), ln.Addr().String()))(t)
	must.Do(t, c.Close(testContext(t)))
}

// Rule: the same for a server that is killed. Then its port refuses at once.
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
					t.Errorf("the connection ended with %v", err)
				}
			})
		}
		<-time.After(rand.N(50 * time.Millisecond)) // any moment
		kill()
		ended := make(chan struct{})
		go func() { open.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(lostWithin):
			t.Fatalf("connections are left %v after their peer was killed", lostWithin)
		}
		_, err = client.Dial(testContext(t), addr)
		if e, ok := errors.AsType[*RejectError](err); !ok || e.Reason != verbs.RejInvalidServiceID {
			t.Errorf("dialing the killed server: %v", err)
		}
	}
}

func skipPortableProcesses(t *testing.T) {
	t.Helper()
	if sys.Portable {
		t.Skip("package net does not report what a receiver's system refuses")
	}
	notOnDevice(t, "it is about the software RNIC")
}
