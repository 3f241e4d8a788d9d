package main

import (
	"context"
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

// mover holds the two ends.
type mover struct {
	here, there        *verbena.Runtime
	sender, receiver   *verbena.Conn
	source, target     *verbena.Region
	sourceAt, targetAt verbena.Remote // as the other end names them
	progress           progress
}

func (m *mover) connect(ctx context.Context) error {
	ln, err := m.there.Listen(":0")
	if err != nil {
		return err
	}
	accepted, err := ln.AcceptAsync()
	if err != nil {
		return err
	}
	if m.sender, err = m.here.Dial(ctx, ln.Addr().String()); err != nil {
		accepted.Discard()
		return err
	}
	m.receiver, err = accepted.Await(ctx)
	return err
}

// measure moves the file and prints the time and the statistics.
func (m *mover) measure(ctx context.Context, by way) error {
	m.progress.begin(by)
	clear(m.target.Bytes())
	busy := m.here // the end that posts
	if by == read {
		busy = m.there
	}
	before, start := busy.Stats(), time.Now()
	ops, err := m.move(ctx, by)
	took, after := time.Since(start), busy.Stats()
	m.progress.end()
	if err != nil {
		return err
	}
	after.Doorbells -= before.Doorbells
	after.WorkRequests -= before.WorkRequests
	size := m.source.Len()
	fmt.Fprintf(m.progress.w, "%-14s  %d bytes, %.2f GB/s\n    %d operations, %d doorbells, %.1f work requests per doorbell\n",
		by, size, float64(size)/1e9/took.Seconds(), ops, after.Doorbells, after.WRsPerDoorbell())
	return nil
}

// move returns when all data has arrived, with the number of operations.
func (m *mover) move(ctx context.Context, by way) (ops int, err error) {
	if by == read {
		return m.post(ctx, by)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	received := make(chan error, 1)
	go func() {
		err := m.receive(ctx)
		if err != nil {
			cancel(err) // the poster may be waiting for a receive of this end
		}
		received <- err
	}()
	if ops, err = m.post(ctx, by); err != nil {
		cancel(err)
	}
	if rerr := <-received; err != nil || rerr != nil {
		return ops, context.Cause(ctx) // the first error
	}
	return ops, nil
}

// post keeps depth operations outstanding, and waits for all of them.
func (m *mover) post(ctx context.Context, by way) (ops int, err error) {
	var group futures.Group
	wave := make([]verbena.Future, 0, depth)
	for off := 0; off < m.source.Len(); {
		if err := ctx.Err(); err != nil { // the waits below may never notice it
			return ops, err
		}
		for ; off < m.source.Len() && len(wave) < depth; off += chunk {
			f, err := m.start(ctx, by, off, min(chunk, m.source.Len()-off))
			if err != nil {
				return ops, err
			}
			if err := futures.Add(&group, f); err != nil {
				return ops, err
			}
			wave = append(wave, f)
		}
		if err := group.Wait(ctx); err != nil { // one wake-up
			return ops, err
		}
		for _, f := range wave {
			if _, err, _ := f.Poll(); err != nil {
				return ops, err
			}
			ops++
		}
		if wave = wave[:0]; by == read {
			m.progress.at(min(off, m.source.Len()))
		}
	}
	return ops, nil
}

// start starts the operation that moves n bytes from off.
func (m *mover) start(ctx context.Context, by way, off, n int) (f verbena.Future, err error) {
	local, remote := m.source, m.targetAt
	if by == read {
		local, remote = m.target, m.sourceAt
	}
	part, err := local.Slice(off, n)
	if err != nil {
		return f, err
	}
	if by == send {
		return m.sender.Send(ctx, part)
	}
	if remote, err = remote.At(uint64(off), uint64(n)); err != nil {
		return f, err
	}
	if by == read {
		return m.receiver.Read(ctx, part, remote)
	}
	return m.sender.Start(ctx, new(verbena.WriteOp(part, remote).Imm(uint32(off/chunk))))
}

// receive receives messages until the whole file is there.
func (m *mover) receive(ctx context.Context) error {
	for got := 0; got < m.target.Len(); m.progress.at(got) {
		msg, err := m.receiver.RecvWait(ctx)
		if err != nil {
			return err
		}
		if msg.HasImm {
			got += msg.Written // already in its place
		} else {
			got += copy(m.target.Bytes()[got:], msg.Data)
		}
		if err := msg.Release(); err != nil {
			return err
		}
	}
	return nil
}
