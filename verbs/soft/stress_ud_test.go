package soft

import (
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestDatagramsWhileGroupsChange, for the race detector: two ends send to a
// group and to each other, each on a goroutine of its own, while queue pairs
// are attached and detached and address handles come and go. Every send
// completes with success.
func TestDatagramsWhileGroupsChange(t *testing.T) {
	w := newDatagrams(t, options{real: true})
	const rounds = 400
	ends := []*peer{w.a, w.b}
	extra := []*queuePair{w.a.ready(testGroup), w.b.ready(testGroup)}
	group := []verbs.AH{w.a.handle(testGroup), w.b.handle(testGroup)}
	other := []verbs.AH{w.a.handle(w.b.gid), w.b.handle(w.a.gid)}
	for _, e := range ends {
		must(t, e.qp.AttachMcast(testGroup, 0))
	}
	number := []uint32{w.b.qp.Num(), w.a.qp.Num()}
	var senders, changer sync.WaitGroup
	for i, e := range ends {
		senders.Go(func() {
			for id, at := uint64(0), 0; id < 2*rounds; id += 2 {
				if id < 2*60 { // the others meet no receive: dropped
					e.recv(id, e.sge(10000+at, 600))
				}
				at = (at + 600) % 60000
				e.mustPost(
					e.datagram(id, group[i], verbs.McastQPN, verbs.SendSignaled, e.sge(0, 500)),
					e.datagram(id+1, other[i], number[i], verbs.SendSignaled, e.sge(0, 500)))
				var got []verbs.WC
				for end := time.Now().Add(10 * time.Second); len(got) < 2 && time.Now().Before(end); {
					got = append(got, e.poll(e.scq)...)
				}
				if len(got) != 2 || got[0].Status != verbs.WCSuccess || got[1].Status != verbs.WCSuccess {
					t.Errorf("round %d of end %d: %+v, want two successes", id/2, i, got)
					return
				}
				e.poll(e.rcq)
			}
		})
	}
	stop := make(chan struct{})
	changer.Go(func() {
		for i := 0; ; i = 1 - i {
			select {
			case <-stop:
				return
			default:
			}
			h, err := ends[i].pd.CreateAH(&verbs.AHAttr{DGID: testGroup, Port: 1})
			if err != nil || extra[i].DetachMcast(testGroup, 0) != nil || extra[i].AttachMcast(testGroup, 0) != nil || h.Close() != nil {
				t.Errorf("a change failed: %v", err)
				return
			}
		}
	})
	senders.Wait()
	close(stop)
	changer.Wait()
}
