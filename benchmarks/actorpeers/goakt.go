package main

import (
	"context"
	"errors"

	"github.com/tochemey/goakt/v3/actor"
	"github.com/tochemey/goakt/v3/log"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The messages of goakt are protocol buffers; they are made once.
var (
	goaktTell   = new(emptypb.Empty)
	goaktAsk    = wrapperspb.Int64(0)
	goaktAnswer = wrapperspb.Int64(answer)
)

type goaktActor struct {
	system actors.ActorSystem
	pid    *actors.PID
}

type goaktHandler struct{ a *adder }

// PreStart implements actor.Actor.
func (h goaktHandler) PreStart(context.Context) error { return nil }

// PostStop implements actor.Actor.
func (h goaktHandler) PostStop(context.Context) error { return nil }

// Receive implements actor.Actor.
func (h goaktHandler) Receive(c *actors.ReceiveContext) {
	switch c.Message().(type) {
	case *emptypb.Empty:
		h.a.told()
	case *wrapperspb.Int64Value:
		c.Response(goaktAnswer)
	}
}

func newGoAkt(a *adder) (library, error) {
	ctx := context.Background()
	s, err := actors.NewActorSystem("verbena", actors.WithLogger(log.DiscardLogger), actors.WithPassivationDisabled())
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	pid, err := s.Spawn(ctx, "adder", goaktHandler{a})
	if err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return &goaktActor{s, pid}, nil
}

func (l *goaktActor) tell() error { return actors.Tell(context.Background(), l.pid, goaktTell) }

func (l *goaktActor) ask() error {
	_, err := actors.Ask(context.Background(), l.pid, goaktAsk, patience)
	return err
}

func (l *goaktActor) close() error { return l.system.Stop(context.Background()) }
