package reactor_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// fewEntries is a device that limits the capacity of a completion queue, and the number of completion queues.
type fewEntries struct {
	verbs.Context
	most int
	left *int // the number of completion queues that can still be made
}

func (f fewEntries) QueryDevice() (verbs.DeviceAttr, error) {
	a, err := f.Context.QueryDevice()
	a.MaxCQE = f.most
	return a, err
}

// QPLimits implements verbs.Context: a queue pair may be deeper than a completion queue.
func (f fewEntries) QPLimits(_ verbs.QPType, want verbs.QPCap, _ bool) (verbs.QPCap, error) {
	return want, nil
}

func (f fewEntries) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	if *f.left == 0 {
		return nil, &verbs.OpError{Op: "ibv_create_cq", Errno: syscall.ENOMEM}
	}
	*f.left--
	return f.Context.CreateCQ(cqe, ch, vector, userData)
}

// roomCase is a way in which the completion queues of a reactor get room.
type roomCase struct {
	open      func(testing.TB) verbs.Context
	entries   int // Config.CQEntries
	made      int // the number of completion queues that the device can make
	want      int // the number of Queues that fit
	wantGrown int
}

// Rule: if Config.CQEntries is 0, the completion queues grow with the admitted Queues, up to the
// device's limit; then, or if the device cannot resize them, the reactor makes further ones. So there is an entry
// for every outstanding request. If CQEntries is not 0, the completion queues keep the capacity that the device
// has granted for it. When a Queue is reclaimed, its entries are free for other Queues.
func TestCompletionQueuesGrow(t *testing.T) {
	onlySoft(t, "a device may grant more entries than are asked for")
	open := func(t testing.TB) verbs.Context { return home().open(t, 0) }
	const most = 3 * reactor.DefaultCQEntries
	cases := map[string]roomCase{
		// Both completion queues grow from 8191 entries to 16382, and then to the device's limit, which is room for 4
		// Queues each. Then the reactor makes one more of each kind.
		"by default": {open: open, made: 4, want: 4 + 4, wantGrown: 2*2 + 2},
		"chosen":     {open: open, made: 4, entries: most / 2, want: most / 2 / roomRecvs},
	}
	for name, c := range moreRoomCases {
		cases[name] = c
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { c.run(t, most) })
	}
}

const roomSends, roomRecvs = 4000, 5000 // of each Queue

func (c roomCase) run(t *testing.T, most int) {
	cfg := reactor.QueueConfig{SendDepth: roomSends - 1, RecvDepth: roomRecvs}
	l := newLoneOn(t, c.open(t), reactor.Config{CQEntries: c.entries},
		func(ctx verbs.Context) verbs.Context { return fewEntries{ctx, most, &c.made} })
	defer l.close(t)
	cfg.PD = l.pd
	admit := func() (*reactor.Queue, error) {
		q := must.Get(l.r.Prepare(cfg))(t)
		var err error
		l.do(t, func() { err = q.Admit() })
		if err != nil {
			must.Do(t, q.Discard())
		}
		return q, err
	}
	used := map[verbs.CQ]int{}
	var all []*reactor.Queue
	for {
		q, err := admit()
		if errors.Is(err, reactor.ErrTooMany) {
			break
		}
		must.Do(t, err)
		all = append(all, q)
		init := q.InitAttr()
		used[init.SendCQ] += roomSends
		used[init.RecvCQ] += roomRecvs
		if init.SendCQ == init.RecvCQ {
			t.Fatal("a queue has one completion queue for sends and receives")
		}
	}
	for cq, n := range used {
		if n > cq.Capacity() {
			t.Errorf("the queues that were admitted need %d entries of a completion queue, but it has only %d", n, cq.Capacity())
		}
	}
	deep := cfg
	deep.RecvDepth = most + 1
	deeper := must.Get(l.r.Prepare(deep))(t)
	l.do(t, func() {
		if err := deeper.Admit(); !errors.Is(err, reactor.ErrConfig) || verbs.Retryable(err) {
			t.Errorf("Admit of a queue with more receives than a completion queue can hold returned %v, want ErrConfig, which is not retryable", err)
		}
	})
	must.Do(t, deeper.Discard())
	if grown := l.r.Stats().Grown; len(all) != c.want || int(grown) != c.wantGrown {
		t.Errorf("%d queues were admitted and completion queues grew %d times, want %d and %d", len(all), grown, c.want, c.wantGrown)
	}
	l.do(t, func() { must.Do(t, all[0].Release(errOver)) })
	q, err := admit() // takes the entries that the first queue gave back
	must.Do(t, err)
	for _, q := range append(all[1:], q) {
		l.do(t, func() { must.Do(t, q.Release(errOver)) })
	}
}
