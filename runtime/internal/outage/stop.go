package outage

import (
	"context"
	"errors"
	"fmt"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Stop ends the load, closes the runtime, and reports. Operations under way end by
// their connection's being closed. It blocks until all have ended, at most as long
// as the bounds of closing say; what has not ended then is in the report. Once.
func (p *Peer) Stop() *Report {
	began, removed := p.removal()
	if !removed {
		began = time.Now()
	}
	p.finish()
	p.hangUp()
	ended := make(chan struct{})
	go func() { p.all.Wait(); close(ended) }()
	r := &Report{Device: p.rt.Device().Name, Removed: removed}
	if !wait(ended, closeBound+p.cfg.Bounds.Slack) {
		r.Open = p.ledger.unended()
	}
	var err error
	if p.memory != nil {
		err = p.memory.Close()
	}
	if err = errors.Join(err, p.closeRuntime()); err != nil {
		r.Close = err.Error()
	}
	closed := time.Now()
	if at, now := p.removal(); now && !removed { // it was told while all was closed
		began, r.Removed = at, true
	}
	p.ledger.fill(r)
	r.EndedMS = max(p.ledger.last().Sub(began).Milliseconds(), 0)
	r.ClosedMS = max(closed.Sub(began).Milliseconds(), 0)
	r.Bounds = Bounds{OpMS: p.cfg.Bounds.Op.Milliseconds(), RecvMS: p.cfg.Bounds.Recv.Milliseconds(),
		DialMS: p.cfg.Runtime.ConnectTimeout.Milliseconds(), SlackMS: p.cfg.Bounds.Slack.Milliseconds()}
	return r
}

// hangUp closes what others come to; connections are closed by who uses them.
func (p *Peer) hangUp() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	for _, l := range p.listeners {
		p.closing(func() error { return l.Close(ctx) })
	}
	if p.plain != nil {
		p.closing(p.plain.Close)
	}
	if p.packet != nil {
		p.closing(func() error { return p.packet.Close(ctx) })
	}
}

// closing records the closing of something.
func (p *Peer) closing(f func() error) {
	op := p.ledger.begin(KindClose, closeBound)
	_ = p.ledger.end(op, f())
}

// closeRuntime closes the runtime; it waits for its own ctx and what Close goes on for.
func (p *Peer) closeRuntime() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := p.rt.Close(ctx); err != nil {
		return fmt.Errorf("the runtime: %w", err)
	}
	return nil
}

// hold keeps a connection until it has failed or the load is over, then closes it.
func (p *Peer) hold(c *verbena.Conn) {
	select {
	case <-c.Done():
		p.over(c.Err())
	case <-p.run.Done():
	}
	if _, removed := p.removal(); removed { // the runtime ends it, whoever was told first
		op := p.ledger.begin(KindEnd, RemovalBound)
		if wait(c.Done(), RemovalBound+p.cfg.Bounds.Slack) {
			_ = p.ledger.end(op, nil)
		}
	}
	p.closing(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		return c.Close(ctx)
	})
}

// wait waits for ch, at most d, and tells whether it came.
func wait(ch <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ch:
		return true
	case <-t.C:
		return false
	}
}
