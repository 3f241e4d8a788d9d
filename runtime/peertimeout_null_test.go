//go:build linux && cgo && !portable

package runtime

import (
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule: an operation whose completion never comes ends within the peer timeout,
// and if the queue pair is not flushed either, with the queue pair: both are
// counted, and nothing is left. Waiting or driving, and also in Close.
// Defence: reactor/loop_patrol.go, runtime/conn_peertimeout.go, runtime/conn_teardown.go.
func TestNullMissingCompletion(t *testing.T) {
	for _, flushes := range []bool{true, false} {
		for _, closing := range []bool{true, false} {
			t.Run(fmt.Sprintf("flushes %t, closing %t", flushes, closing), func(t *testing.T) {
				d := newBadDay(t, Config{Reactors: 1, Conn: Options{PeerTimeout: time.Second}})
				a, _ := d.connect()
				attr, err := a.q.QP().Query()
				if err != nil {
					t.Fatal(err)
				}
				bound := boundOf(attr.Timeout, attr.RetryCnt, time.Second)
				_, remote := d.target(64)
				d.adds(a, remote, 0, 3)
				missing := d.fault(nulldev.Fault{Kind: nulldev.Missing, Count: 1})
				if !flushes {
					d.fault(nulldev.Fault{Kind: nulldev.LateFlush})
				}
				from := time.Now() // before it is out: the reactor may count from that moment on
				f, err := a.Start(testContext(t), new(FetchAndAddOp(remote, 1)))
				if err != nil {
					t.Fatal(err)
				}
				if closing {
					if err := a.Close(testContext(t)); err != nil {
						t.Error(err)
					}
					d.ends("an operation whose completion is missing", f, ErrConnClosed)
				} else {
					d.ends("an operation whose completion is missing", f, ErrPeerTimeout)
					_, err := a.RecvWait(testContext(t))
					d.isAll("a receive", err, ErrPeerTimeout)
				}
				if took := time.Since(from); took < bound || took > anEighth(bound)+flushBound+lateEvents {
					t.Errorf("it ended after %v, want %v and at most an eighth and %v more", took, bound, flushBound)
				}
				if d.null.Hits(missing) != 1 {
					t.Fatalf("%d completions are missing", d.null.Hits(missing))
				}
				if s := d.client.Stats(); s.Late != 1 || !flushes && s.Unflushed == 0 {
					t.Errorf("%d late and %d not flushed were counted", s.Late, s.Unflushed)
				}
			})
		}
	}
}
