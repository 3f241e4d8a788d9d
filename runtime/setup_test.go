package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
)

// Rule: a connection that is closed while it posts its receives gives all of
// their buffers back, those not posted too.
func TestSetupThatFailsGivesItsBuffersBack(t *testing.T) {
	server, client := mustOpen(t, Config{Device: "soft1"}), mustOpen(t, Config{Device: "soft0"})
	ln, err := server.Listen("127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	opts, err := client.inherit(Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.newConn(opts)
	if err != nil {
		t.Fatal(err)
	}
	p, f := client.conns.New(nil)
	c.promise = p
	boom := errors.New("boom")
	c.q.Fail(boom) // what Close does first
	if err := c.sh.r.Do(testContext(t), func() { c.dial(ln.Addr()) }); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Await(testContext(t)); !errors.Is(err, boom) || !errors.Is(err, reactor.ErrQueueFailed) {
		t.Fatalf("dialing ended with %v, want the queue's failure", err)
	}
	<-c.closed
	if st := client.MemoryStats(); st.Buffers != 0 {
		t.Fatalf("%d buffers are still out", st.Buffers)
	}
}
