package outage

import (
	"context"
	"errors"
	"fmt"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Stop ends the load, closes the runtime, and returns the report. Closing the connections ends the
// outstanding operations. Stop blocks until all of them have ended, but not longer than the bounds
// of closing; the report lists the operations that have not ended by then. It may be called once.
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
		open := p.ledger.unended()
		r.Open = open[:min(len(open), most)]
	}
	var err error
	if p.memory != nil {
		err = p.memory.Close()
	}
	if err = errors.Join(err, p.closeRuntime()); err != nil {
		r.Close = err.Error()
	}
	closed := time.Now()
	if at, now := p.removal(); now && !removed { // the device was removed during Stop
		began, r.Removed = at, true
	}
	p.ledger.fill(r)
	r.EndedMS = max(p.ledger.last().Sub(began).Milliseconds(), 0)
	r.ClosedMS = max(closed.Sub(began).Milliseconds(), 0)
	r.Bounds = Bounds{OpMS: p.cfg.Bounds.Op.Milliseconds(), RecvMS: p.cfg.Bounds.Recv.Milliseconds(),
		DialMS: p.cfg.Runtime.ConnectTimeout.Milliseconds(), SlackMS: p.cfg.Bounds.Slack.Milliseconds()}
	return r
}

// hangUp closes the listeners and the datagram connection. Other connections are closed by the
// goroutines that use them.
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

// closing calls f and records it as an operation of KindClose.
func (p *Peer) closing(f func() error) {
	op := p.ledger.begin(KindClose, closeBound)
	_ = p.ledger.end(op, f())
}

// closeRuntime closes the runtime. It may take closeBound, longer than the timeout of its context.
func (p *Peer) closeRuntime() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := p.rt.Close(ctx); err != nil {
		return fmt.Errorf("the runtime: %w", err)
	}
	return nil
}

// hold waits until the connection has failed or the load is over, and then closes the connection. The argument life is
// the connection's operation of KindConn.
func (p *Peer) hold(c *verbena.Conn, life uint64) {
	select {
	case <-c.Done():
		p.over(c.Err())
	case <-p.run.Done():
	}
	_ = p.ledger.end(life, nil) // the operations report the error

	if _, removed := p.removal(); removed { // the runtime then ends the connection by itself
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

// wait waits until ch is closed, at most for d. It reports whether ch was closed.
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
