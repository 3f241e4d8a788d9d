package reactor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// silent completes atomics without their answers while mute is set.
type silent struct {
	verbs.Context
	q    *reactor.Queue
	mute bool // both by the holder, or before there is anything under way
}

func (c *silent) Turn(t *verbs.Turn) error {
	err := c.Context.Turn(t)
	if c.mute && c.q != nil {
		c.q.ForgetAnswers()
	}
	return err
}

// Rule: an atomic that the device completed without its answer fails, and says so,
// instead of giving the answer of an earlier one; the queue goes on.
func TestAtomicWithoutItsAnswerFails(t *testing.T) {
	var ends []*silent
	a, b := pairOf(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 4}, func(c verbs.Context) verbs.Context {
		ends = append(ends, &silent{Context: c})
		return ends[len(ends)-1]
	})
	defer b.close(t)
	defer a.close(t)
	s := ends[0] // of a
	addr, key := b.remote(0)
	add := func() (reactor.Completion, error) {
		f, err := a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Remote: addr, RKey: key, Add: 5}, &reactor.Payload{}, reactor.Wait)
		if err != nil {
			t.Fatal(err)
		}
		return f.Await(context.Background())
	}
	if c, err := add(); err != nil || c.Value != 0 {
		t.Fatalf("answered %d, %v; want 0", c.Value, err)
	}
	a.do(t, func() { s.q, s.mute = a.q, true })
	if c, err := add(); !errors.Is(err, reactor.ErrUnanswered) || c.Value != 0 {
		t.Errorf("answered %d, %v; want ErrUnanswered", c.Value, err)
	}
	a.do(t, func() { s.mute = false })
	if c, err := add(); err != nil || c.Value != 10 {
		t.Errorf("answered %d, %v; want 10", c.Value, err)
	}
	if n := a.r.Stats().Unanswered; n != 1 {
		t.Errorf("%d are counted", n)
	}
}
