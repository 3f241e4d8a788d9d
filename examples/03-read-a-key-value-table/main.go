// Command 03-read-a-key-value-table looks up keys in a server's memory by READ.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/verbena-rdma/verbena/examples/ends"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	// A bucket: xxhash of the following bytes (8 bytes, little-endian), length of the key (1), of
	// the value (1), key, value, zeros. All zeros: it is empty.
	bucketSize, bucketHead = 64, 10
	keys, buckets          = 1000, 2048 // twice as many as keys: few collisions
	probes, tries          = 64, 10     // buckets that may hold a key, from the one that its hash selects; READs of a torn one
)

var errTorn = errors.New("the bucket's hash does not match its content")

var example = ends.Example{Listen: listen, Serve: server, Dial: client}

func main() { example.Main() }

// listen fills a table, whose descriptor each client gets when it is accepted.
func listen(rt *verbena.Runtime, addr string) (*verbena.Listener, error) {
	region, err := rt.NewRegion(buckets*bucketSize, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	if err != nil {
		return nil, err
	}
	for i := range keys {
		if err := put(region.Bytes(), fmt.Sprintf("key-%d", i), fmt.Sprintf("value of %d", i)); err != nil {
			return nil, err
		}
	}
	remote, err := region.Remote(0, region.Len())
	if err != nil {
		return nil, err
	}
	descriptor, err := remote.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return rt.ListenOptions(addr, verbena.Options{PrivateData: descriptor})
}

// server has nothing to do: the device serves the READs.
func server(context.Context, io.Writer, *verbena.Runtime, *verbena.Conn) error { return nil }

// client connects and looks up.
func client(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string, _ []string) (err error) {
	conn, err := rt.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return lookUp(ctx, w, rt, conn)
}

// lookUp looks up all keys, and one that the table does not have.
func lookUp(ctx context.Context, w io.Writer, rt *verbena.Runtime, conn *verbena.Conn) error {
	var remote verbena.Remote
	if err := remote.UnmarshalBinary(conn.PrivateData()); err != nil { // it comes from the peer and is untrusted
		return err
	}
	table := conn.At(ctx, remote) // each ReadAt of a bucket is a READ
	for i := range keys + 1 {
		key := fmt.Sprintf("key-%d", i)
		value, ok, err := get(table, table.Size(), key)
		if err != nil {
			return fmt.Errorf("looking up %s: %w", key, err)
		}
		if want := fmt.Sprintf("value of %d", i); ok != (i < keys) || ok && value != want {
			return fmt.Errorf("%s is %q, found: %t", key, value, ok)
		}
		if i == 7 || i >= keys-1 {
			fmt.Fprintf(w, "%s: %q, found: %t\n", key, value, ok)
		}
	}
	fmt.Fprintf(w, "%d look-ups took %d READs\n", keys+1, rt.Stats().WorkRequests)
	return nil
}

// put runs on the server: it writes into its own memory.
func put(table []byte, key, value string) error {
	if key == "" || bucketHead+len(key)+len(value) > bucketSize {
		return fmt.Errorf("%q with %d bytes does not fit a bucket", key, len(value))
	}
	b, n, first := make([]byte, bucketSize), uint64(len(table)/bucketSize), xxhash.Sum64String(key)
	b[8], b[9] = byte(len(key)), byte(len(value))
	copy(b[bucketHead:], key+value)
	binary.LittleEndian.PutUint64(b, xxhash.Sum64(b[8:]))
	for i := range min(n, probes) {
		at := table[(first+i)%n*bucketSize:][:bucketSize]
		if has, _, err := parse(at); err == nil && (has == "" || has == key) {
			copy(at, b) // a READ may come in between: the hash detects it
			return nil
		}
	}
	return fmt.Errorf("no free bucket for %q", key)
}

// get runs on the client: one READ, or some more after collisions.
func get(table io.ReaderAt, size int64, key string) (value string, ok bool, err error) {
	b, n, first := make([]byte, bucketSize), uint64(size)/bucketSize, xxhash.Sum64String(key)
	for i := range min(n, probes) {
		var has string
		for try := 0; try == 0 || errors.Is(err, errTorn) && try < tries; try++ {
			if _, err = table.ReadAt(b, int64((first+i)%n*bucketSize)); err == nil {
				has, value, err = parse(b)
			}
		}
		if err != nil || has == "" || has == key {
			return value, has != "" && err == nil, err
		}
	}
	return "", false, nil
}

// parse reads a bucket, which may come from a peer. An empty one has no key.
func parse(b []byte) (key, value string, err error) {
	hash, k, v := binary.LittleEndian.Uint64(b), int(b[8]), int(b[9])
	if hash == 0 && k == 0 && v == 0 {
		return "", "", nil
	}
	if k == 0 || bucketHead+k+v > bucketSize || hash != xxhash.Sum64(b[8:]) {
		return "", "", errTorn
	}
	return string(b[bucketHead:][:k]), string(b[bucketHead+k:][:v]), nil
}
