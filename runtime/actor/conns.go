package actor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/internal/seam"
)

// link is a connection that an actor owns. Runner only.
type link struct {
	conn *verbena.Conn
	tag  uint64
	// waiting counts the events that wait for a message, or for the end of a raw connection. Each of
	// these events is pushed later, with a message or with the error that ended the connection.
	waiting int
	closed  bool // the handler has received ConnClosed
}

// own makes the actor the owner of conn. The actor then gets the messages and the end of conn as
// events, and closes conn. On a managed connection, own requests Options.Receives messages. Runner
// only.
func (a *core) own(conn *verbena.Conn, tag uint64) {
	l := &link{conn: conn, tag: tag}
	a.links = append(a.links, l)
	if conn.Raw() { // the handler posts the receives itself (PostRecvOp)
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

// listen counts an event that begins to wait for a message or for the end of a connection. The
// function heard subtracts an event that no longer waits. Runner only.
func (a *core) listen(l *link) { l.waiting++; a.listening++ }
func (a *core) heard(l *link)  { l.waiting--; a.listening-- }

// ask requests the next message for e. Runner only.
func (a *core) ask(l *link, e *event) {
	e.conn, e.link, e.tag = l.conn, l, l.tag
	e.msg, e.err = verbena.Message{}, nil
	a.listen(l)
	l.conn.RecvTo(e)
}

// linkEvent handles a message or an error of an owned connection. The handler gets the first error
// of the connection as ConnClosed. Later errors are dropped. Runner only.
func (a *core) linkEvent(e *event) {
	l := e.link
	a.heard(l)
	switch {
	case e.err == nil:
		a.dispatch(e)
		if l.closed {
			a.freeEvent(e)
		} else {
			a.ask(l, e)
		}
		return
	case !l.closed:
		l.closed = true
		a.dispatch(e)
		seam.EndConn(l.conn)
	}
	a.freeEvent(e)
	if l.waiting == 0 {
		if i := slices.Index(a.links, l); i >= 0 {
			a.links = slices.Delete(a.links, i, i+1)
		}
	}
}

// connEvent handles the result of Dial or Accept. Runner only.
func (a *core) connEvent(e *event) {
	if e.err == nil && a.phase != up { // the actor is stopping
		a.discardFor(e, ErrStopped)
		return
	}
	if e.err == nil {
		a.own(e.conn, e.tag)
	}
	a.dispatch(e)
	a.freeEvent(e)
}

// connectAsync calls the function find on a new goroutine, and pushes the result as an event. When
// the actor begins to stop or fails, the context of this call ends. Runner only.
func (a *core) connectAsync(tag uint64, find func(ctx context.Context) (*verbena.Conn, error)) error {
	if !a.open() {
		return ErrStopped
	}
	if a.cancelConnects == nil {
		a.seeking, a.cancelConnects = context.WithCancel(a.life.Load())
	}
	ctx, e := a.seeking, a.newEvent(evConn, tag)
	go func() {
		e.conn, e.err = find(ctx)
		a.push(e)
	}()
	return nil
}

// stopConnects cancels the Dial and Accept calls in progress. Runner only.
func (a *core) stopConnects() {
	if a.cancelConnects != nil {
		a.cancelConnects()
		a.seeking, a.cancelConnects = nil, nil
	}
}

// Own makes the actor the owner of conn. The handler gets the messages and the end of conn as
// ConnEvents with the given tag; from a raw connection it gets only the end. The actor closes conn
// after ConnClosed, or when the instance ends. No other code may receive from conn or close it. Any
// goroutine may start operations on conn.
//
// Errors: ErrStopped if the actor is stopping; ErrConfig if conn is nil, or if the actor already
// owns it. If Own returns an error, the owner of conn is unchanged.
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

// Dial connects as Runtime.DialOptions does, but returns at once. The handler gets the result as a
// ConnEvent with the given tag: ConnEstablished if the attempt has succeeded, or ConnFailed with the
// error. After a success the actor owns the connection. When the actor begins to stop, the attempt
// is canceled. Errors: ErrStopped; ErrConfig in a system without a Config.Runtime.
func (c *Context[M]) Dial(addr string, o verbena.Options, tag uint64) error {
	rt := c.cell.sys.cfg.Runtime
	if rt == nil {
		return fmt.Errorf("%w: a system without a Config.Runtime cannot connect", ErrConfig)
	}
	return c.cell.connectAsync(tag, func(ctx context.Context) (*verbena.Conn, error) { return rt.DialOptions(ctx, addr, o) })
}

// Accept accepts one connection of ln. It returns at once and delivers the result as Dial does.
func (c *Context[M]) Accept(ln *verbena.Listener, tag uint64) error {
	if ln == nil {
		return fmt.Errorf("%w: no listener", ErrConfig)
	}
	return c.cell.connectAsync(tag, func(ctx context.Context) (*verbena.Conn, error) {
		conn, err := ln.Accept(ctx)
		if err != nil && ctx.Err() != nil {
			err = errors.Join(ErrStopped, err)
		}
		return conn, err
	})
}
