package plog

import (
	"context"
	"errors"
	"fmt"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// connPort is the port of a writer on a connection.
type connPort struct {
	rt      *verbena.Runtime
	conn    *verbena.Conn
	log     layout
	claimed uint64 // where the writer's records begin
	// windows of the server reach these parts of the lane's ring, and have this number.
	number  uint32
	parts   []span
	windows []verbena.Remote
}

// at returns the remote memory of n bytes of the ring, which no end of a part cuts.
func (p *connPort) at(off, n int) (verbena.Remote, error) {
	for i, s := range p.parts {
		if off >= s.off && off+n <= s.off+s.n {
			return p.windows[i].At(uint64(off-s.off), uint64(n))
		}
	}
	return verbena.Remote{}, fmt.Errorf("%w: no window on %d bytes at %d of the ring", ErrMessage, n, off)
}

// maxSteps is the most that an append takes: a WRITE and a FLUSH of the ring's end, and of its
// beginning.
const maxSteps = 4

func (p *connPort) post(ctx context.Context, writes []write, flushes []span) (started int, done waiter, err error) {
	var ops [maxSteps]verbena.Op
	all := ops[:0]
	if len(writes) > 0 {
		n := 0
		for _, w := range writes {
			n += len(w.b)
		}
		buf, err := p.rt.AllocWait(ctx, n)
		if err != nil {
			return 0, nil, err
		}
		defer buf.Release() // the device keeps it until the WRITEs have ended
		from := 0
		for _, w := range writes {
			copy(buf.Bytes()[from:], w.b)
			local, err := buf.Slice().Sub(from, len(w.b))
			if err != nil {
				return 0, nil, err
			}
			at, err := p.at(w.off, len(w.b))
			if err != nil {
				return 0, nil, err
			}
			from += len(w.b)
			all = append(all, verbena.WriteOp(local, at))
		}
	}
	for _, s := range flushes {
		at, err := p.at(s.off, s.n)
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
	err = p.call(ctx, appendHead(nil, msgSpace, 0, p.number), func(b []byte) error {
		s, err := parseSpace(b, p.log, p.claimed, p.number)
		if err != nil {
			return err
		}
		if head = s.head; s.number != p.number {
			p.number, p.parts, p.windows = s.number, p.log.open(p.claimed, head), s.windows
		}
		return nil
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
