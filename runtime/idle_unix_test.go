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

// In the test of this file the process has, on each bed (see beds_test.go), idleConns connections
// between two runtimes. For idleTime the program uses none of these connections.
const (
	idleConns = 16
	idleTime  = 2 * time.Second
	// idleTime consists of windows of length idleWindow, and only the window with the least work
	// counts. Repeated work shows in every window. Noise of a busy machine and of Go's garbage
	// collector shows only in some windows.
	idleWindow = 500 * time.Millisecond
)

// These are limits of the work that all runtimes together do in a window. Work that the process does
// without runtimes is measured first, and does not count. In a window each reactor has at most one
// recheck (a poll without an event) and one watchdog tick. On a busy machine with two processors,
// the rechecks and ticks of the two reactors of a bed took 5 to 10 switches (a switch: a thread goes
// to sleep) and 0.2 to 0.3 ms of processor time.
//
// A reactor that woke every idleTick would exceed both limits. Its 50 wake-ups in a window would take
// at least 50 switches (200 if a goroutine's timer caused them), and 3 to 5 ms of processor time.
const (
	idleTick     = 10 * time.Millisecond
	idleSwitches = int64(idleWindow/idleTick) * 4 / 5 // 40, while such a reactor takes at least 50
	idleCPU      = 2 * time.Millisecond               // 0.4 % of the time of one processor
)

// While nothing arrives, the loop of a reactor wakes one time per reactor.DefaultRecheck, to poll. It
// also wakes two times per Options.KeepAlive, and one time after each keep-alive, for the watchdog.
const (
	idleWakes = 2 // the limit of wake-ups in a second
	edgeWakes = 4 // additional wake-ups that are allowed, for the beginning and the end of the measurement
)

// idleWork returns the limit of processor time on this machine. Kernel devices may belong to an emulated
// machine. Its processor time includes the time slices, of some milliseconds each, that the host gives to
// other programs: 14 switches have taken 40 ms. So on kernel devices the limit finds only a loop that polls
// in place of sleeping, which uses the whole of a window; the switches find all others.
func idleWork() time.Duration {
	if onDevice {
		return idleWindow / 4
	}
	return idleCPU
}

// Rule: if the connections of a process are open and unused, the process sleeps, even while a
// goroutine waits for a message on each connection. If a message arrives, its completion event wakes
// the process, before the next recheck (a poll at regular intervals, without an event).
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
			for _, d := range bedsHere() { // all beds together, so that the test waits only one time
				server, client := d.open(t, cfg, 1), d.open(t, cfg, 0)
				near, far := idlePairs(t, server, client)
				for _, c := range far {
					go func() { got <- receiveAll(ctx, c, got) }()
				}
				rts, from = append(rts, server, client), append(from, near...)
			}
			greet(t, from, got) // run all code one time before the measurement
			eventually(t, "the windows of the connections to shrink", func() bool { return rested(rts) })
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
					t.Errorf("%s: %d completion events were lost, want 0", rt.Device().Name, st.MissedEvents)
				}
			}
		})
	}
}

// rested reports whether no pool has a connection with a large window, so that none looks for idle ones.
func rested(rts []*Runtime) bool {
	for _, rt := range rts {
		rt.mu.Lock()
		for c := range rt.live {
			if c.pool != nil && c.window.Load() > 1 {
				rt.mu.Unlock()
				return false
			}
		}
		rt.mu.Unlock()
	}
	return true
}

// idlePairs makes idleConns connections from client to server. It returns the client's ends and the
// server's ends.
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

// receiveAll receives and releases messages until ctx ends. It sends the result of each Release on the
// channel got.
func receiveAll(ctx context.Context, c *Conn, got chan<- error) error {
	for {
		m, err := c.RecvWait(ctx)
		if err != nil {
			return err
		}
		got <- m.Release()
	}
}

// greet sends a message on each connection, and waits for each message until receiveAll has released
// it.
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
				t.Fatalf("releasing the message: %v", err)
			}
		case <-ctx.Done():
			t.Fatalf("the message did not arrive within %v", patience())
		}
	}
}

// work is the processor time and the number of switches that the process used.
type work struct {
	cpu      time.Duration
	switches int64 // how many times a thread went to sleep
}

// spent waits for idleTime. It returns the least processor time and the least number of switches of
// a window.
func spent(t *testing.T) (least work) {
	t.Helper()
	// Return the freed memory of earlier tests to the system now. Otherwise the Go runtime would
	// return it bit by bit, and wake a thread each time.
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

// idle waits for idleTime. It then checks how often the reactors woke, and how much work the process
// did. The argument asleep is the work of the process without runtimes, as measured by the function
// spent.
func idle(t *testing.T, asleep work, rts ...*Runtime) {
	t.Helper()
	var before []reactor.Stats
	for _, rt := range rts {
		before = append(before, rt.Stats())
	}
	did := spent(t)
	for i, rt := range rts {
		s := rt.Stats()
		// Wake-ups by completion events are permitted, because the completion of a keep-alive raises an
		// event. (If the event comes while a pass is about to end, it does not count as one that woke the loop. On a
		// busy machine 16 keep-alives have been completed one by one.)
		wakes, events, probes := s.Sleeps-before[i].Sleeps, s.ChannelWakeups-before[i].ChannelWakeups, s.KeepAlives-before[i].KeepAlives
		t.Logf("runtime %d: the loop woke %d times, of which %d times by events; it sent %d keep-alives", i, wakes, events, probes)
		if limit := idleWakes*uint64(idleTime/time.Second) + edgeWakes + max(events, probes); wakes > limit {
			t.Errorf("the loop of an idle reactor woke %d times in %v, want at most %d", wakes, idleTime, limit)
		}
	}
	t.Logf("%d connections: a window of %v took at least %v of processor time and %d switches; before the runtimes were opened, %v and %d",
		len(rts)/2*idleConns, idleWindow, did.cpu, did.switches, asleep.cpu, asleep.switches)
	if limit := asleep.cpu + idleWork(); did.cpu > limit && !raceEnabled {
		t.Errorf("an idle process used %v of processor time in %v, want at most %v", did.cpu, idleWindow, limit)
	}
	if limit := asleep.switches + idleSwitches; did.switches > limit {
		t.Errorf("the threads of an idle process went to sleep %d times in %v, want at most %d", did.switches, idleWindow, limit)
	}
	// The process also does work that no runtime causes. This work is in both measurements, the one
	// without runtimes and the one with them. So the checks above do not limit it, but this check does.
	if asleep.switches > idleSwitches {
		t.Errorf("the threads of a process without connections went to sleep %d times in %v, want at most %d", asleep.switches, idleWindow, idleSwitches)
	}
}

// wakesByEvent sends messages to a runtime whose loop sleeps, until a message arrives while the loop
// neither rechecks nor spins. The completion channel must have woken the loop for this message.
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
			// A recheck, which runs once a second, may have found the message.
		case after.Spins != before.Spins:
			// A timer had woken the loop, and the loop may have found the message while it spun.
		default:
			t.Errorf("a message arrived, but no event of the completion channel woke the loop; the statistics were %+v before and %+v after", before, after)
			return
		}
		// Wait until the loop begins another sleep. If the loop sleeps now, its next recheck ends this
		// sleep, and another sleep follows.
		eventually(t, "the next sleep of the loop", func() bool { return server.Stats().Sleeps > after.Sleeps })
	}
	t.Error("each of ten messages arrived while the loop rechecked or spun, want one that an event announces")
}
