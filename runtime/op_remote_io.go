package runtime

import (
	"context"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/reactor"
)

// RemoteMemory accesses a peer's memory as an io.ReaderAt and io.WriterAt. It is for programs with
// data in ordinary Go memory: it copies the data through registered buffers. Its methods may be
// called from any goroutine. They block until the transfer has ended.
type RemoteMemory struct {
	c      *Conn
	ctx    context.Context
	remote Remote
}

// ioChunk is the size of one operation of RemoteMemory in bytes, and ioDepth is the number of
// concurrent operations. They keep a link busy without holding much memory.
const (
	ioChunk = 256 << 10
	ioDepth = 4
)

// At returns a RemoteMemory that reads and writes remote through this connection. If ctx ends, its
// transfers fail.
func (c *Conn) At(ctx context.Context, remote Remote) *RemoteMemory {
	return &RemoteMemory{c: c, ctx: ctx, remote: remote}
}

// Size returns the length of the memory in bytes.
func (m *RemoteMemory) Size() int64 { return int64(m.remote.Length) }

// ReadAt implements io.ReaderAt.
func (m *RemoteMemory) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%w: offset %d", ErrRemoteRange, off)
	}
	if uint64(off) >= m.remote.Length {
		return 0, io.EOF
	}
	short := uint64(len(p)) > m.remote.Length-uint64(off)
	if short {
		p = p[:m.remote.Length-uint64(off)]
	}
	n, err := m.move(p, uint64(off), func(ctx context.Context, buf Buffer, r Remote) (Future, error) {
		op := ReadOp(buf.Slice(), r)
		return m.c.start(ctx, &op, submitOpts{mode: ioSubmitMode(len(p))})
	}, nil, func(dst []byte, buf Buffer) { copy(dst, buf.Bytes()) })
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// WriteAt implements io.WriterAt.
func (m *RemoteMemory) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || uint64(off) > m.remote.Length || uint64(len(p)) > m.remote.Length-uint64(off) {
		return 0, fmt.Errorf("%w: %d bytes at offset %d of %d", ErrRemoteRange, len(p), off, m.remote.Length)
	}
	return m.move(p, uint64(off), func(ctx context.Context, buf Buffer, r Remote) (Future, error) {
		op := WriteOp(buf.Slice(), r)
		return m.c.start(ctx, &op, submitOpts{mode: ioSubmitMode(len(p))})
	}, func(buf Buffer, src []byte) { copy(buf.Bytes(), src) }, nil)
}

// ioSubmitMode returns the submit mode of a transfer of n bytes. The caller awaits a single chunk
// at once and thereby posts it, so it need not wake the loop (the reactor's goroutine). With
// several chunks the loop posts one while the caller prepares the next.
func ioSubmitMode(n int) reactor.SubmitMode {
	if n <= ioChunk {
		return reactor.NoWakeup
	}
	return reactor.Block
}

// ioTransfer is one chunk being transferred.
type ioTransfer struct {
	p   []byte
	buf Buffer
	f   Future
}

// move transfers p in chunks, up to ioDepth at a time. For each chunk the function before fills the
// buffer, the function start starts the transfer, and, if the transfer succeeds, the function after
// copies the data out of the buffer. The functions before and after may be nil. move returns the
// number of leading bytes of p that were transferred.
func (m *RemoteMemory) move(p []byte, off uint64, start func(context.Context, Buffer, Remote) (Future, error),
	before func(Buffer, []byte), after func([]byte, Buffer)) (n int, err error) {
	asked, err := reactor.DoneOf(m.ctx)
	if err != nil {
		return 0, err
	}
	var ring [ioDepth]ioTransfer
	head, tail := 0, 0
	finish := func() {
		u := &ring[head%ioDepth]
		head++
		_, ferr := u.f.Await(asked)
		if ferr == nil && err == nil {
			if after != nil {
				after(u.p, u.buf)
			}
			n += len(u.p)
		} else if err == nil {
			err = ferr
		}
		if u.f.Valid() {
			u.f.Discard()
		}
		if rerr := u.buf.Release(); rerr != nil && err == nil { // if the chunk is outstanding, its lease keeps the buffer until it completes
			err = rerr
		}
	}
	for at := 0; at < len(p) && err == nil; {
		if tail-head == ioDepth {
			finish()
			continue
		}
		chunk := p[at:min(len(p), at+ioChunk)]
		buf, aerr := m.c.rt.mem.Alloc(len(chunk))
		if aerr != nil {
			err = aerr
			break
		}
		if before != nil {
			before(buf, chunk)
		}
		r, rerr := m.remote.At(off+uint64(at), uint64(len(chunk)))
		var f Future
		if rerr == nil {
			f, rerr = start(asked, buf, r)
		}
		if rerr != nil {
			err = rerr
			if e := buf.Release(); e != nil {
				err = fmt.Errorf("%w; and %w", err, e)
			}
			break
		}
		ring[tail%ioDepth] = ioTransfer{chunk, buf, f}
		tail++
		at += len(chunk)
	}
	for head < tail {
		finish()
	}
	return n, asked.Cause(m.ctx, err)
}
