package actor

import (
	"context"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
)

// room is where Tell waits while the mailbox is full (Options.Overflow is Wait). The goroutines that wait form a
// line. The first of the line has the token, and is the only one that waits for a free place.
//
//	Tell: the mailbox is full,          takes the token          pushed, ctx ended, or closed
//	or newcomers must wait ────> in line ──────────────> first ──────────────────────────────> gives the token on
//
// Go's channels serve their receivers in order, so the token goes along the line. A newcomer that finds a free place
// overtakes the line: 16 goroutines that tell would otherwise switch at each message, which takes 500 ns in the place
// of 60. When the first has been woken patience times and has found no place, newcomers join the line.
type room struct {
	// overtaken is set while newcomers must go to the line. The first writes it; every Tell reads it. It publishes
	// nothing.
	overtaken atomic.Bool
	// wanted is set while the first waits. The first sets it before it tries to push once more. The runner reads it
	// after it has freed a place, and shut after it has closed the mailbox. So the first sees the change, or the other
	// goroutine finds wanted set, clears it and sends on freed. It publishes nothing.
	wanted atomic.Bool

	token chan signal // holds the token unless the first has it
	freed chan signal // its buffer keeps a sender from blocking; a signal left by an earlier wait costs one extra try
}

// signal is what the channels of a room carry. All are alike.
type signal uint8

func newRoom() *room {
	r := &room{token: make(chan signal, 1), freed: make(chan signal, 1)}
	r.token <- 0
	return r
}

// wake makes the first in line try again: there is a place, or the mailbox is closed. In a closed mailbox the first does
// not wait, and gives the token on. Any goroutine may call wake; it does not block.
func (r *room) wake() {
	model.Yield("room.wake")
	if !r.wanted.CompareAndSwap(true, false) {
		return
	}
	model.Yield("room.freed")
	select {
	case r.freed <- 0:
	default:
	}
}

// patience is how many times the first in line is woken in vain before newcomers must join the line. Each time
// costs it a switch of goroutines; in the line, each message costs one. In the model build it is 1.
const patience = 4 - 3*model.On

// pushLater pushes e when the mailbox has room and it is this goroutine's turn. If err is nil, it returns
// Pushed or Closed. Any goroutine may call it; in a handler it does not wait. It does not allocate.
func (c *cell[M]) pushLater(ctx context.Context, e *envelope[M]) (pushed ring.PushResult, err error) {
	if inside(ctx) {
		if pushed = c.box.Push(e); pushed == ring.Full {
			err = errNoRoomInHandler
		}
		return pushed, err
	}
	done, _ := reactor.DoneOf(ctx) // no error: tell has refused a nil context
	pushed, err = c.pushInLine(done, e)
	return pushed, done.Cause(ctx, err) // without the token, because Cause calls methods of ctx
}

// pushInLine is pushLater for a goroutine that may wait until done is closed.
func (c *cell[M]) pushInLine(done reactor.DoneContext, e *envelope[M]) (pushed ring.PushResult, err error) {
	r := c.room
	if _, first := model.Receive(r.token, done); !first {
		return ring.Full, done.Err()
	}
	defer func() {
		model.Yield("room.leave")
		r.wanted.Store(false)
		r.overtaken.Store(false)
		model.Yield("room.token")
		r.token <- 0
	}()
	for lost := 0; ; lost++ {
		model.Mark("room.first", min(lost, patience+1))
		if lost == patience {
			model.Yield("room.overtaken")
			r.overtaken.Store(true)
		}
		model.Yield("room.wanted")
		r.wanted.Store(true)
		if pushed = c.box.Push(e); pushed != ring.Full {
			return pushed, nil
		}
		if _, woken := model.Receive(r.freed, done); !woken {
			return ring.Full, done.Err()
		}
	}
}
