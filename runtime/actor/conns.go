package actor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/internal/seam"
)

// link is a connection of the actor's own. The runner's.
type link struct {
	conn *verbena.Conn
	tag  uint64
	// waiting are events that wait for a message, or for a raw connection's end.
	// They all come: with messages, and at the end with the cause.
	waiting int
	closed  bool // the handler was told
}

// own makes conn the actor's: it gets its messages and its end, and closes it. On a
// managed connection Options.Receives messages are asked for.
func (a *core) own(conn *verbena.Conn, tag uint64) {
	l := &link{conn: conn, tag: tag}
	a.links = append(a.links, l)
	if conn.Raw() { // its messages are the handler's affair (PostRecvOp)
		e := a.newEvent(evMessage, tag)
		e.conn, e.link = conn, l
		a.listen(l)
		go func() {
			<-conn.Done()
			e.Received(verbena.Message{}, conn.Err())
		}()
		return
	}
	for range a.opt.Receives {
		a.ask(l, a.newEvent(evMessage, tag))
	}
}

// listen and heard count events that wait. Runner only.
func (a *core) listen(l *link) { l.waiting++; a.listening++ }
func (a *core) heard(l *link)  { l.waiting--; a.listening-- }

// ask has e get the next message. Runner only.
func (a *core) ask(l *link, e *event) {
	e.conn, e.link, e.tag = l.conn, l, l.tag
	e.msg, e.err = verbena.Message{}, nil
	a.listen(l)
	l.conn.RecvTo(e)
}

// linkEvent handles a message, or the end of a connection: the first of its
// waiting events that brings an error. Runner only.
func (a *core) linkEvent(e *event) {
	l := e.link
	a.heard(l)
	switch {
	case e.err == nil:
		a.hand(e)
		if l.closed {
			a.freeEvent(e)
		} else {
			a.ask(l, e)
		}
		return
	case !l.closed:
		l.closed = true
		a.hand(e)
		seam.EndConn(l.conn)
	}
	a.freeEvent(e)
	if l.waiting == 0 {
		if i := slices.Index(a.links, l); i >= 0 {
			a.links = slices.Delete(a.links, i, i+1)
		}
	}
}

// connEvent handles what Dial or Accept came to. Runner only.
func (a *core) connEvent(e *event) {
	if e.err == nil && a.phase != up { // it was being given up
		a.discardFor(e, ErrStopped)
		return
	}
	if e.err == nil {
		a.own(e.conn, e.tag)
	}
	a.hand(e)
	a.freeEvent(e)
}

// seek runs find on a goroutine of its own until it comes to something; its context
// ends when the actor is to stop. Runner only.
func (a *core) seek(tag uint64, find func(ctx context.Context) (*verbena.Conn, error)) error {
	if !a.open() {
		return ErrStopped
	}
	if a.giveUp == nil {
		a.seeking, a.giveUp = context.WithCancel(a.life)
	}
	ctx, e := a.seeking, a.newEvent(evConn, tag)
	go func() {
		e.conn, e.err = find(ctx)
		a.push(e)
	}()
	return nil
}

// stopSeeking gives up what Dial and Accept have not come to. Runner only.
func (a *core) stopSeeking() {
	if a.giveUp != nil {
		a.giveUp()
		a.seeking, a.giveUp = nil, nil
	}
}

// Own makes conn the actor's own: its messages and its end come as ConnEvents with
// tag, and it is closed when they end, or with the instance. Nobody else may
// receive from it or close it; operations may be started by anybody. A raw
// connection has no messages, only its end.
//
// Errors: ErrStopped when the actor is to stop, ErrConfig for none, or one that is the
// actor's own already: conn stays whose it was.
func (c *Context[M]) Own(conn *verbena.Conn, tag uint64) error {
	a := &c.cell.core
	if conn == nil {
		return fmt.Errorf("%w: no connection", ErrConfig)
	}
	if slices.ContainsFunc(a.links, func(l *link) bool { return l.conn == conn }) {
		return fmt.Errorf("%w: the connection to %v is the actor's own already", ErrConfig, conn.RemoteAddr())
	}
	if !a.open() {
		return ErrStopped
	}
	a.own(conn, tag)
	return nil
}

// Dial connects as Runtime.DialOptions does. It returns at once; the connection
// comes as ConnEstablished with tag and is the actor's own, or ConnFailed says why not.
// It is given up when the actor is to stop. Errors: ErrStopped, ErrConfig without
// a runtime.
func (c *Context[M]) Dial(addr string, o verbena.Options, tag uint64) error {
	rt := c.cell.sys.cfg.Runtime
	if rt == nil {
		return fmt.Errorf("%w: a system without a Config.Runtime cannot connect", ErrConfig)
	}
	return c.cell.seek(tag, func(ctx context.Context) (*verbena.Conn, error) { return rt.DialOptions(ctx, addr, o) })
}

// Accept accepts one connection; as Dial.
func (c *Context[M]) Accept(ln *verbena.Listener, tag uint64) error {
	if ln == nil {
		return fmt.Errorf("%w: no listener", ErrConfig)
	}
	return c.cell.seek(tag, func(ctx context.Context) (*verbena.Conn, error) {
		conn, err := ln.Accept(ctx)
		if err != nil && ctx.Err() != nil {
			err = errors.Join(ErrStopped, err)
		}
		return conn, err
	})
}
