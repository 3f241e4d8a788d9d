package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

const (
	chunk = 64 << 10 // bytes that one operation moves
	depth = 64       // outstanding operations
)

// way is the method of moving the file.
type way string

const (
	send  way = "SEND"           // in messages, which the receiver copies to their place
	write way = "WRITE_WITH_IMM" // directly into the receiver's memory; the immediate notifies it
	read  way = "READ"           // fetched by the receiver; the sender does nothing
)

// end is one of the two ends.
type end struct {
	rt   *verbena.Runtime
	conn *verbena.Conn
	file *verbena.Region // the source at the client, the copy at the server
	peer verbena.Remote  // the file of the other end
}

// report tells how many bytes have been moved, and in the end by what.
type report struct {
	Bytes, Operations, Doorbells, WorkRequests uint64
	Took                                       time.Duration
}

// measure moves the file from the client, prints the time and the statistics, and returns the hash
// of the copy.
func (e *end) measure(ctx context.Context, by way, p *progress) (hash uint64, err error) {
	if err := e.send(ctx, []byte(by)); err != nil {
		return 0, err
	}
	if _, err := e.recv(ctx); err != nil { // the server is ready
		return 0, err
	}
	p.begin(by)
	r, err := e.move(ctx, by, p)
	p.end()
	if err != nil {
		return 0, err
	}
	size := e.file.Len()
	fmt.Fprintf(p.w, "%-14s  %d bytes, %.2f GB/s\n    %d operations, %d doorbells, %.1f work requests per doorbell\n",
		by, size, float64(size)/1e9/r.Took.Seconds(), r.Operations, r.Doorbells, float64(r.WorkRequests)/float64(r.Doorbells))
	copied, err := e.recv(ctx)
	if err == nil {
		_, err = binary.Decode(copied, binary.LittleEndian, &hash)
	}
	return hash, err
}

// move returns when all data has arrived, with the report of the end that has posted.
func (e *end) move(ctx context.Context, by way, p *progress) (r report, err error) {
	if by == read {
		for r.Bytes < uint64(e.file.Len()) {
			if r, err = e.recvReport(ctx); err != nil {
				return r, err
			}
			p.at(int(min(r.Bytes, uint64(e.file.Len()))))
		}
		return r, nil
	}
	start := time.Now()
	r, err = e.post(ctx, by, func(at int) error { p.at(at); return nil })
	if err == nil {
		_, err = e.recvReport(ctx)
	}
	r.Took = time.Since(start)
	return r, err
}

// post keeps depth operations outstanding, and waits for all of them. It calls progress after each
// wave.
func (e *end) post(ctx context.Context, by way, progress func(at int) error) (r report, err error) {
	before, start := e.rt.Stats(), time.Now()
	var group futures.Group
	wave, size := make([]verbena.Future, 0, depth), e.file.Len()
	for off := 0; off < size; {
		if err := ctx.Err(); err != nil { // the waits below may never notice it
			return r, err
		}
		for ; off < size && len(wave) < depth; off += chunk {
			f, err := e.start(ctx, by, off, min(chunk, size-off))
			if err != nil {
				return r, err
			}
			if err := futures.Add(&group, f); err != nil {
				return r, err
			}
			wave = append(wave, f)
		}
		if err := group.Wait(ctx); err != nil { // one wake-up
			return r, err
		}
		for _, f := range wave {
			if _, err, _ := f.Poll(); err != nil {
				return r, err
			}
			r.Operations++
		}
		wave = wave[:0]
		if err := progress(min(off, size)); err != nil {
			return r, err
		}
	}
	after := e.rt.Stats()
	r.Bytes, r.Took = uint64(size), time.Since(start)
	r.Doorbells, r.WorkRequests = after.Doorbells-before.Doorbells, after.WorkRequests-before.WorkRequests
	return r, nil
}

// start starts the operation that moves n bytes from off.
func (e *end) start(ctx context.Context, by way, off, n int) (f verbena.Future, err error) {
	part, err := e.file.Slice(off, n)
	if err != nil {
		return f, err
	}
	batch := e.conn.Batch() // starts without a wake-up of the reactor: the wait for the wave posts it
	if by == send {
		return batch.Start(ctx, new(verbena.SendOp(part)))
	}
	remote, err := e.peer.At(uint64(off), uint64(n))
	if err != nil {
		return f, err
	}
	if by == read {
		return batch.Start(ctx, new(verbena.ReadOp(part, remote)))
	}
	return batch.Start(ctx, new(verbena.WriteOp(part, remote).Imm(uint32(off/chunk))))
}
