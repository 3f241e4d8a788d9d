package runtime

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/verbena-rdma/verbena/reactor"
)

// RemoteMemory gives access to a peer's memory as an io.ReaderAt and io.WriterAt. The caller's bytes
// may be in ordinary Go memory: ReadAt and WriteAt copy them from or to registered buffers. Both
// block until the transfer has ended. The methods may be called from any goroutine.
//
// Errors, besides io.EOF: [ErrRemoteRange]; those of [Conn.Start] and of its future; *[NoMemoryError] or
// *[MemlockError] if there is no memory for one buffer of at most 256 KiB; the error of the context,
// also while they wait for a buffer.
type RemoteMemory struct {
	c      *Conn
	ctx    context.Context
	remote Remote
}

// ioChunk is the size of one operation of RemoteMemory in bytes, and ioDepth is the number of
// concurrent operations of one ReadAt or WriteAt. With these values a transfer keeps a link busy,
// and holds at most 1 MiB of buffers.
const (
	ioChunk = 256 << 10
	ioDepth = 4
)

// At returns a RemoteMemory for the memory that remote describes. The transfers of the RemoteMemory
// use the connection c. When ctx has ended, they fail.
func (c *Conn) At(ctx context.Context, remote Remote) *RemoteMemory {
	return &RemoteMemory{c: c, ctx: ctx, remote: remote}
}

// Size returns the length of the remote memory in bytes, at most math.MaxInt64.
func (m *RemoteMemory) Size() int64 { return int64(min(m.remote.Length, math.MaxInt64)) }

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

// ioSubmitMode returns the submit mode of a transfer of n bytes. If the transfer is a single chunk,
// it need not wake the loop (the reactor's goroutine): the caller awaits the chunk at once, and as a
// driver posts the chunk itself. If there are several chunks, the loop is woken, so that it posts a
// chunk while the caller prepares the next chunk.
func ioSubmitMode(n int) reactor.SubmitMode {
	if n <= ioChunk {
		return reactor.NoWakeup
	}
	return reactor.Block
}

// ioTransfer is a chunk whose transfer is in progress.
type ioTransfer struct {
	p   []byte
	buf Buffer
	f   Future
}

// RemoteMemory.move transfers p in chunks, up to ioDepth chunks at a time. For each chunk it calls up
// to three functions:
//
//	before   fills the buffer; nil for a read
//	start    starts the operation
//	after    copies the data out of the buffer when the operation has succeeded; nil for a write
//
// The result n is the number of bytes in the chunks before the first chunk that failed or could not be started.
// Chunks after a chunk that failed may have been transferred, too.
func (m *RemoteMemory) move(p []byte, off uint64, start func(context.Context, Buffer, Remote) (Future, error),
	before func(Buffer, []byte), after func([]byte, Buffer)) (n int, err error) {
	asked, err := reactor.Unended(m.ctx)
	if err != nil {
		return 0, err
	}
	var ring [ioDepth]ioTransfer
	head, tail := 0, 0
	failed := false // a chunk has failed
	finish := func() {
		u := &ring[head%ioDepth]
		head++
		_, ferr := u.f.Await(asked)
		failed = failed || ferr != nil
		if !failed {
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
		if rerr := u.buf.Release(); rerr != nil && err == nil { // an outstanding operation keeps the memory until it completes
			err = rerr
		}
	}
	for at := 0; at < len(p) && err == nil; {
		if tail-head == ioDepth {
			finish()
			continue
		}
		chunk := p[at:min(len(p), at+ioChunk)]
		buf, aerr := m.c.rt.mem.allocUntil(asked, len(chunk))
		if aerr != nil && head < tail { // the memory of an earlier chunk may do
			finish()
			continue
		}
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
