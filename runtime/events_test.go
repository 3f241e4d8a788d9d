package runtime

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: a turn handles a bounded number of connection events, however many there are, and
// all of them are handled.
func TestEventsOfOneTurnAreBounded(t *testing.T) {
	notOnDevice(t, "virtual time")
	const requests = 100
	link := fabric.New(fabric.Config{Virtual: true, Seed: 1})
	p, err := soft.New(soft.Config{Fabric: link, Devices: []soft.DeviceConfig{{Name: "soft0", Addr: netip.MustParseAddr("10.0.0.1")}}})
	if err != nil {
		t.Fatal(err)
	}
	rt := mustOpen(t, Config{Provider: p, Device: "soft0", stepped: true, now: func() time.Time { return time.Unix(0, int64(link.Now())) }})
	ln, err := rt.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAsker(t, link, "10.0.0.9", ln.Addr(), []byte("no hello"))
	sh, handled := rt.shards[0], 0
	sh.cmEvents.next = func() bool {
		ok := sh.takeCM()
		if ok {
			handled++
		}
		return ok
	}
	a.ask(requests)
	for link.Step() {
	}
	steps, all := 0, 0
	for ; all < requests; steps++ {
		if sh.r.Step(); handled == 0 {
			t.Fatalf("%d of %d requests were handled, and nobody goes on", all, requests)
		}
		if handled > eventsPerTurn {
			t.Errorf("turn %d handled %d events, want at most %d", steps, handled, eventsPerTurn)
		}
		all, handled = all+handled, 0
	}
	ln.end()
	for len(rt.listeners) > 0 {
		sh.r.Step()
	}
	if all != requests || steps < requests/eventsPerTurn {
		t.Errorf("%d requests were handled in %d turns, want %d in %d", all, steps, requests, requests/eventsPerTurn)
	}
}

// Rule: what a turn leaves is handled though the source, which has told once, tells no
// more.
func TestEventsThatATurnLeavesAreHandled(t *testing.T) {
	sh := mustOpen(t, Config{}).shards[0]
	const many = 10 * eventsPerTurn
	left, done := many, make(chan struct{})
	if err := sh.r.Do(testContext(t), func() {
		e := &events{r: sh.r, next: func() bool {
			if left--; left == 0 {
				close(done)
			}
			return left > 0
		}}
		e.take()
		if left != many-eventsPerTurn {
			t.Errorf("at once %d of %d events were handled, want %d", many-left, many, eventsPerTurn)
		}
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-testContext(t).Done():
		t.Fatal("the rest was not handled")
	}
}

// keptID is an identifier that nobody keeps, whose device does not answer for a while.
type keptID struct {
	verbs.CMID
	closed chan struct{}
}

func (id *keptID) Close() error {
	close(id.closed)
	return nil
}

// Rule: while the device is slow to refuse, a bounded number of identifiers wait for it and
// no more events are taken; then both go on.
func TestDismissalsAreBounded(t *testing.T) {
	sh := mustOpen(t, Config{NoCallerDriving: true}).shards[0]
	answer := make(chan struct{})
	var ids []*keptID
	if err := sh.r.Do(testContext(t), func() {
		for !sh.crowded() {
			id := &keptID{closed: make(chan struct{})}
			ids = append(ids, id)
			sh.dismiss(id, func(verbs.CMID) { <-answer })
			if len(ids) > dismissBatch+dismissMost {
				t.Fatalf("%d identifiers wait, and events are still taken", len(sh.dismissed))
			}
		}
		if len(sh.dismissed) != dismissMost || !sh.saying || sh.takeCM() {
			t.Errorf("%d identifiers wait, want %d; a goroutine dismisses them: %t", len(sh.dismissed), dismissMost, sh.saying)
		}
	}); err != nil {
		t.Fatal(err)
	}
	close(answer)
	for i, id := range ids {
		select {
		case <-id.closed:
		case <-testContext(t).Done():
			t.Fatalf("identifier %d of %d was not closed", i, len(ids))
		}
	}
	for gone := testContext(t); ; {
		var left int
		var stuck bool
		if err := sh.r.Do(gone, func() { left, stuck = len(sh.dismissed), sh.stuck || sh.saying }); err != nil {
			t.Fatalf("%d are left, events are held up: %t (%v)", left, stuck, err)
		}
		if left == 0 && !stuck {
			return
		}
	}
}
