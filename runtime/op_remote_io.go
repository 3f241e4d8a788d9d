package runtime

import (
	"context"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/reactor"
)

// RemoteMemory is a peer's memory as an io.ReaderAt and io.WriterAt, for programs
// whose bytes are in ordinary Go memory: they are copied through registered
// buffers. Its methods may be called from any goroutine and wait for the transfer.
type RemoteMemory struct {
	c      *Conn
	ctx    context.Context
	remote Remote
}

// ioChunk is the size of one operation of RemoteMemory, and ioDepth the number of
// concurrent operations: enough to keep a link busy without holding much memory.
const (
	ioChunk = 256 << 10
	ioDepth = 4
)

// At returns remote memory for reading and writing through this
// connection. ctx bounds every transfer.
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

// ioSubmitMode returns the submit mode of a transfer of n bytes. A single chunk is
// awaited at once, so it need not wake the loop. With several chunks the loop posts
// the first while the next is copied.
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

// move transfers p in chunks, up to ioDepth at a time. The function before fills a chunk's
// buffer, the function after empties it; each may be nil. move returns the number of leading
// bytes of p that were transferred.
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
		if rerr := u.buf.Release(); rerr != nil && err == nil { // an outstanding chunk keeps the buffer until it completes
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
