package rpma

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
)

// appendWith writes n bytes, and has them flushed. The WRITE has the given flags and the word 1, the FLUSH the word 2.
func appendWith(c *Conn, dst *RemoteMR, from *MR, n int, flags Flags) error {
	err := c.Write(dst, 0, from, 0, n, flags, 1)
	if err == nil {
		err = c.Flush(dst, 0, n, Visibility, CompletionAlways, 2)
	}
	return err
}

// Rule: a WRITE with More and the FLUSH behind it cost one doorbell, without More two.
func TestMoreSavesADoorbell(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, _ := r.connect(nil, nil)
		from, dst := r.mr(0, 64, WriteSrc), r.remote(r.mr(1, 64, WriteDst|ReadSrc|FlushVisibility))
		doorbells := func(flags Flags) uint64 {
			before := r.rt[0].Stats().Doorbells
			for range 1000 {
				must.Do(t, appendWith(c, dst, from, 64, flags))
				r.done(c.CQ(), 2)
			}
			return r.rt[0].Stats().Doorbells - before
		}
		apart, together := doorbells(CompletionOnError), doorbells(CompletionOnError|More)
		// Not exact: the loop, if it is awake, may post a WRITE before its FLUSH, or both at once.
		if apart < 1500 || together > 1500 {
			t.Errorf("1000 appends cost %d doorbells, and with More %d; want some 2000 and 1000", apart, together)
		}
	})
}

// Rule: operations with More keep their order. Without an operation behind them, GetWC and Wait have the device get them.
func TestMoreWithoutAnother(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, _ := r.connect(nil, nil)
		from, dst := r.mr(0, 64, WriteSrc), r.remote(r.mr(1, 64, WriteDst|ReadSrc|FlushVisibility))
		for i := range 200 { // posted by the recheck, each would take up to a second: more than the test has
			for word := range uint64(3) {
				must.Do(t, c.Write(dst, 0, from, 0, 8, CompletionAlways|More, word))
			}
			for word := range uint64(3) {
				if i%2 == 0 {
					must.Do(t, c.CQ().Wait(r.ctx))
				}
				r.polled(c.CQ(), word)
			}
		}
	})
}

// Rule: an operation that is refused because operations with More have all places has them posted.
func TestMoreLeavesNoQueueFull(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		const places = 4
		c, _ := r.connect(&ConnConfig{SQSize: places}, nil)
		from, dst := r.mr(0, 64, WriteSrc), r.remote(r.mr(1, 64, WriteDst|ReadSrc|FlushVisibility))
		for range 100 { // as above
			for range places {
				must.Do(t, c.Write(dst, 0, from, 0, 8, CompletionOnError|More, 1))
			}
			err := c.Write(dst, 0, from, 0, 8, CompletionAlways, 2)
			for errors.Is(err, syscall.ENOMEM) && r.ctx.Err() == nil {
				err = c.Write(dst, 0, from, 0, 8, CompletionAlways, 2)
			}
			must.Do(t, err)
			r.done(c.CQ(), 2)
		}
	})
}

// Rule: an operation with More that no call follows is posted within a second.
func TestMoreAlone(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(nil, nil)
	from, dst := r.mr(0, 64, WriteSrc), r.remote(r.mr(1, 64, WriteDst))
	completed := make(chan struct{}, 2)
	c.cq.bell.event.Notify(func() { completed <- struct{}{} })
	<-completed // Notify calls it, too
	must.Do(t, c.Write(dst, 0, from, 0, 8, CompletionAlways|More, 1))
	select {
	case <-completed:
	case <-time.After(10 * time.Second): // ten times as long, for a busy machine
		t.Fatal("the operation does not complete")
	}
	r.done(c.CQ(), 1)
}

// polled takes the next completion by polls only, and checks its word.
func (r *rig) polled(q *CQ, word uint64) {
	r.t.Helper()
	var wcs [1]WC
	err := error(ErrNoCompletion)
	for errors.Is(err, ErrNoCompletion) && r.ctx.Err() == nil {
		_, err = q.GetWC(wcs[:])
	}
	must.Do(r.t, errors.Join(err, wcs[0].Err()))
	if wcs[0].Context != word {
		r.t.Errorf("the completion has the word %d, want %d", wcs[0].Context, word)
	}
}

// BenchmarkAppend is a WRITE, a FLUSH behind it, and polling for the FLUSH's completion: posted apart, and together by
// More.
func BenchmarkAppend(b *testing.B) {
	for _, at := range append([]bed{mainBed(b)}, nullBeds...) {
		for _, way := range []struct {
			name  string
			flags Flags
		}{{"apart", CompletionOnError}, {"together", CompletionOnError | More}} {
			b.Run(at.name+"/"+way.name, func(b *testing.B) {
				r := at.rig(b)
				c, _ := r.connect(nil, nil)
				from, dst := r.mr(0, 64, WriteSrc), r.remote(r.mr(1, 64, WriteDst|FlushVisibility))
				var wcs [1]WC
				for b.Loop() {
					err := appendWith(c, dst, from, 64, way.flags)
					for none := err == nil; none; none = errors.Is(err, ErrNoCompletion) {
						_, err = c.CQ().GetWC(wcs[:])
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
