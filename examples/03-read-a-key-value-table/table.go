package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// A bucket, numbers little-endian. An empty one is all zeros.
//
//	0          8     9       10
//	┌──────────┬─────┬───────┬─────┬───────┬───────┐
//	│xxhash64  │len  │len of │key  │value  │zeros  │
//	│of the    │of   │value  │     │       │       │
//	│rest      │key  │       │     │       │       │
//	└──────────┴─────┴───────┴─────┴───────┴───────┘
//
// A key is in the bucket that its hash names, or in the next free one. The hash
// in the bucket finds one that was read while it was written: read it again.
const (
	bucketSize = 64
	bucketHead = 10
)

var (
	errFull = errors.New("the table is full")
	errTorn = errors.New("the bucket's hash does not match its content")
)

// put is the server's: it writes into its own memory.
func put(table []byte, key, value string) error {
	if key == "" || bucketHead+len(key)+len(value) > bucketSize {
		return fmt.Errorf("%q with %d bytes does not fit a bucket", key, len(value))
	}
	n := uint64(len(table) / bucketSize)
	for i, first := uint64(0), xxhash.Sum64String(key); i < n; i++ {
		b := table[(first+i)%n*bucketSize:][:bucketSize]
		if has, _, err := parse(b); err != nil || has != "" && has != key {
			continue
		}
		clear(b)
		b[8], b[9] = byte(len(key)), byte(len(value))
		copy(b[bucketHead:], key+value)
		binary.LittleEndian.PutUint64(b, xxhash.Sum64(b[8:]))
		return nil
	}
	return fmt.Errorf("%w: no bucket for %q", errFull, key)
}

// parse reads a bucket, which may come from a peer. The key of an empty one is
// "".
func parse(b []byte) (key, value string, err error) {
	k, v := int(b[8]), int(b[9])
	switch {
	case k == 0 && v == 0 && binary.LittleEndian.Uint64(b) == 0:
		return "", "", nil
	case k == 0 || bucketHead+k+v > bucketSize, binary.LittleEndian.Uint64(b) != xxhash.Sum64(b[8:]):
		return "", "", errTorn
	}
	return string(b[bucketHead:][:k]), string(b[bucketHead+k:][:v]), nil
}

// table is the client's view of the server's memory.
type table struct {
	conn  *verbena.Conn
	at    verbena.Remote
	buf   verbena.Buffer // one bucket
	reads int
}

// retries is how often a bucket is read that is being written.
const retries = 10

// get looks a key up: one READ, or some more where buckets were taken.
func (t *table) get(ctx context.Context, key string) (value string, ok bool, err error) {
	n := t.at.Length / bucketSize
	for i, first := uint64(0), xxhash.Sum64String(key); i < n; i++ {
		var has string
		for try := 0; ; try++ {
			has, value, err = t.bucket(ctx, (first+i)%n)
			if !errors.Is(err, errTorn) || try == retries {
				break
			}
		}
		switch {
		case err != nil:
			return "", false, err
		case has == key:
			return value, true, nil
		case has == "":
			return "", false, nil
		}
	}
	return "", false, nil
}

// bucket reads bucket i.
func (t *table) bucket(ctx context.Context, i uint64) (key, value string, err error) {
	from, err := t.at.At(i*bucketSize, bucketSize)
	if err != nil {
		return "", "", err
	}
	f, err := t.conn.Read(ctx, t.buf.Slice(), from)
	if err != nil {
		return "", "", err
	}
	if _, err := f.Await(ctx); err != nil {
		return "", "", err
	}
	t.reads++
	return parse(t.buf.Bytes())
}
