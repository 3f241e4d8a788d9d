// Command 03-read-a-key-value-table looks up keys in the memory of a server
// whose program does nothing for it.
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
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	buckets = 2048            // twice as many as keys: probes are short
	keys    = 1000            // that the server knows
	drain   = 5 * time.Second // what closing may take
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "read-a-key-value-table:", err)
		os.Exit(1)
	}
}

// run fills a table at the server and looks everything up from the client.
func run(ctx context.Context, w io.Writer) (err error) {
	server, err := verbena.Open(verbena.Config{Device: "soft1"})
	if err != nil {
		return err
	}
	defer shut(server, &err)
	client, err := verbena.Open(verbena.Config{Device: "soft0"})
	if err != nil {
		return err
	}
	defer shut(client, &err)
	region, err := server.NewRegion(buckets*bucketSize, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	if err != nil {
		return err
	}
	for i := range keys {
		if err := put(region.Bytes(), fmt.Sprintf("key-%d", i), fmt.Sprintf("value of %d", i)); err != nil {
			return err
		}
	}
	ln, err := server.Listen("127.0.0.2:0")
	if err != nil {
		return err
	}
	published := make(chan error, 1)
	go func() { published <- publish(ctx, ln, region) }()
	conn, err := client.Dial(ctx, ln.Addr().String())
	if err == nil {
		err = look(ctx, w, client, conn, server)
	}
	if err != nil {
		shut(server, &err) // publish may wait for a client that did not come
	}
	return errors.Join(err, <-published)
}

// publish is all that the server does: it sends the table's descriptor.
func publish(ctx context.Context, ln *verbena.Listener, region *verbena.Region) error {
	conn, err := ln.Accept(ctx)
	if err != nil {
		return fmt.Errorf("accepting: %w", err)
	}
	remote, err := region.Remote(0, region.Len())
	if err != nil {
		return err
	}
	descriptor, err := remote.MarshalBinary()
	if err != nil {
		return err
	}
	sent, err := conn.SendBytes(ctx, descriptor)
	if err != nil {
		return err
	}
	_, err = sent.Await(ctx)
	return err
}

// look is the client: it takes the descriptor and looks up keys.
func look(ctx context.Context, w io.Writer, rt *verbena.Runtime, conn *verbena.Conn, server *verbena.Runtime) error {
	msg, err := conn.RecvWait(ctx)
	if err != nil {
		return err
	}
	t := table{conn: conn}
	if err := errors.Join(t.at.UnmarshalBinary(msg.Data), msg.Release()); err != nil {
		return err
	}
	if t.buf, err = rt.Alloc(bucketSize); err != nil {
		return err
	}
	defer t.buf.Release() // while a READ is under way it stays the device's
	fmt.Fprintf(w, "the table has %d buckets of %d bytes\n", t.at.Length/bucketSize, bucketSize)
	for _, key := range []string{"key-7", "key-999", "key-1000"} {
		value, ok, err := t.get(ctx, key)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: %q, found: %t\n", key, value, ok)
	}
	before := server.Stats()
	t.reads = 0
	for i := range keys {
		value, ok, err := t.get(ctx, fmt.Sprintf("key-%d", i))
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("value of %d", i); !ok || value != want {
			return fmt.Errorf("key-%d is %q (found: %t), want %q", i, value, ok, want)
		}
	}
	after := server.Stats() // in one process one can look at the other side
	fmt.Fprintf(w, "%d look-ups took %d READs; the server's reactor got %d completions\n",
		keys, t.reads, after.Polled-before.Polled)
	return nil
}

// shut closes a runtime and all that is its, also after ctx ended.
func shut(rt *verbena.Runtime, err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	*err = errors.Join(*err, rt.Close(ctx))
}
