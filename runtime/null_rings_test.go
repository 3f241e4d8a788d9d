//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule: on a device that cannot resize completion queues, a reactor takes more default connections than its first
// completion queues have room for, and all of them carry messages.
func TestConnectionsBeyondACompletionQueueThatCannotGrow(t *testing.T) {
	p := nullProvider(t)
	null := must.Get(nulldev.Open(must.Get(nulldev.Build())(t)))(t)
	defer null.Close()
	must.Do(t, null.SetProfile("hns"))
	server := mustOpen(t, Config{Provider: p, Device: "null1", Reactors: 1})
	client := mustOpen(t, Config{Provider: p, Device: "null0", Reactors: 1})
	ln := must.Get(server.Listen(":0"))(t)
	ctx := testContext(t)
	const n = 40 // 31 fit into 8191 entries
	for i := range n {
		a := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
		b := must.Get(ln.Accept(ctx))(t)
		f, err := a.SendBytes(ctx, []byte{byte(i)})
		done(t, f, err)
		m := must.Get(b.RecvWait(ctx))(t)
		if len(m.Data) != 1 || m.Data[0] != byte(i) {
			t.Errorf("connection %d carried % x, want %02x", i, m.Data, i)
		}
		must.Do(t, m.Release())
	}
	if grown := client.Stats().Grown; grown == 0 {
		t.Errorf("%d connections needed no further completion queue", n)
	}
}

// Rule: Stats.Rings is what the queues of the connections and of the reactors take on mlx5.
func TestRingsAreCounted(t *testing.T) {
	p := nullProvider(t)
	null := must.Get(nulldev.Open(must.Get(nulldev.Build())(t)))(t)
	defer null.Close()
	must.Do(t, null.SetProfile("mlx5"))
	before := null.Stats().Rings
	server := mustOpen(t, Config{Provider: p, Device: "null1", Reactors: 1})
	client := mustOpen(t, Config{Provider: p, Device: "null0", Reactors: 1})
	ln := must.Get(server.Listen(":0"))(t)
	for _, o := range []Options{{}, {MaxMessage: -1}} {
		must.Get(client.DialOptions(testContext(t), ln.Addr().String(), o))(t)
		must.Get(ln.Accept(testContext(t)))(t)
		if got, want := server.Stats().Rings+client.Stats().Rings, null.Stats().Rings-before; got != want {
			t.Errorf("after a connection with %+v the rings are counted as %d bytes, want %d", o, got, want)
		}
	}
}

// Rule: a connection that neither carries large messages nor has Options.Windows asks for no windows, whose requests
// libmlx5 makes larger, and has none.
func TestWindowsAreAskedForWhenWanted(t *testing.T) {
	null := nullControl(t)
	profile(t, "mlx5")
	client, server := nullBed.open(t, Config{}, 0), nullBed.open(t, Config{}, 1)
	ln := must.Get(server.ListenOptions(":0", Options{MaxMessage: -1}))(t)
	rings := map[bool]uint64{}
	for _, wanted := range []bool{true, false, true} { // with the first one the shared receives are made
		before := null.Stats().Rings
		c := must.Get(client.DialOptions(testContext(t), ln.Addr().String(), Options{MaxMessage: -1, Windows: wanted}))(t)
		must.Get(ln.Accept(testContext(t)))(t)
		rings[wanted] = null.Stats().Rings - before
		if _, err := c.NewWindow(); errors.Is(err, ErrConfig) == wanted || wanted && err != nil {
			t.Errorf("NewWindow of a connection with Options.Windows %t returned %v, want ErrConfig without", wanted, err)
		}
	}
	if rings[false] >= rings[true] {
		t.Errorf("the rings of a connection take %d bytes without windows and %d with, want less without", rings[false], rings[true])
	}
}
