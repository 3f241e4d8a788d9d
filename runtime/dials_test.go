//go:build linux && cgo && !portable

package runtime

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
)

const (
	dialsAtOnce = 100
	// dialRounds is the number of rounds. Each round has a quiet part and a part with dials.
	dialRounds = 3
	quietPings = 2000
	// busy is what the scheduler of a busy machine with two processors may add while 200 goroutines dial and
	// accept. With the control calls within the turn it was more than 50 ms.
	busy = 10 * time.Millisecond
	// dialProcessors is the least number of processors of the Go runtime, as a machine with a card has them. Each
	// command occupies one until the scheduler notices that it waits (commandsAtOnce): with two, and both ends in
	// one process, there may be none left for the ping.
	dialProcessors = 8
)

// Rule: on a device whose control calls take 2 ms, the 99th percentile of an established connection's
// latency is at most doubled by 100 dials at once, or bounded by what a busy machine adds. In a round the quiet part comes first, so that both
// parts meet the same neighbors on a busy machine; the medians of the rounds are compared.
// Ensured by: runtime/conn_command.go.
func TestDialsDelayNobodyWhoIsConnected(t *testing.T) {
	must.Do(t, nullControl(t).SetProfile("mlx5_vf"))
	if was := runtime.GOMAXPROCS(0); was < dialProcessors {
		runtime.GOMAXPROCS(dialProcessors)
		defer runtime.GOMAXPROCS(was)
	}
	cfg := Config{Reactors: 1}
	server, client := nullBed.open(t, cfg, 1), nullBed.open(t, cfg, 0)
	ctx := testContext(t)
	ln := must.Get(server.Listen(":0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	a := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
	b := must.Get(seat.Await(ctx))(t)
	var echo sync.WaitGroup
	echo.Go(func() {
		for {
			m, err := b.RecvWait(ctx)
			if err != nil {
				return // a is closed
			}
			if f, err := b.SendBytes(ctx, m.Data); err == nil {
				_, _ = f.Await(ctx)
			}
			_ = m.Release()
		}
	})
	ping := func() time.Duration {
		from := time.Now()
		f, err := a.SendBytes(ctx, []byte("ping"))
		if err == nil {
			_, err = f.Await(ctx)
		}
		m, rerr := a.RecvWait(ctx)
		took := time.Since(from)
		if err != nil || rerr != nil {
			t.Fatalf("a ping: %v, %v", err, rerr)
		}
		must.Do(t, m.Release())
		return took
	}
	var quiet, dialing []time.Duration
	for range dialRounds {
		var q, d []time.Duration
		for range quietPings {
			q = append(q, ping())
		}
		var done atomic.Bool
		var closeAll func()
		over := make(chan struct{})
		from := time.Now()
		go func() { closeAll = dialAtOnce(ctx, t, client, ln); done.Store(true); close(over) }()
		for !done.Load() {
			d = append(d, ping())
		}
		took := time.Since(from)
		<-over
		closeAll()
		quiet, dialing = append(quiet, p99(q)), append(dialing, p99(d))
		t.Logf("p99 %v of %d quiet pings, %v of %d during %d dials, which took %v", p99(q), len(q), p99(d), len(d), dialsAtOnce, took)
	}
	slices.Sort(quiet)
	slices.Sort(dialing)
	if q, d := quiet[dialRounds/2], dialing[dialRounds/2]; d > max(2*q, busy) {
		t.Errorf("the median of the 99th percentiles is %v during %d dials, want at most twice the quiet one, %v, or %v",
			d, dialsAtOnce, q, busy)
	}
	must.Do(t, a.Close(ctx))
	must.Do(t, b.Close(ctx))
	echo.Wait()
}

// dialAtOnce makes dialsAtOnce connections to the listener at once, and returns a function that closes them.
func dialAtOnce(ctx context.Context, t *testing.T, client *Runtime, ln *Listener) (closeAll func()) {
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []*Conn
	keep := func(c *Conn, err error) {
		if err != nil {
			t.Errorf("a dial: %v", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
	}
	for range dialsAtOnce {
		all.Go(func() { keep(client.Dial(ctx, ln.Addr().String())) })
		all.Go(func() { keep(ln.Accept(ctx)) })
	}
	all.Wait()
	return func() {
		for _, c := range conns {
			all.Go(func() { _ = c.Close(ctx) })
		}
		all.Wait()
	}
}

// p99 returns the 99th percentile.
func p99(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)*99/100]
}
