//go:build verbena_model

package actor

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/model/mutate"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
)

// told is a message of a roomScene: its sender, and its number among the messages of the sender.
type told struct{ sender, n int }

// roomScene is senders that tell n messages each, over a mailbox of the given size, to a runner that takes them.
type roomScene struct {
	size, senders, n int
	shut             bool // the mailbox is closed at any time
	stuck            bool // the runner takes nothing: the handler does not return
	ended            bool // the context of the first sender ends at any time
}

func (r roomScene) world() func() model.World {
	size, senders, n, shut, ended := r.size, r.senders, r.n, r.shut, r.ended
	return func() model.World {
		c := &cell[told]{box: ring.NewMPSC[envelope[told]](size), room: newRoom()}
		c.word.s.Store(rescan) // the runner runs, and looks again
		done := make(chan struct{})
		pushed, taken := make([][]int, senders), make([][]int, senders)
		closed, over := false, false
		box := func(d *model.Digest) {
			c.box.Digest(d, func(e *envelope[told]) uint64 { return uint64(e.m.sender)<<8 | uint64(e.m.n) })
		}
		m := model.World{
			Shared: func(d *model.Digest) {
				box(d)
				d.Bits(c.room.wanted.Load(), c.room.overtaken.Load(), closed, over)
				d.Add(uint64(len(c.room.token))<<8 | uint64(len(c.room.freed)))
			},
			Ghost: func(d *model.Digest) {
				for i := range senders {
					d.Add(uint64(len(pushed[i]))<<8 | uint64(len(taken[i])))
				}
			},
			Reads: func(label string) uint64 { // everything else that is read shows in the next step
				switch label {
				case "tell", "room.wanted", "mpsc.push":
					return c.box.Tail()
				case "pop":
					var d model.Digest
					box(&d)
					return d.Sum()
				}
				return 0
			},
			End: func(blocked []string) error {
				if slices.ContainsFunc(blocked, func(b string) bool { return b != "runner@look" }) {
					return fmt.Errorf("a Tell waits for ever; blocked: %v", blocked)
				}
				for i := range senders {
					if !r.stuck && !slices.Equal(pushed[i], taken[i]) || !shut && !(ended && i == 0) && len(taken[i]) != n {
						return fmt.Errorf("sender %d told %v, and %v was taken", i, pushed[i], taken[i])
					}
				}
				if len(c.room.token) != 1 || c.room.wanted.Load() || c.room.overtaken.Load() {
					return errors.New("the line is empty, and has a first")
				}
				return nil
			},
		}
		for i := range senders {
			m.Act("sender", func() {
				var ctx reactor.DoneContext
				if i == 0 && ended {
					ctx = done
				}
				for k := range n {
					model.Forget(k)
					model.Yield("begin")
					if c.tell(ctx, &envelope[told]{m: told{i, k}}) == nil {
						pushed[i] = append(pushed[i], k)
					}
				}
			})
		}
		m.Act("runner", func() {
			for {
				model.Forget(0)
				model.Block("look", func() bool { return c.box.Len() > 0 && !r.stuck })
				model.Yield("pop")
				var e envelope[told]
				if c.take(&e) {
					taken[e.m.sender] = append(taken[e.m.sender], e.m.n)
				}
			}
		})
		if shut {
			m.Act("shut", func() {
				model.Yield("begin")
				closed = true
				c.shut()
			})
		}
		if ended {
			m.Act("end", func() {
				model.Yield("begin")
				over = true
				close(done)
			})
		}
		return m
	}
}

// Rule: in every interleaving each Tell ends: its message is taken once, in the sender's order, or it returns an error.
func TestModelRoom(t *testing.T) {
	for _, r := range []roomScene{
		{size: 1, senders: 1, n: 3}, {size: 1, senders: 2, n: 2}, {size: 1, senders: 3, n: 1}, {size: 2, senders: 3, n: 1},
		{size: 1, senders: 2, n: 2, shut: true}, {size: 1, senders: 3, n: 1, shut: true, stuck: true},
		{size: 1, senders: 2, n: 2, ended: true}, {size: 1, senders: 3, n: 1, ended: true},
		{size: 1, senders: 2, n: 1, shut: true, ended: true}, {size: 1, senders: 3, n: 1, shut: true, ended: true},
	} {
		model.Holds(t, fmt.Sprintf("%+v", r), r.world())
	}
}

// Rule: each protection is needed: without it some interleaving leaves a Tell waiting.
func TestModelRoomMutants(t *testing.T) {
	const waits = "waits for ever"
	mutate.Test(t,
		mutate.New("the first asks before it tries", waits, roomScene{size: 1, senders: 2, n: 2}.world()).
			In("room.go", "r.wanted.Store(true)", "r.wanted.Store(!MUTANT)"),
		mutate.New("the runner wakes the first", waits, roomScene{size: 1, senders: 2, n: 2}.world()).
			In("cell.go", "c.room.wanted.Load() {", "!MUTANT && c.room.wanted.Load() {"),
		mutate.New("shut wakes the first", waits, roomScene{size: 1, senders: 3, n: 1, shut: true, stuck: true}.world()).
			In("cell.go", "c.box.Close()\n\tif c.room != nil {", "c.box.Close()\n\tif c.room != nil && !MUTANT {"),
		mutate.New("the first gives the token on", waits, roomScene{size: 1, senders: 3, n: 1}.world()).
			In("room.go", `model.Yield("room.token")`, `if MUTANT { return }; model.Yield("room.token")`),
		mutate.New("who leaves lets newcomers in", "has a first", roomScene{size: 1, senders: 2, n: 2}.world()).
			In("room.go", "r.overtaken.Store(false)", "r.overtaken.Store(MUTANT)"))
}
