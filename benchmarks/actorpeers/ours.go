package main

import (
	"context"

	"github.com/verbena-rdma/verbena/runtime/actor"
)

// mailbox is the size of the mailboxes that are bounded.
const mailbox = 1024

// message is a message to our actor: a question if it has a reply.
type message struct {
	reply actor.Reply[int]
	asks  bool
}

type verbenaActor struct {
	sys *actor.System
	ref actor.Ref[message]
}

type verbenaHandler struct{ a *adder }

// Receive implements actor.Handler.
func (h verbenaHandler) Receive(_ *actor.Context[message], m message) {
	if m.asks {
		m.reply.Send(answer)
		return
	}
	h.a.told()
}

func newOurs(a *adder) (library, error) {
	sys, err := actor.New(actor.Config{})
	if err != nil {
		return nil, err
	}
	l := &verbenaActor{sys: sys}
	l.ref, err = actor.Spawn(sys, actor.Options{Mailbox: mailbox, Overflow: actor.Wait}, func() actor.Handler[message] { return verbenaHandler{a} })
	return l, err
}

func (l *verbenaActor) tell() error { return l.ref.Tell(context.Background(), message{}) }

func question(r actor.Reply[int]) message { return message{r, true} }

func (l *verbenaActor) ask() error {
	_, err := actor.AskWait(context.Background(), l.ref, question)
	return err
}

func (l *verbenaActor) close() error { return l.sys.Close(context.Background()) }
