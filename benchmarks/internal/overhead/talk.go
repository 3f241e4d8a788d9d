package overhead

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/internal/mem"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// end is one end of a conversation between two processes.
type end struct {
	conn *verbena.Conn
	// own is the word that the peer writes to, out the word that is sent from here; slots are for
	// receives.
	own, out *uint64
	outSlice verbena.Slice
	slots    []verbena.Slice
	peer     verbena.Remote // the peer's own
}

// conversation is an exchange between two processes, beside a pair of C programs that does the
// same.
type conversation struct {
	raw   bool
	serve func(*end, context.Context, int) error                // n operations
	call  func(*end, context.Context, int, rounds.Values) error // n operations; adds its results
}

// conversations by the names with which workers in a guest are started.
var conversations = map[string]conversation{
	"rate":     {true, (*end).untilGone, (*end).rate},
	"writes":   {true, (*end).answerWrites, (*end).writes},
	"sends":    {true, (*end).answerSends, (*end).sends},
	"messages": {false, (*end).answerMessages, (*end).messages},
}

const (
	// talkWarm is the number of operations before the measured ones: the first ones of each side
	// touch memory and code.
	talkWarm = 16
	// talkSlots is the number of posted receives.
	talkSlots = 16
	// spinning is the number of empty passes before the reactor sleeps: practically never, since
	// the C programs poll.
	spinning = 1 << 20
	// looks is how often a loop that reads memory reads before it lets another goroutine run, and
	// checks the connection.
	looks = 256
)

// talkMemory is the layout of an end's memory: the words, then the slots, each on cache lines of
// its own.
const talkOwn, talkOut, talkFirst, talkSlot, talkMemory = 0, 64, 128, 64, 4096

// newEnd opens an end's memory, and returns its description for the peer.
func newEnd(rt *verbena.Runtime) (*end, []byte, error) {
	r, err := rt.NewRegion(talkMemory, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return nil, nil, err
	}
	e := &end{}
	for i := range talkSlots {
		s, err := r.Slice(talkFirst+i*talkSlot, talkSlot)
		if err != nil {
			return nil, nil, err
		}
		e.slots = append(e.slots, s)
	}
	if e.outSlice, err = r.Slice(talkOut, bed.Word); err != nil {
		return nil, nil, err
	}
	at := e.outSlice.SGE().Addr
	a, ok := mem.Find(at-talkOut, talkMemory)
	if !ok {
		return nil, nil, errors.New("a region that is no memory of ours")
	}
	e.out, _ = a.Word(at)
	e.own, _ = a.Word(at - talkOut + talkOwn)
	where, err := r.Remote(talkOwn, bed.Word)
	if err != nil {
		return nil, nil, err
	}
	told, err := where.MarshalBinary()
	return e, told, err
}

// options are those of a conversation. A raw connection is bare as well: a hello would leave no
// room for the address of the memory.
func (v conversation) options(told []byte) verbena.Options {
	if !v.raw {
		return verbena.Options{}
	}
	return verbena.Options{Raw: true, Bare: true, PrivateData: told}
}

// meet runs on both ends when they are connected.
func (v conversation) meet(e *end, c *verbena.Conn) error {
	e.conn = c
	if !v.raw {
		return nil
	}
	told := c.PrivateData()
	if len(told) < verbena.RemoteSize {
		return fmt.Errorf("the peer told %d bytes of where it is", len(told))
	}
	return e.peer.UnmarshalBinary(told[:verbena.RemoteSize])
}

// listen listens at addr, passes its address to ready, and has one conversation.
func (v conversation) listen(ctx context.Context, rt *verbena.Runtime, addr string, n int, ready func(addr string)) error {
	e, told, err := newEnd(rt)
	if err != nil {
		return err
	}
	ln, err := rt.ListenOptions(addr, v.options(told))
	if err != nil {
		return err
	}
	ready(ln.Addr().String())
	c, err := ln.Accept(ctx)
	if err == nil {
		err = v.meet(e, c)
	}
	if err == nil {
		err = v.serve(e, ctx, n+talkWarm)
	}
	if err == nil {
		err = e.untilGone(ctx, 0)
	}
	return err
}

// dial has the conversation with the listener at addr, and returns the results.
func (v conversation) dial(ctx context.Context, rt *verbena.Runtime, addr string, n int) (rounds.Values, error) {
	e, told, err := newEnd(rt)
	if err != nil {
		return nil, err
	}
	c, err := rt.DialOptions(ctx, addr, v.options(told))
	if err != nil {
		return nil, err
	}
	if err := v.meet(e, c); err != nil {
		return nil, err
	}
	found := rounds.Values{suite.Ops: float64(n)}
	if err := v.call(e, ctx, n, found); err != nil {
		return nil, err
	}
	return found, c.Close(ctx)
}

// untilGone waits until the peer has closed: the target of writes has nothing else to do.
func (e *end) untilGone(ctx context.Context, _ int) error {
	select {
	case <-e.conn.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// timed runs n exchanges, after some to warm up, and takes the time of each, and of all. It
// reports one way: half of an exchange.
func timed(n int, found rounds.Values, exchange func(i int) error) error {
	var took suite.Samples
	took.Room(n)
	began := time.Now()
	for i := range talkWarm + n {
		if i == talkWarm {
			began = time.Now()
		}
		t := time.Now()
		if err := exchange(i); err != nil {
			return fmt.Errorf("exchange %d: %w", i, err)
		}
		if i >= talkWarm {
			took = append(took, time.Since(t)/2)
		}
	}
	found[suite.Wall] = float64(time.Since(began)) / 2
	took.Report(found)
	return nil
}

// await spins until the peer has written value.
func (e *end) await(ctx context.Context, value uint64) error {
	for {
		for range looks {
			if atomic.LoadUint64(e.own) == value {
				return nil
			}
		}
		goruntime.Gosched()
		if err := errors.Join(e.conn.Err(), ctx.Err()); err != nil {
			return err
		}
	}
}

// write writes value to the peer, and waits for the completion.
func (e *end) write(ctx context.Context, value uint64) error {
	atomic.StoreUint64(e.out, value)
	_, err := e.conn.Do(ctx, new(verbena.WriteOp(e.outSlice, e.peer)))
	return err
}
