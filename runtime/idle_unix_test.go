//go:build unix

package runtime

import (
	"context"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
)

// The idle process here has idleConns connections between two runtimes of each provider, which
// carry nothing for idleTime.
const (
	idleConns = 16
	idleTime  = 3 * time.Second
	// idleWindow is the part of idleTime that counts: the quietest one. Repeated work shows in
	// every window; noise of a busy machine and of Go's collector does not.
	idleWindow = 500 * time.Millisecond
)

// The limits of work in a window, for all runtimes together, beyond that of a Go program that only
// sleeps (measured before, in this process). A window has at most one recheck and one watchdog tick
// of each reactor: 5 to 10 switches and 0.2 to 0.3 ms for a provider's two on a busy machine with
// two processors. Either limit detects a wake-up every idleTick: each puts a thread to sleep at
// least once (a goroutine's timer four times: 200 in a window), and takes 3 to 5 ms in all.
const (
	idleTick     = 10 * time.Millisecond
	idleSwitches = int64(idleWindow/idleTick) * 4 / 5 // of threads that went to sleep
	idleCPU      = 2 * time.Millisecond               // of a processor: 0.4 % of it
)

// How often the loop of a reactor may wake while nothing arrives: once in reactor.DefaultRecheck,
// twice in Options.KeepAlive, once more after a keep-alive, and some at either end of the
// measurement.
const (
	idleWakes = 2 // a second
	edgeWakes = 4
)

// idleWork returns idleCPU, adapted to this machine. An emulated processor's time includes the time
// that the host gives to others: there the switches say more.
func idleWork() time.Duration {
	if onDevice {
		return deviceSlowness * idleCPU
	}
	return idleCPU
}

// Rule: a process with open, unused connections sleeps, also while a goroutine waits for a message
// on each; a message then wakes it through the completion channel, before any recheck.
func TestAnIdleProcessSleeps(t *testing.T) {
	asleep := spent(t)
	for name, cfg := range map[string]Config{"callers drive": {}, "loop only": {NoCallerDriving: true, Spin: -1}, "throughput": {Policy: reactor.PolicyThroughput}} {
		t.Run(name, func(t *testing.T) {
			cfg.ConnectTimeout = patience()
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			got := make(chan error, idleConns)
			var rts []*Runtime // servers and clients alternate
			var from []*Conn
			for _, d := range bedsHere() { // all together, to wait only once
				server, client := d.open(t, cfg, 1), d.open(t, cfg, 0)
				near, far := idlePairs(t, server, client)
				for _, c := range far {
					go func() { got <- receiveAll(ctx, c, got) }()
				}
				rts, from = append(rts, server, client), append(from, near...)
			}
			greet(t, from, got) // so that all code has run once
			idle(t, asleep, rts...)
			for i := 0; i < len(rts); i += 2 {
				wakesByEvent(t, rts[i], from[i/2*idleConns], got)
			}
			cancel()
			for range from {
				<-got
			}
			for _, rt := range rts {
				if st := rt.Stats(); st.MissedEvents != 0 {
					t.Errorf("%s: %d events were lost", rt.Device().Name, st.MissedEvents)
				}
			}
		})
	}
}

// idlePairs makes the connections.
func idlePairs(t *testing.T, server, client *Runtime) (from, to []*Conn) {
	t.Helper()
	ctx := testContext(t)
	ln := must.Get(server.Listen(":0"))(t)
	for range idleConns {
		seat := must.Get(ln.AcceptAsync())(t)
		c := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
		from = append(from, c)
		c = must.Get(seat.Await(ctx))(t)
		to = append(to, c)
	}
	return from, to
}

// receiveAll reports every message to got, until ctx ends.
func receiveAll(ctx context.Context, c *Conn, got chan<- error) error {
	for {
		m, err := c.RecvWait(ctx)
		if err != nil {
			return err
		}
		got <- m.Release()
	}
}

