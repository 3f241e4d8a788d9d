package runtime

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a connection without a connection manager asks its peer nothing unless
// told to, because the peer's queue pair may refuse the question; and one of UC,
// where nothing is answered, has neither that nor a bound.
func TestPlainConnectionsAskOnlyWhenTold(t *testing.T) {
	notOnDevice(t, "virtual time")
	w := newSimWorld(1, 0)
	t.Cleanup(w.finish)
	for _, c := range []struct {
		name string
		o    PlainOptions
		want time.Duration
	}{
		{"RC", PlainOptions{}, 0},
		{"RC, told to", PlainOptions{Options: Options{KeepAlive: time.Second}}, time.Second},
		{"UC, told to", PlainOptions{Options: Options{KeepAlive: time.Second}, Type: verbs.QPTUC}, 0},
	} {
		p, err := w.nodes[0].rt.Prepare(c.o)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := p.c.opts.keepAlive(); got != c.want {
			t.Errorf("%s asks every %v, want %v", c.name, got, c.want)
		}
		if err := p.c.watchPeer(); err != nil { // a limit on UC would be refused
			t.Errorf("%s: %v", c.name, err)
		}
		p.c.Abort()
		w.pass(2 * flushBound)
	}
}
