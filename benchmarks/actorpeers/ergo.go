package main

import (
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/ergo-services/ergo"
	"github.com/ergo-services/ergo/etf"
	"github.com/ergo-services/ergo/gen"
	"github.com/ergo-services/ergo/node"
)

// A full mailbox of this library drops messages and logs each. So the mailbox has the largest size, and the senders
// wait while most of it is in use.
const (
	ergoMailbox = 65535
	ergoMost    = 60000
)

type ergoActor struct {
	node    node.Node
	process gen.Process
	to      etf.Pid
	sent    atomic.Int64
	handler *ergoHandler
}

type ergoHandler struct {
	gen.Server
	a       *adder
	handled atomic.Int64
}

// HandleInfo implements gen.ServerBehavior.
func (h *ergoHandler) HandleInfo(*gen.ServerProcess, etf.Term) gen.ServerStatus {
	h.handled.Add(1)
	h.a.told()
	return gen.ServerStatusOK
}

// HandleDirect implements gen.ServerBehavior.
func (h *ergoHandler) HandleDirect(*gen.ServerProcess, etf.Ref, any) (any, gen.DirectStatus) {
	return answer, gen.DirectStatusOK
}

func newErgo(a *adder) (library, error) {
	n, err := ergo.StartNode("verbena@127.0.0.1", "cookie", node.Options{})
	if err != nil {
		return nil, err
	}
	h := &ergoHandler{a: a}
	p, err := n.Spawn("adder", gen.ProcessOptions{MailboxSize: ergoMailbox}, h)
	if err != nil {
		return nil, errors.Join(err, stopErgo(n))
	}
	return &ergoActor{node: n, process: p, to: p.Self(), handler: h}, nil
}

func (l *ergoActor) tell() error {
	for sent := l.sent.Add(1); sent-l.handler.handled.Load() > ergoMost; {
		runtime.Gosched()
	}
	return l.process.Send(l.to, tellText{})
}

func (l *ergoActor) ask() error {
	_, err := l.process.Direct(askText{})
	return err
}

func (l *ergoActor) close() error { return stopErgo(l.node) }

func stopErgo(n node.Node) error {
	n.Stop()
	n.Wait()
	return nil
}
