package runtime

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	lossySlot  = 256 << 10 // the bytes of a WRITE
	lossyDepth = 4         // the number of outstanding WRITEs on each connection end
)

// Rule: if a network loses 1 %, duplicates 1 % and reorders 1 % of the packets, the data of every WRITE still
// arrives intact. The network of the test is the loopback device with the queueing discipline netem. The
// virtual machine of "make test-rxe" has netem. The environment variable VERBENA_LOSSY_MIB sets how many MiB
// each end writes; the default is 8.
func TestALossyNetwork(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "modprobe", "sch_netem").CombinedOutput(); err != nil {
		t.Skipf("the kernel module sch_netem cannot be loaded: %v: %s", err, bytes.TrimSpace(out))
	}
	if !netns.Enter(t) {
		return
	}
	command(t, "", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "limit", "10000", "delay", "200us", "reorder", "1%", "loss", "1%", "duplicate", "1%")
	mib := 8
	if s := os.Getenv("VERBENA_LOSSY_MIB"); s != "" {
		mib = must.Get(strconv.Atoi(s))(t)
	}
	server, client := mustOpen(t, Config{Provider: process(t)}), mustOpen(t, Config{Provider: process(t)})
	ln := must.Get(server.Listen("127.0.0.1:0"))(t)
	a := must.Get(client.Dial(testContext(t), ln.Addr().String()))(t)
	b := must.Get(ln.Accept(testContext(t)))(t)
	began := time.Now()
	var wg sync.WaitGroup
	for _, ends := range [][2]*Conn{{a, b}, {b, a}} {
		to := must.Get(ends[1].rt.NewRegion(lossySlot*lossyDepth, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
		from := must.Get(ends[0].rt.NewRegion(lossySlot*lossyDepth, verbs.AccessLocalWrite))(t)
		wg.Go(func() {
			if err := writeSlots(t, ends[0], from, to, mib<<20/lossySlot); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("each end wrote %d MiB, at %.1f MB/s", mib, float64(mib<<20)/1e6/time.Since(began).Seconds())
	if out := must.Get(exec.CommandContext(t.Context(), "tc", "-s", "qdisc", "show", "dev", "lo").Output())(t); !bytes.Contains(out, []byte("netem")) {
		t.Errorf("the queueing discipline of lo is not netem: %s", out)
	} else {
		t.Logf("%s", out)
	}
}

// writeSlots(t, c, from, to, n) executes n WRITEs of lossySlot bytes on c. The source of a WRITE is in the first
// region, and the target is in the second region. At most lossyDepth WRITEs are outstanding. After each WRITE,
// writeSlots compares the bytes of the target with the bytes of the source.
func writeSlots(t *testing.T, c *Conn, from, to *Region, n int) error {
	ctx := t.Context()
	futures := make([]Future, lossyDepth)
	for i := range n + lossyDepth {
		at := i % lossyDepth
		local := must.Get(from.Slice(at*lossySlot, lossySlot))(t)
		if done := i - lossyDepth; done >= 0 {
			if _, err := futures[at].Await(ctx); err != nil {
				return fmt.Errorf("WRITE %d: %w", done, err)
			}
			if !bytes.Equal(to.Bytes()[at*lossySlot:][:lossySlot], local.Bytes()) {
				return fmt.Errorf("WRITE %d has completed, but the target differs from the source", done)
			}
		}
		if i >= n {
			continue
		}
		for b, word := local.Bytes(), 0; word < len(b); word += 8 {
			binary.NativeEndian.PutUint64(b[word:], uint64(i)<<32|uint64(word))
		}
		f, err := c.Write(ctx, local, must.Get(to.Remote(at*lossySlot, lossySlot))(t))
		if err != nil {
			return fmt.Errorf("starting WRITE %d: %w", i, err)
		}
		futures[at] = f
	}
	return nil
}
