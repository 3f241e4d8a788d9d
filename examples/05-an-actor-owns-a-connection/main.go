// Command 05-an-actor-owns-a-connection runs an actor that keeps counters in the memory of a
// peer.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/verbena-rdma/verbena/examples/ends"
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

var example = ends.Example{Listen: listen, Serve: server, Dial: client}

func main() { example.Main() }

// listen makes the counters, whose descriptor each client gets when it is accepted.
func listen(rt *verbena.Runtime, addr string) (*verbena.Listener, error) {
	table, err := rt.NewRegion(counters*wordSize, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic)
	if err != nil {
		return nil, err
	}
	words, err := table.Remote(0, table.Len())
	if err != nil {
		return nil, err
	}
	descriptor, err := words.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return rt.ListenOptions(addr, verbena.Options{PrivateData: descriptor})
}

// server closes the connection when the client says goodbye.
func server(ctx context.Context, _ io.Writer, _ *verbena.Runtime, conn *verbena.Conn) error {
	msg, err := conn.RecvWait(ctx)
	if err != nil {
		return err
	}
	return errors.Join(msg.Release(), conn.Close(ctx))
}

// client increments a counter of the server, and says goodbye.
func client(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string, _ []string) (err error) {
	system, err := actor.New(actor.Config{Runtime: rt})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), drain) // ctx may have ended
		defer cancel()
		err = errors.Join(err, system.Close(ctx)) // before its runtime
	}()
	conn, err := rt.Dial(ctx, addr)
	if err != nil {
		return err
	}
	k := &keeper{w: w, conn: conn, asked: map[uint64]actor.Reply[uint64]{}}
	if err := k.words.UnmarshalBinary(conn.PrivateData()); err != nil { // it comes from the peer and is untrusted
		return err
	}
	ref, err := actor.Spawn(system, actor.Options{On: actor.OnReactor}, func() actor.Handler[add] { return k })
	if err != nil {
		return err
	}
	for _, by := range []uint64{3, 4, 5} {
		was, err := actor.AskWait(ctx, ref, func(r actor.Reply[uint64]) add { return add{1, by, r} })
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "counter 1 was %d, is %d\n", was, was+by)
	}
	goodbye, err := conn.SendBytes(ctx, []byte("goodbye"))
	if err != nil {
		return err
	}
	goodbye.Discard() // the server may close before its device acknowledges it
	select {          // the server closes: the actor is notified, and ends
	case <-ref.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	fmt.Fprintf(w, "telling it once more: %v\n", ref.Tell(ctx, add{}))
	return nil
}
