package soft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// newSocketWorld returns a world whose devices are on fabrics of their own and reach each other by UDP. Each
// link has the faults of l.
func newSocketWorld(t *testing.T, o options, l fabric.Link) *world {
	t.Helper()
	o.real = true
	w := &world{t: t}
	open := func(name string) *Provider {
		for { // another test may have the address
			addr := netip.AddrFrom4([4]byte{127, byte(rand.N(254) + 1), byte(rand.N(256)), byte(rand.N(254) + 1)})
			w.fab = fabric.New(fabric.Config{Seed: o.seed})
			w.fab.SetAll(l)
			p := must.Get(New(Config{Fabric: w.fab, Devices: []DeviceConfig{{Name: name, Addr: addr, Link: LinkRoCE}}}))(t)
			c, err := p.Open(name)
			if errors.Is(err, syscall.EADDRINUSE) {
				continue
			}
			must.Do(t, err)
			t.Cleanup(func() { must.Do(t, c.Close()) })
			return p
		}
	}
	w.p = open("a")
	w.a = w.newPeer("a", o)
	w.p = open("b")
	w.b = w.newPeer("b", o)
	t.Cleanup(w.close)
	w.connect(o)
	return w
}

// Rule: what a link with a socket loses, doubles and reorders arrives once, intact. VERBENA_LOSSY_MIB is how
// much is written each way.
func TestStressLossySocket(t *testing.T) {
	const size, depth = 256 << 10, 4
	mib := 256
	if s := os.Getenv("VERBENA_LOSSY_MIB"); s != "" {
		mib = must.Get(strconv.Atoi(s))(t)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newSocketWorld(t, options{
		seed: seed, mtu: verbs.MTU4096, memory: 2 * depth * size, cqe: 64, access: allAccess,
		cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	}, fabric.Link{Loss: 0.01, Dup: 0.01, Reorder: 0.01})
	began := time.Now()
	var wg sync.WaitGroup
	for _, ends := range [][2]*peer{{w.a, w.b}, {w.b, w.a}} {
		wg.Go(func() { report(t, writeSlots(ends[0], ends[1], mib<<20/size, size, depth)) })
	}
	wg.Wait()
	for _, e := range []*peer{w.a, w.b} {
		t.Logf("%s: %+v, %+v", e.ctx.dev.cfg.Name, e.ctx.dev.again, e.ctx.dev.link.Load().Stats())
	}
	t.Logf("%d MiB each way, %.0f MB/s each", mib, float64(mib<<20)/1e6/time.Since(began).Seconds())
}

// writeSlots makes n WRITEs, each from a slot of one end to the same slot behind those of the other, and
// compares the bytes written with those sent.
func writeSlots(from, to *peer, n, size, depth int) error {
	buf, _ := mem.Array[verbs.WC](from.wcs, from.wcs.Addr(), depth)
	moved := time.Now()
	for sent, done := 0, 0; done < n; {
		for ; sent < n && sent-done < depth; sent++ {
			at := sent % depth * size
			number(from.data()[at:at+size], sent)
			wr := from.send(uint64(sent), verbs.WRRDMAWrite, verbs.SendSignaled, from.sge(at, size))
			wr.SetRDMA(to.at(depth*size+at), to.mr.RKey())
			if _, err := from.post(wr); err != nil {
				return err
			}
		}
		got, err := verbs.Poll(from.scq, buf)
		if err != nil {
			return err
		}
		for _, c := range buf[:got] {
			if c.Status != verbs.WCSuccess || c.WRID != uint64(done) {
				return fmt.Errorf("WRITE %d completes as id %d %v", done, c.WRID, c.Status)
			}
			at := (depth + done%depth) * size
			if i := numbered(to.data()[at:at+size], done); i >= 0 {
				return fmt.Errorf("WRITE %d of %d bytes differs at %d", done, size, i)
			}
			done++
			moved = time.Now()
		}
		if got == 0 {
			runtime.Gosched()
			if time.Since(moved) > stressEnd {
				return fmt.Errorf("%d of %d WRITEs completed, none in %v", done, n, stressEnd)
			}
		}
	}
	return nil
}

// number fills b with words that depend on their place and on n; numbered returns the first offset at which
// b differs from that, -1 if none.
func number(b []byte, n int) {
	for i := 0; i < len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], uint64(n)<<32|uint64(i))
	}
}

func numbered(b []byte, n int) int {
	for i := 0; i < len(b); i += 8 {
		if binary.NativeEndian.Uint64(b[i:]) != uint64(n)<<32|uint64(i) {
			return i
		}
	}
	return -1
}

// Rule: memory that changes while it is sent is fetched once, so no packet is lost for its ICRC: of a READ of
// memory that the peer's program writes meanwhile, and of a WRITE from memory that changes.
func TestMemoryThatChangesIsSentWhole(t *testing.T) {
	const size, n = 64 << 10, 40
	w := newSocketWorld(t, options{
		mtu: verbs.MTU4096, memory: size, cqe: 16, access: allAccess,
		cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	}, fabric.Link{})
	run := func(name string, op verbs.WROpcode) {
		source, sink := w.b, w.a
		if op == verbs.WRRDMAWrite {
			source, sink = w.a, w.b
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait() // also after a failure, before the memory goes
		defer close(stop)
		wg.Go(func() {
			for x := 0; ; x++ {
				select {
				case <-stop:
					return
				default:
					number(source.data()[:size], x)
				}
			}
		})
		for i := range n {
			wr := w.a.send(uint64(i), op, verbs.SendSignaled, w.a.sge(0, size))
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
			w.a.mustPost(wr)
			w.a.ok(w.a.want(w.a.scq, 1), uint64(i))
		}
		if s := sink.ctx.dev.link.Load().Stats(); s.BadICRC != 0 {
			t.Errorf("%s: %d packets arrived with a wrong ICRC, want 0", name, s.BadICRC)
		}
	}
	run("READ", verbs.WRRDMARead)
	run("WRITE", verbs.WRRDMAWrite)
}
