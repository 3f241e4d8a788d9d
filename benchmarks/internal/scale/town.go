package scale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// The devices that a worker may run on.
const (
	devNull = "null"
	devSoft = "soft"
)

// ends are the names of the two devices, and the address of the second.
var ends = map[string]struct{ here, there, addr string }{
	devNull: {"null0", "null1", "127.0.0.2:0"},
	devSoft: {"soft0", "soft1", "127.0.0.2:0"},
}

// setUp and tearDown bound connecting and closing ten thousand connections, on a busy
// machine.
const setUp, tearDown = 2 * time.Minute, time.Minute

// dialers is how many connections are being made at a time: enough to have the next
// there when one waits for its peer.
const dialers = 16

// word is the size of an operation, in bytes.
const word = 8

// place is where a worker runs.
type place struct {
	device        string // null or soft
	verbs, rdmacm string // the null device's libraries
}

func (p place) provider() (verbs.Provider, error) {
	switch p.device {
	case devSoft:
		return soft.Default(), nil
	case devNull:
		return ibv.New(ibv.Config{Verbs: p.verbs, RDMACM: p.rdmacm})
	}
	return nil, fmt.Errorf("there is no device %q", p.device)
}

// town is two runtimes on two devices in this process, and connections between them.
type town struct {
	here, there *verbena.Runtime
	conns       []*verbena.Conn // of here
	took        time.Duration   // to make them
}

// settle opens two runtimes and makes n connections. close follows.
func settle(at place, opts verbena.Options, n int) (_ *town, err error) {
	t := &town{conns: make([]*verbena.Conn, n)}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	provider, err := at.provider()
	if err != nil {
		return nil, err
	}
	e := ends[at.device]
	if t.there, err = verbena.Open(verbena.Config{Provider: provider, Device: e.there, Conn: opts}); err != nil {
		return nil, err
	}
	if t.here, err = verbena.Open(verbena.Config{Provider: provider, Device: e.here, Conn: opts}); err != nil {
		return nil, err
	}
	start := time.Now()
	err = t.meet(e.addr)
	t.took = time.Since(start)
	return t, err
}

// meet makes the connections, dialers at a time.
func (t *town) meet(addr string) error {
	ctx, timeout := context.WithTimeout(context.Background(), setUp)
	defer timeout()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	ln, err := t.there.Listen(addr)
	if err != nil {
		return err
	}
	// dialed and taken count the connections that somebody makes on either side; every
	// worker takes its next from them. They publish nothing.
	var dialed, taken atomic.Int64
	var all sync.WaitGroup
	work := func(count *atomic.Int64, do func(i int64) error) {
		all.Go(func() {
			for i := count.Add(1) - 1; i < int64(len(t.conns)); i = count.Add(1) - 1 {
				if err := do(i); err != nil {
					fail(err) // the others would wait for their peers
					return
				}
			}
		})
	}
	to := ln.Addr().String()
	for range dialers {
		work(&dialed, func(i int64) (err error) {
			t.conns[i], err = t.here.Dial(ctx, to)
			return err
		})
		work(&taken, func(int64) error {
			_, err := ln.Accept(ctx) // ends with its runtime
			return err
		})
	}
	all.Wait()
	err = context.Cause(ctx) // the first
	return errors.Join(err, ln.Close(ctx))
}

// reach gives both sides memory of one word, for writes from here to there.
func (t *town) reach() (local verbena.Slice, remote verbena.Remote, err error) {
	own, err := t.here.NewRegion(word, verbs.AccessLocalWrite)
	if err != nil {
		return local, remote, err
	}
	if local, err = own.Slice(0, word); err != nil {
		return local, remote, err
	}
	theirs, err := t.there.NewRegion(word, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return local, remote, err
	}
	remote, err = theirs.Remote(0, word)
	return local, remote, err
}

// close ends both runtimes with all that they have.
func (t *town) close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), tearDown)
	defer cancel()
	for _, rt := range []*verbena.Runtime{t.here, t.there} {
		if rt != nil {
			err = errors.Join(err, rt.Close(ctx))
		}
	}
	return err
}
