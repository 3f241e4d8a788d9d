//go:build verbena_model

package reactor

import (
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// The ready list holds the queues with submissions for the next pass. The model in
// ready_model_test.go covers Transfer. This model covers the other ways to submit, all on one
// queue:
//
//   - TransferWait, which posts its own request
//   - PostRecv and PostRecvLater
//   - PostFromSink, by which a sink submits its next request
//
// In this model several goroutines take the turn, one at a time.

// mixedWays are the functions under test. TestModelReadyOfAllWaysFindsMistakes replaces some of
// them by wrong ones.
type mixedWays struct {
	readyWays
	// add appends the holder's own request to the backlog.
	add func(*Queue, uint32)
	// own is called in place of Reactor.gatherOwn. If it is nil, gatherOwn is called.
	own func(*Reactor)
	// follow submits a request from a sink.
	follow func(*Queue, uint32)
}

var rightMixed = mixedWays{rightReady, func(q *Queue, i uint32) { q.add(i) }, nil, follow}

// follow submits a request from a sink, in slot i. For this purpose it puts the slot into the cache from
// which PostFromSink takes slots.
func follow(q *Queue, i uint32) {
	h := &q.r.sinks
	h.queue, h.free[0], h.slots = q, i, 1
	tr := Transfer{Opcode: verbs.WRRDMAWrite, Sink: noSink{}}
	if err := q.PostFromSink(SinkContext{r: q.r}, &tr); err != nil {
		panic(err)
	}
}

type noSink struct{}

func (noSink) Complete(SinkContext, Completion, error) {}

// mix describes the actors (the goroutines) of a model.World.
type mix struct {
	// The number of actors that submit one send each, and of actors that post one receive each.
	submitters, receivers int
	// lone describes an additional actor, the lone actor, with one letter for each of its steps. For q,
	// the lone actor submits a request without a wake-up. For l, it posts a receive by PostRecvLater. For
	// w, it posts a request itself, as TransferWait does. If lone is "", there is no lone actor.
	lone string
	// At the end of the first pass that posts a request, sinks submit one request for each letter
	// of this string. For f, a sink calls mixedWays.follow. For s, a sink calls readyWays.submit.
	sink string
}

// mixedBed is the state of the model's world. A producer is a sequence of requests that must be
// posted in order: the sends of one actor, the receives of one actor, or the requests of the sinks.
type mixedBed struct {
	w    mixedWays
	r    *Reactor
	q    *Queue
	held bool // an actor (a goroutine of the model) holds the turn
	sunk bool // the sinks were called

	sink          string
	took          []uint32 // the slots that the last pass posted
	producer      []int    // by slot: the number of its producer
	next          []int    // by producer: the slot that must be posted next
	total, expect int      // requests posted so far, and requests to post in all
}

// slots gives n slots to a new producer, which uses the slots in order. It returns the
// first slot.
func (b *mixedBed) slots(n int) uint32 {
	first := len(b.producer)
	for range n {
		b.producer = append(b.producer, len(b.next))
	}
	b.next = append(b.next, first)
	b.expect += n
	return uint32(first)
}

// turn runs one pass. The caller must hold the turn. All requests that the pass posts complete in the
// same pass.
func (b *mixedBed) turn() {
	r, q := b.r, b.q
	if own := r.ownBacklog; own == nil || b.w.own == nil {
		b.w.gather(r)
	} else { // as Reactor.gather does, but with w.own in place of gatherOwn
		r.ownBacklog = nil
		b.w.gather(r)
		r.ownBacklog = own
		b.w.own(r)
	}
	b.took = b.took[:0]
	for k, g := range r.batch.Recvs {
		for i, n := r.recvFirst[k], g.Count; n > 0; n-- {
			b.took = append(b.took, i)
			i = q.links.Next(i)
		}
	}
	for q.order.n > 0 {
		b.took = append(b.took, q.order.pop())
	}
	if n := len(r.batch.Sends); n > 1 {
		panic(fmt.Sprintf("the queue has %d lists of sends in a pass, want at most 1", n))
	}
	if n := len(r.batch.Recvs); n > 1 {
		panic(fmt.Sprintf("the queue has %d lists of receives in a pass, want at most 1", n))
	}
	r.batch.Sends, r.batch.Recvs, r.sendOwners, r.recvOwners, r.recvFirst = nil, nil, nil, nil, nil
	for _, i := range b.took {
		p := b.producer[i]
		if int(i) != b.next[p] {
			panic(fmt.Sprintf("request %d of producer %d is posted, want request %d first", i, p, b.next[p]))
		}
		b.next[p]++
	}
	if b.total += len(b.took); len(b.took) > 0 && !b.sunk {
		b.sunk = true
		first := len(b.producer) - len(b.sink)
		for k, how := range b.sink {
			if i := uint32(first + k); how == 'f' {
				b.w.follow(q, i)
			} else {
				b.w.submit(q, i)
			}
		}
	}
}

// take waits until the turn is free and ready() returns true, and then takes the turn.
func (b *mixedBed) take(ready func() bool) {
	model.Block("await", func() bool { return !b.held && ready() })
	b.held = true
}

func mixedWorld(w mixedWays, m mix) model.World {
	b := &mixedBed{w: w, sink: m.sink}
	r, qs := readyBed(1, 1)
	b.r, b.q = r, qs[0]
	q := b.q
	var world model.World
	submitted := func(n int) {
		for range n {
			i := b.slots(1)
			world.Act(fmt.Sprint("submitter", i), func() {
				model.Forget(0)
				w.submit(q, i)
			})
		}
	}
	submitted(m.submitters)
	for range m.receivers {
		i := b.slots(1)
		world.Act(fmt.Sprint("receiver", i), func() {
			model.Forget(0)
			q.recvStack.Push(i)
			model.Forget(pushed)
			q.submit(NoWakeup)
		})
	}
	if m.lone != "" {
		world.Act("lone", b.loneActor(m.lone))
	}
	world.Act("holder", func() {
		for {
			model.Forget(0)
			b.take(func() bool { return !r.ready.Empty() })
			b.turn()
			b.held = false
		}
	})
	b.slots(len(m.sink))
	n := len(b.producer)
	// In this model, the slots of sends and receives are numbered together, from 0.
	q.links, q.tab = ring.NewLinks(n), madeTable(n)
	q.sendStack, q.recvStack, q.order = ring.NewIndexStack(q.links), ring.NewIndexStack(q.links), order{links: q.links}
	q.requests, q.cfg.receiving = requestsOf[verbs.QPTRC], true
	world.Shared = func(d *model.Digest) {
		r.ready.Digest(d, listed(qs))
		q.queued.Digest(d)
		q.sendStack.Digest(d)
		q.recvStack.Digest(d)
		d.Add(uint64(q.backlog.n)<<32 | uint64(q.backlog.first)<<16 | uint64(q.backlog.last))
		for _, yes := range []bool{b.held, b.sunk} {
			d.Add(1)
			if yes {
				d.Add(2)
			}
		}
	}
	world.Ghost = func(d *model.Digest) {
		for _, n := range b.next {
			d.Add(uint64(n))
		}
		d.Add(uint64(q.order.n))
	}
	world.End = func([]string) error {
		if b.total != b.expect || b.held {
			return fmt.Errorf("no actor can go on: %d of %d requests are posted and held = %t, want all posted and held = false", b.total, b.expect, b.held)
		}
		return nil
	}
	return world
}

// loneActor returns the function of the lone actor. The steps in does are those of mix.lone.
func (b *mixedBed) loneActor(does string) func() {
	var of []uint32
	sends, recvs := b.slots(len(does)-countOf(does, 'l')), b.slots(countOf(does, 'l'))
	for _, how := range does {
		if how == 'l' {
			of = append(of, recvs)
			recvs++
		} else {
			of = append(of, sends)
			sends++
		}
	}
	return func() {
		for k, how := range does {
			i := of[k]
			model.Forget(k)
			switch how {
			case 'q':
				b.w.submit(b.q, i)
			case 'l':
				b.q.recvStack.Push(i)
			default:
				b.take(func() bool { return true })
				b.w.add(b.q, i)
				b.r.ownBacklog = b.q
				b.turn()
				if len(b.took) == 0 {
					panic("the pass that the lone actor runs for its own request posts no request, want at least one")
				}
				for e, how := range does[:k] {
					if how == 'l' && slices.Contains(b.took, i) && b.next[b.producer[of[e]]] <= int(of[e]) {
						panic("a receive of PostRecvLater is not posted with the next send")
					}
				}
				b.held = false
			}
		}
	}
}

func countOf(s string, what rune) (n int) {
	for _, c := range s {
		if c == what {
			n++
		}
	}
	return n
}

// Rule: every request is posted once, and the requests of a goroutine are posted in order. This
// holds for requests on the queue's two stacks and for requests that the holder adds to the
// backlog. A pass has at most one list of the queue's sends, and at most one list of its receives.
// If an actor runs a pass for its own request, the pass posts at least one request. A receive of
// PostRecvLater is posted at the latest with the next send.
func TestModelReadyOfAllWays(t *testing.T) {
	for _, c := range []struct {
		mix
		large bool
	}{
		{mix{submitters: 1, receivers: 1}, false},
		{mix{receivers: 2}, false},
		{mix{submitters: 1, lone: "w"}, false},
		{mix{submitters: 1, lone: "qw"}, false},
		{mix{receivers: 1, lone: "qw"}, false},
		{mix{submitters: 1, lone: "lw"}, false},
		{mix{receivers: 1, lone: "lw"}, false},
		{mix{submitters: 2, sink: "f"}, false},
		{mix{submitters: 2, sink: "fs"}, false},
		{mix{submitters: 2, sink: "sff"}, false},
		{mix{submitters: 1, receivers: 1, sink: "ff"}, false},
		{mix{submitters: 1, lone: "w", sink: "ff"}, false},
		{mix{submitters: 1, lone: "qw", sink: "fs"}, false},
		{mix{submitters: 1, lone: "lqw"}, true},
		{mix{submitters: 1, lone: "qww", sink: "ff"}, true},
	} {
		if c.large && !model.Large {
			continue
		}
		model.Holds(t, fmt.Sprintf("%+v", c.mix), func() model.World { return mixedWorld(rightMixed, c.mix) })
	}
}
