package soft

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// removalRounds is how often the stress takes a device out. Shorter where the
// race detector makes all of it slow would show less: it is the same everywhere.
const removalRounds = 200

// TestRemovalUnderLoad: a device is taken out at a random moment while it sends,
// is written to and read from, registers memory, makes queue pairs and connects.
// When Remove has returned its memory is the owner's: nothing is written there,
// and nothing the owner writes arrives anywhere. Everybody learns of it, every
// object closes, and the next round has a new device.
func TestRemovalUnderLoad(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("VERBENA_REMOVAL_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 0, 64)
		must(t, err)
		seed = v
	}
	t.Logf("VERBENA_REMOVAL_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, options{real: true, apart: true, jumbo: true})
	for round := range removalRounds {
		removalRound(t, w, r, round)
		if t.Failed() {
			return
		}
	}
}

const (
	ownerByte = 0xee // what the owner writes when the device is gone
	loadSize  = 4096 // of a transfer; by reference
	loadHalf  = 1 << 15
)

func removalRound(t *testing.T, old *world, r *rand.Rand, round int) {
	o := options{
		real: true, mtu: verbs.MTU1024, access: allAccess, cqe: 64, memory: 2 * loadHalf,
		cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	if r.IntN(2) == 0 {
		o.mtu = verbs.MTUJumbo
	}
	w := &world{t: t, fab: old.fab, p: old.p}
	w.a, w.b = w.newPeer("a", o), w.newPeer("b", o)
	o.attr = func(a *verbs.QPAttr) { a.Timeout = 9 } // 2 ms, eight times: the peer learns soon
	w.connect(o)
	mem.Poison(w.b.data())
	for i := range w.a.data() {
		w.a.data()[i] = byte(i) & 0x3f
	}
	ch, err := w.p.CreateCMChannel()
	must(t, err)
	id, err := ch.CreateID(verbs.PSTCP, 0)
	must(t, err)
	must(t, id.Bind(netip.AddrPortFrom(w.a.ctx.dev.cfg.Addr, 0)))
	must(t, id.Listen(0))

	var work atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	load := func(what string, step func() error) {
		wg.Go(func() {
			for time.Since(start) < stressEnd {
				if err := step(); err != nil {
					if !errors.Is(err, errOver) && !errors.Is(err, verbs.ErrDeviceRemoved) {
						t.Errorf("round %d: %s: %v", round, what, err)
					}
					return
				}
				work.Add(1)
				runtime.Gosched()
			}
			t.Errorf("round %d: %s: nothing ended it in %v", round, what, stressEnd)
		})
	}
	load("the device's sending", w.a.loadStep(w.b))
	load("the peer's sending", w.b.loadStep(w.a))
	load("making objects", w.a.makeStep(o))
	for until := int64(r.IntN(400)); work.Load() < until; {
		runtime.Gosched()
	}
	must(t, w.p.Remove("a"))
	for i := range w.a.data() {
		w.a.data()[i] = ownerByte
	}
	wg.Wait()
	for i, b := range w.a.data() {
		if b != ownerByte {
			t.Fatalf("round %d: byte %d was written after the removal", round, i)
		}
	}
	for i, b := range w.b.data() {
		if b == ownerByte {
			t.Fatalf("round %d: byte %d was read from the removed device after the removal", round, i)
		}
	}
	ev, ok, err := ch.GetEvent()
	must(t, err)
	if !ok || ev.Type != verbs.CMDeviceRemoval || ev.ID != id {
		t.Fatalf("round %d: the listener got %v %+v, want DEVICE_REMOVAL", round, ok, ev)
	}
	ch.Ack(ev)
	must(t, id.Close())
	must(t, ch.Close())
	if got := w.a.events(); len(got) == 0 || got[len(got)-1] != verbs.EventDeviceFatal {
		t.Fatalf("round %d: events %v, want DEVICE_FATAL at the end", round, got)
	}
	w.b.events()
	w.close()
	must(t, w.p.Restore("a"))
}

// errOver ends a load: the queue pair failed, as it must when the peer is gone.
var errOver = errors.New("over")

// loadStep keeps writes and reads to a peer going; its own half of the memory is
// the lower one, the peer's the upper.
func (e *peer) loadStep(to *peer) func() error {
	buf, _ := mem.Array[verbs.WC](e.wcs, e.wcs.Addr(), 64)
	out := 0
	n := 0
	return func() error {
		for ; out < 6; out++ {
			n++
			at := n % (loadHalf / loadSize) * loadSize
			op := verbs.WRRDMAWrite
			if n%2 == 0 {
				op = verbs.WRRDMARead
			}
			from := at
			if op == verbs.WRRDMARead {
				from += loadHalf
			}
			wr := e.send(uint64(n), op, verbs.SendSignaled, e.sge(from, loadSize))
			wr.SetRDMA(to.at(from^loadHalf), to.mr.RKey())
			if _, err := e.post(wr); err != nil {
				return err
			}
		}
		got, err := verbs.Poll(e.scq, buf)
		if err != nil {
			return err
		}
		for _, c := range buf[:got] {
			if c.Status != verbs.WCSuccess {
				return errOver
			}
		}
		out -= got
		return nil
	}
}

// makeStep registers memory and makes a queue pair, and closes both.
func (e *peer) makeStep(o options) func() error {
	return func() error {
		m, err := e.pd.RegMR(e.at(0), 4096, 0, verbs.AccessLocalWrite)
		if err != nil {
			return err
		}
		q, err := e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: e.scq, RecvCQ: e.rcq, Type: verbs.QPTRC, Cap: o.cap})
		if err == nil {
			err = q.Close()
		}
		return errors.Join(err, m.Close())
	}
}
