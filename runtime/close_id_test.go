package runtime

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// busyID is an identifier with events that somebody has not acknowledged.
type busyID struct {
	queuePairID
	busy   int // how often Close is refused
	closed int
}

func (id *busyID) Close() error {
	if id.busy--; id.busy >= 0 {
		return fmt.Errorf("%w: an event is not acknowledged", verbs.ErrBusy)
	}
	id.closed++
	if id.queuePairID == nil {
		return nil
	}
	return id.queuePairID.Close()
}

// Rule: everybody who asks for the end of an identifier is told of it, once and in
// order, though it was asked for before and the device does not let go.
func TestEverybodyWhoClosesAnIdentifierIsTold(t *testing.T) {
	rt := mustOpen(t, Config{NoCallerDriving: true})
	sh, told := rt.shards[0], make(chan int, 8)
	tell := func(n int) func(error) {
		return func(err error) {
			if err != nil {
				t.Errorf("caller %d was told %v", n, err)
			}
			told <- n
		}
	}
	id := &busyID{busy: 3}
	if err := sh.r.Do(testContext(t), func() {
		sh.closeID(id, tell(1))
		sh.closeID(id, nil)
		sh.closeID(id, tell(2))
		sh.closeID(id, tell(3))
	}); err != nil {
		t.Fatal(err)
	}
	var got []int
	for range 3 {
		select {
		case n := <-told:
			got = append(got, n)
		case <-time.After(10 * time.Second):
			t.Fatalf("only %v were told", got)
		}
	}
	if err := sh.r.Do(testContext(t), func() {
		if !slices.Equal(got, []int{1, 2, 3}) || len(told) != 0 || id.closed != 1 || len(sh.closing) != 0 {
			t.Errorf("told were %v and %d more; it was closed %d times, %d are left", got, len(told), id.closed, len(sh.closing))
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// Rule: a connection whose identifier is busy when the device goes is closed all the
// same: its end was asked for by the device's, then by its owner.
func TestClosingMeetsARemovalWithABusyIdentifier(t *testing.T) {
	for busy := 1; busy <= 4; busy++ { // either's try may be the one that succeeds
		t.Run(fmt.Sprint(busy), func(t *testing.T) { closingMeetsARemoval(t, busy) })
	}
}

func closingMeetsARemoval(t *testing.T, busy int) {
	r := newPlugRig(t, Config{NoCallerDriving: true})
	ctx := testContext(t)
	c, _ := r.connect(r.a, r.b, Options{Raw: true})
	if err := c.sh.r.Do(ctx, func() {
		c.id = &busyID{queuePairID: c.id, busy: busy}
		c.fail(verbs.ErrDeviceRemoved) // detaches
		c.end(false)
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.closed:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody told the connection that its identifier was closed")
	}
	if err := r.p.Remove("a"); err != nil {
		t.Fatal(err)
	}
}
