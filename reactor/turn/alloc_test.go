//go:build !verbena_model

package turn

import (
	"context"
	"testing"

	"github.com/verbena-rdma/verbena/futures"
)

// lone is a waiter that parks on a channel.
type lone struct {
	settled bool // written and read by the goroutine of the test
	wake    chan struct{}
}

func (l *lone) Settled() bool { return l.settled }
func (l *lone) Park(<-chan struct{}) Signal {
	<-l.wake
	return SignalSettled
}
func (l *lone) Offer() bool { return false }

// loneWork has at most one request. If the request is pending, the next pass settles it.
type loneWork struct {
	stepWork
	w       *lone
	pending bool // a request is submitted and not settled
}

func (l *loneWork) Pending() bool { return l.pending }
func (l *loneWork) Pass(bool) bool {
	if !l.pending {
		return false
	}
	l.pending, l.w.settled = false, true
	return true
}

// Rule: Drive allocates nothing, also under the race detector.
func TestDriveAllocatesNothing(t *testing.T) {
	l := &loneWork{w: &lone{wake: make(chan struct{}, 1)}}
	tok := New(l, l, Config{CallerDriving: true})
	n := testing.AllocsPerRun(1000, func() {
		l.pending, l.w.settled = true, false
		tok.SubmittedBeforeDrive()
		if tok.Drive(nil, l.w); !l.w.settled {
			t.Fatal("Drive returned before its request was settled")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per operation, want 0", n)
	}
}

// Rule: an operation allocates nothing in any goroutine, from its submission until Await returns its
// result.
func TestWholeWayAllocatesNothing(t *testing.T) {
	if poolsDropAtRandom {
		t.Skip("under the race detector sync.Pool drops objects at random, so operations allocate")
	}
	for _, c := range []struct {
		name   string
		cfg    Config
		device bool // the device has a goroutine of its own
		quiet  bool // the submission does not wake the loop
	}{
		{"synchronous, completed at once", Config{CallerDriving: true}, false, true},
		{"synchronous, device", Config{CallerDriving: true}, true, true},
		{"asynchronous, device", Config{CallerDriving: true}, true, false},
		{"no driving, device", Config{}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEcho(t, c.cfg, c.device)
			defer e.close(t)
			e.pool = futures.NewPool(futures.Options[uint64]{})
			j, i := new(job), 0
			n := testing.AllocsPerRun(5000, func() {
				i++
				if v, err := e.push(j, uint64(i), c.quiet).Await(context.Background()); err != nil || v != uint64(i) {
					t.Fatalf("operation %d returned %d, %v; want its number and no error", i, v, err)
				}
			})
			if n != 0 {
				t.Errorf("%v allocations per operation, want 0", n)
			}
		})
	}
}
