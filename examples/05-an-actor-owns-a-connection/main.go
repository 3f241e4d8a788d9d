// Command 05-an-actor-owns-a-connection runs an actor that keeps counters in the memory of a
// peer.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/actor"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	counters, wordSize = 8, 8
	drain              = 5 * time.Second // time limit for closing
)

// add increments a counter; the answer is its previous value.
type add struct {
	counter int
	by      uint64
	reply   actor.Reply[uint64]
}

// keeper is the actor. Its methods are called one at a time, so it needs no lock.
type keeper struct {
	w     io.Writer
	conn  *verbena.Conn
	words verbena.Remote
	asked map[uint64]actor.Reply[uint64] // outstanding, by tag
	tag   uint64
}

// Started takes ownership of the connection: it ends with the actor.
func (k *keeper) Started(ctx *actor.Context[add]) error { return ctx.Own(k.conn, 0) }

// Receive starts an operation and returns without waiting.
func (k *keeper) Receive(ctx *actor.Context[add], m add) {
	word, err := k.words.At(uint64(m.counter)*wordSize, wordSize)
	if err == nil {
		k.tag++
		err = ctx.Start(k.conn, k.tag, verbena.FetchAndAddOp(word, m.by))
	}
	if err != nil { // nothing was started: there will be no completion
		m.reply.Fail(err)
		return
	}
	k.asked[k.tag] = m.reply
}

// Completed receives the result of an operation, as a message.
func (k *keeper) Completed(_ *actor.Context[add], c actor.Completion) {
	reply := k.asked[c.Tag]
	delete(k.asked, c.Tag)
	if c.Err != nil {
		reply.Fail(c.Err)
	}
	reply.Send(c.Result.Value) // no effect after Fail
}

// Connection receives messages, and the end of the connection.
func (k *keeper) Connection(ctx *actor.Context[add], ev actor.ConnEvent) {
	if ev.Kind == actor.ConnClosed {
		fmt.Fprintf(k.w, "keeper: the connection has ended: %v\n", ev.Err)
		ctx.Stop() // pending questions fail
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, 3, 4, 5)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "an-actor-owns-a-connection:", err)
		os.Exit(1)
	}
}

// run increments a counter of a server by each of the numbers.
func run(ctx context.Context, w io.Writer, numbers ...uint64) (err error) {
	server, err := verbena.Open(verbena.Config{})
	if err != nil {
		return err
	}
	defer shut(server.Close, &err)
	table, err := server.NewRegion(counters*wordSize, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic)
	if err != nil {
		return err
	}
	words, err := table.Remote(0, table.Len())
	if err != nil {
		return err
	}
	ln, err := server.Listen(":0")
	if err != nil {
		return err
	}
	accepted, err := ln.AcceptAsync()
	if err != nil {
		return err
	}
	client, err := verbena.Open(verbena.Config{})
	if err != nil {
		return err
	}
	defer shut(client.Close, &err)
	system, err := actor.New(actor.Config{Runtime: client})
	if err != nil {
		return err
	}
	defer shut(system.Close, &err) // before its runtime
	conn, err := client.Dial(ctx, ln.Addr().String())
	if err != nil {
		return err
	}
	k := &keeper{w: w, conn: conn, words: words, asked: map[uint64]actor.Reply[uint64]{}}
	ref, err := actor.Spawn(system, actor.Options{On: actor.OnReactor}, func() actor.Handler[add] { return k })
	if err != nil {
		return err
	}
	for _, by := range numbers {
		was, err := actor.AskWait(ctx, ref, func(r actor.Reply[uint64]) add { return add{1, by, r} })
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "counter 1 was %d, is %d\n", was, was+by)
	}
	served, err := accepted.Await(ctx)
	if err != nil {
		return err
	}
	served.Abort() // the server closes: the actor is notified, and ends
	<-ref.Done()
	fmt.Fprintf(w, "telling it once more: %v\n", ref.Tell(ctx, add{}))
	return nil
}

// shut closes a runtime or system, also after ctx ended.
func shut(closing func(context.Context) error, err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	*err = errors.Join(*err, closing(ctx))
}