// greet sends a message on each connection and waits until it has arrived.
func greet(t *testing.T, from []*Conn, got <-chan error) {
	t.Helper()
	ctx := testContext(t)
	for _, c := range from {
		if _, err := c.SendBytes(ctx, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatal("a message did not arrive")
		}
	}
}

// work is what a process used in the quietest idleWindow of idleTime, by either measure.
type work struct {
	cpu      time.Duration
	switches int64 // of threads that went to sleep
}

// spent waits for idleTime and returns the process's work meanwhile.
func spent(t *testing.T) (least work) {
	t.Helper()
	// Memory that earlier tests freed returns to the system now, and not bit by bit, by a Go thread
	// that wakes for it.
	debug.FreeOSMemory()
	used := func() work {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return work{time.Duration(u.Utime.Nano() + u.Stime.Nano()), int64(u.Nvcsw)} //nolint:unconvert // 32 bits on 32-bit systems
	}
	for i := range idleTime / idleWindow {
		before := used()
		<-time.After(idleWindow)
		after := used()
		did := work{after.cpu - before.cpu, after.switches - before.switches}
		if i == 0 {
			least = did
		}
		least.cpu, least.switches = min(least.cpu, did.cpu), min(least.switches, did.switches)
	}
	return least
}

// idle waits for idleTime and compares the work of the process and its reactors with asleep, the
// work before there were any.
func idle(t *testing.T, asleep work, rts ...*Runtime) {
	t.Helper()
	var before []reactor.Stats
	for _, rt := range rts {
		before = append(before, rt.Stats())
	}
	did := spent(t)
	for i, rt := range rts {
		s := rt.Stats()
		// The event of a keep-alive's completion also wakes the loop.
		wakes, events := s.Sleeps-before[i].Sleeps, s.ChannelWakeups-before[i].ChannelWakeups
		t.Logf("runtime %d: the loop woke %d times, %d of them for events, %d keep-alives", i, wakes, events, s.KeepAlives-before[i].KeepAlives)
		if limit := idleWakes*uint64(idleTime/time.Second) + edgeWakes + events; wakes > limit {
			t.Errorf("the loop of an idle reactor woke %d times in %v, want at most %d", wakes, idleTime, limit)
		}
	}
	t.Logf("%d connections, the quietest %v of %v: %v of a processor, %d switches; asleep %v and %d", len(rts)/2*idleConns, idleWindow, idleTime, did.cpu, did.switches, asleep.cpu, asleep.switches)
	if limit := asleep.cpu + idleWork(); did.cpu > limit && !raceEnabled {
		t.Errorf("an idle process used %v of a processor in %v, want at most %v", did.cpu, idleWindow, limit)
	}
	if limit := asleep.switches + idleSwitches; did.switches > limit {
		t.Errorf("the threads of an idle process went to sleep %d times in %v, want at most %d", did.switches, idleWindow, limit)
	}
	// Work of the process that no runtime causes would be in both.
	if asleep.switches > idleSwitches {
		t.Errorf("the threads of a process without connections went to sleep %d times in %v, want at most %d", asleep.switches, idleWindow, idleSwitches)
	}
}

// wakesByEvent sends messages to the sleeping runtime until one arrives while the loop neither
// rechecks nor spins: then the completion channel must have woken the loop.
func wakesByEvent(t *testing.T, server *Runtime, from *Conn, got <-chan error) {
	t.Helper()
	for range 10 {
		before := server.Stats()
		began := time.Now()
		greet(t, []*Conn{from}, got)
		after := server.Stats()
		switch took := time.Since(began); {
		case after.ChannelWakeups > before.ChannelWakeups:
			return
		case after.Rechecks != before.Rechecks || took > reactor.DefaultRecheck:
			// the recheck runs once a second
		case after.Spins != before.Spins:
			// a timer had woken the loop, and the policy let it spin
		default:
			t.Errorf("a message came, and the completion channel did not wake the loop: before %+v, after %+v", before, after)
			return
		}
	}
	t.Error("each of ten messages came while the loop rechecked or spun")
}
