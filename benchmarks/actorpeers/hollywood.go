package main

import (
	"time"

	"github.com/anthdm/hollywood/actor"
)

// patience bounds the wait for an answer, where a library wants a bound.
const patience = 10 * time.Second

// tellText and askText are the messages of the libraries whose messages are of type any. Boxing them allocates nothing.
type (
	tellText struct{}
	askText  struct{}
)

type hollywoodActor struct {
	engine *actor.Engine
	pid    *actor.PID
}

type hollywoodHandler struct{ a *adder }

// Receive implements actor.Receiver.
func (h hollywoodHandler) Receive(c *actor.Context) {
	switch c.Message().(type) {
	case tellText:
		h.a.told()
	case askText:
		c.Respond(answer)
	}
}

func newHollywood(a *adder) (library, error) {
	e, err := actor.NewEngine(actor.NewEngineConfig())
	if err != nil {
		return nil, err
	}
	return &hollywoodActor{e, e.Spawn(func() actor.Receiver { return hollywoodHandler{a} }, "adder", actor.WithInboxSize(mailbox))}, nil
}

func (l *hollywoodActor) tell() error {
	l.engine.Send(l.pid, tellText{})
	return nil
}

func (l *hollywoodActor) ask() error {
	_, err := l.engine.Request(l.pid, askText{}, patience).Result()
	return err
}

func (l *hollywoodActor) close() error {
	<-l.engine.Poison(l.pid).Done()
	return nil
}
