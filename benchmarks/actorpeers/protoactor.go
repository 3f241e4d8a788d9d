package main

import (
	"io"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"
)

type protoActor struct {
	system *actor.ActorSystem
	pid    *actor.PID
}

func newProtoActor(a *adder) (library, error) {
	quiet := actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) })
	l := &protoActor{system: actor.NewActorSystem(quiet)}
	l.pid = l.system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch c.Message().(type) {
		case tellText:
			a.told()
		case askText:
			c.Respond(answer)
		}
	}))
	return l, nil
}

func (l *protoActor) tell() error {
	l.system.Root.Send(l.pid, tellText{})
	return nil
}

func (l *protoActor) ask() error {
	_, err := l.system.Root.RequestFuture(l.pid, askText{}, patience).Result()
	return err
}

func (l *protoActor) close() error {
	err := l.system.Root.StopFuture(l.pid).Wait()
	l.system.Shutdown()
	return err
}
