package plog

import (
	"context"
	"errors"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// connPort is the port of a writer on a connection.
type connPort struct {
	rt   *verbena.Runtime
	conn *verbena.Conn
	ring verbena.Remote // a window of the server, on this lane's ring alone
}

// maxSteps is the most that an append takes: a WRITE and a FLUSH of the ring's end, and of its
// beginning.
const maxSteps = 4

func (p *connPort) post(ctx context.Context, writes []write, flushes []span) (started int, done waiter, err error) {
	n := 0
	for _, w := range writes {
		n += len(w.b)
	}
	buf, err := p.rt.Alloc(n)
	if err != nil {
		return 0, nil, err
	}
	defer buf.Release() // the device keeps it until the WRITEs have ended
	var ops [maxSteps]verbena.Op
	all := ops[:0]
	from := 0
	for _, w := range writes {
		copy(buf.Bytes()[from:], w.b)
		local, err := buf.Slice().Sub(from, len(w.b))
		if err != nil {
			return 0, nil, err
		}
		at, err := p.ring.At(uint64(w.off), uint64(len(w.b)))
		if err != nil {
			return 0, nil, err
		}
		from += len(w.b)
		all = append(all, verbena.WriteOp(local, at))
	}
	for _, s := range flushes {
		at, err := p.ring.At(uint64(s.off), uint64(s.n))
		if err != nil {
			return 0, nil, err
		}
		all = append(all, verbena.FlushOp(at, verbs.FlushPersistent))
	}
	f := new(flushing)
	started, err = p.conn.Batch().StartAll(ctx, all, f.all[:])
	// If a WRITE fails, the connection fails, and so do the FLUSHes behind it.
	for i := range min(started, len(writes)) {
		f.all[i].Discard()
	}
	f.left = f.all[min(started, len(writes)):started]
	if err != nil {
		f.discard()
		return started, nil, err
	}
	return started, f, nil
}

func (p *connPort) flush() { p.conn.Batch().Flush() }

// flushing waits for the FLUSHes of an append.
type flushing struct {
	all  [maxSteps]verbena.Future
	left []verbena.Future // of all; not awaited yet
}

func (f *flushing) wait(ctx context.Context) error {
	for ; len(f.left) > 0; f.left = f.left[1:] {
		if _, err := f.left[0].Await(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *flushing) discard() {
	for _, l := range f.left {
		l.Discard()
	}
	f.left = nil
}

func (p *connPort) askHead(ctx context.Context) (head uint64, err error) {
	err = p.call(ctx, appendHead(nil, msgSpace, 0, 0), func(b []byte) (err error) {
		head, err = parseHead(b)
		return err
	})
	return head, err
}

// call sends a question and gives the answer to parse, which must not keep it.
func (p *connPort) call(ctx context.Context, ask []byte, parse func([]byte) error) error {
	m, err := p.conn.Call(ctx, new(verbena.SendBytesOp(ask)))
	if err != nil {
		return err
	}
	return errors.Join(parse(m.Data), m.Release())
}
