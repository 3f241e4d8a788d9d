package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/verbena-rdma/verbena/examples/internal/process"
	"github.com/verbena-rdma/verbena/internal/leak"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

func TestMain(m *testing.M) {
	process.Main(main, leak.Take)
	leak.Main(m)
}

const printed = `key-7: "value of 7", found: true
key-999: "value of 999", found: true
key-1000: "", found: false
1001 look-ups took 1453 READs
`

// quiet is how long a connection may be idle before its runtime probes the peer, which is a
// completion of its own: seconds at least.
const quiet = time.Second

// Rule: all keys are found with their values, a missing one is not found, and the server's CPU
// takes no part. Hashes place the keys, so the number of READs is constant.
func TestLookUps(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	var server *verbena.Runtime
	x := example
	x.Listen = func(rt *verbena.Runtime, addr string) (*verbena.Listener, error) {
		server = rt
		return listen(rt, addr)
	}
	x.Dial = func(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string, _ []string) error {
		conn, err := rt.Dial(ctx, addr)
		if err != nil {
			return err
		}
		start, before := time.Now(), server.Stats().Polled
		err = lookUp(ctx, w, rt, conn)
		probes := uint64(time.Since(start) / quiet) // 0 on any device but a very slow one
		if n := server.Stats().Polled - before; n > probes {
			t.Errorf("the server got %d completions, want at most %d", n, probes)
		}
		return errors.Join(err, conn.Close(ctx))
	}
	if err := x.Run(ctx, &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != printed {
		t.Errorf("printed\n%swant\n%s", &out, printed)
	}
}

// Rule: the server and the client are two processes, and all clients read the same table.
func TestTwoProcesses(t *testing.T) {
	server := process.Serve(t)
	for range 2 {
		if got := server.Dial(); got != printed {
			t.Errorf("the client printed\n%swant\n%s", got, printed)
		}
	}
	if got := server.Stop(); got != "" {
		t.Errorf("the server printed %q", got)
	}
}

// Rule: a context that has ended ends the example.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := example.Run(ctx, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
}

// Rule: keys go to their bucket or the next free one until none is left; an existing key is
// replaced.
func TestPut(t *testing.T) {
	mem := make([]byte, 8*bucketSize)
	for i := range 8 {
		for _, value := range []string{"old", "new"} {
			if err := put(mem, fmt.Sprintf("key-%d", i), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := map[string]bool{}
	for i := range 8 {
		key, value, err := parse(mem[i*bucketSize:][:bucketSize])
		if err != nil || value != "new" {
			t.Errorf("bucket %d holds %q: %q, %v", i, key, value, err)
		}
		seen[key] = true
	}
	if len(seen) != 8 {
		t.Errorf("8 keys are in %d buckets: %v", len(seen), seen)
	}
	if err := put(mem, "one more", ""); err == nil || !strings.Contains(err.Error(), "no free bucket") {
		t.Errorf("a ninth key in 8 buckets: %v", err)
	}
	for i := range 8 {
		key := fmt.Sprintf("key-%d", i)
		if value, ok, err := get(bytes.NewReader(mem), int64(len(mem)), key); value != "new" || !ok || err != nil {
			t.Errorf("%s in a full table: %q, found: %t, %v", key, value, ok, err)
		}
	}
	if value, ok, err := get(bytes.NewReader(mem), int64(len(mem)), "one more"); value != "" || ok || err != nil {
		t.Errorf("a key that a full table has not: %q, found: %t, %v", value, ok, err)
	}
	if err := put(mem, strings.Repeat("k", bucketSize-bucketHead), "v"); err == nil {
		t.Error("a pair larger than a bucket was taken")
	}
}

// Rule: a bucket read during a change is refused, at any position of the cut.
func TestTornBucket(t *testing.T) {
	before, after := make([]byte, bucketSize), make([]byte, bucketSize)
	if err := errors.Join(put(before, "key", "the old value"), put(after, "key", "another value")); err != nil {
		t.Fatal(err)
	}
	end := bucketHead + len("key") + len("the old value")
	for cut := 1; cut < end; cut++ {
		torn := append(append([]byte(nil), after[:cut]...), before[cut:]...)
		if bytes.Equal(torn, before) || bytes.Equal(torn, after) {
			continue
		}
		if key, value, err := parse(torn); !errors.Is(err, errTorn) {
			t.Errorf("cut at %d: %q: %q, %v, want errTorn", cut, key, value, err)
		}
	}
}

// changing is a table of one bucket that is being written: a look-up reads it torn a number of
// times, and whole from then on.
type changing struct {
	torn  int
	reads int
	whole []byte
}

func (c *changing) ReadAt(b []byte, off int64) (int, error) {
	c.reads++
	n := copy(b, c.whole[off:])
	if c.reads <= c.torn {
		b[n-1] ^= 1
	}
	return n, nil
}

// Rule: a torn bucket is read again, up to the limit.
func TestReadsTornBucketsAgain(t *testing.T) {
	whole := make([]byte, bucketSize)
	if err := put(whole, "key", "value"); err != nil {
		t.Fatal(err)
	}
	for torn := range tries + 1 {
		c := &changing{torn: torn, whole: whole}
		value, ok, err := get(c, bucketSize, "key")
		switch {
		case torn < tries && (value != "value" || !ok || err != nil || c.reads != torn+1):
			t.Errorf("torn %d times: %q, found: %t, %v, after %d READs", torn, value, ok, err, c.reads)
		case torn == tries && (!errors.Is(err, errTorn) || ok || c.reads != tries):
			t.Errorf("torn always: %q, found: %t, %v, after %d READs; want errTorn after %d", value, ok, err, c.reads, tries)
		}
	}
}

// endless is the table of a hostile server: no bucket is ever free.
type endless struct {
	reads int
	taken []byte
}

func (e *endless) ReadAt(b []byte, off int64) (int, error) {
	if e.reads++; off < 0 {
		return 0, errors.New("negative offset")
	}
	return copy(b, e.taken), nil
}

// Rule: a look-up ends for any size in the descriptor and any contents of the buckets.
func TestHostileTable(t *testing.T) {
	e := &endless{taken: make([]byte, bucketSize)}
	if err := put(e.taken, "another key", ""); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{-1, 0, 1, bucketSize - 1, bucketSize, 1 << 62} {
		e.reads = 0
		if value, ok, _ := get(e, size, "key"); ok || value != "" || e.reads > probes {
			t.Errorf("in %d bytes of taken buckets: %q, found: %t, after %d READs", size, value, ok, e.reads)
		}
	}
}

// Rule: for any contents of a peer's memory, parse returns a key and value that fit a bucket, or
// an error; put can write accepted ones.
func FuzzBucket(f *testing.F) {
	b := make([]byte, bucketSize)
	f.Add(append([]byte(nil), b...))
	if err := put(b, "key", "value"); err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte(nil), b...))
	f.Add(bytes.Repeat([]byte{0xff}, bucketSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		var b [bucketSize]byte
		copy(b[:], in)
		for range 2 {
			key, value, err := parse(b[:])
			if err == nil && key != "" {
				again := make([]byte, bucketSize)
				if err := put(again, key, value); err != nil {
					t.Fatalf("%q: %q was read, and cannot be written: %v", key, value, err)
				}
			}
			binary.LittleEndian.PutUint64(b[:], xxhash.Sum64(b[8:])) // again, with a correct hash
		}
	})
}
