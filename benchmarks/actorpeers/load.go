package main

import (
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// library is an actor of one library that counts the messages which it is told, and answers questions.
type library interface {
	// tell sends a message to the actor, and waits for room in its mailbox if there is none.
	tell() error
	// ask asks the actor and waits for the answer.
	ask() error
	close() error
}

// names are the names of the libraries, ours first.
var names = []string{ours, "hollywood", "protoactor", "ergo", "goakt"}

const ours = "ours"

// libraries maps the names to functions that start an actor whose handler is a.
var libraries = map[string]func(a *adder) (library, error){
	ours: newOurs, "hollywood": newHollywood, "protoactor": newProtoActor, "ergo": newErgo, "goakt": newGoAkt,
}

// adder is the handler. It signals when it has handled as many messages as a round has.
type adder struct {
	left int
	done chan struct{}
}

func (a *adder) told() {
	if a.left--; a.left == 0 {
		a.done <- struct{}{}
	}
}

// answer is the answer to every question. Boxing it allocates nothing, which is in favor of the libraries whose
// messages are of type any.
const answer = 1

// load implements suite.Load.
type load struct {
	library
	adder   *adder
	senders int
	asks    bool
}

func (l *load) Round(n int, _ rounds.Values) error {
	if l.asks {
		for range n {
			if err := l.ask(); err != nil {
				return err
			}
		}
		return nil
	}
	l.adder.left = n
	if err := suite.Spread(l.senders, n, l.tell); err != nil {
		return err
	}
	<-l.adder.done
	return nil
}

// Close implements suite.Load.
func (l *load) Close() error { return l.close() }
