package soft

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// gone checks that a call failed with ErrDeviceRemoved and EIO.
func gone(t tb, call string, err error) {
	t.Helper()
	if !errors.Is(err, verbs.ErrDeviceRemoved) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("%s on a removed device: %v, want ErrDeviceRemoved and EIO", call, err)
	}
}

// TestRemovedDeviceRefusesEverythingButClose: each call that creates, changes or queries returns
// ErrDeviceRemoved, and Execute does nothing; objects close in the usual order, the context last;
// Devices and Open do not know the device.
func TestRemovedDeviceRefusesEverythingButClose(t *testing.T) {
	w := newWorld(t, options{channel: true})
	e := w.a
	w.a.recv(9, w.a.sge(0, 64)) // outstanding
	must.Do(t, w.p.Remove("a"))
	if got := e.events(); !slices.Equal(got, []verbs.AsyncEventType{verbs.EventDeviceFatal}) {
		t.Fatalf("events %v, want one DEVICE_FATAL", got)
	}
	calls := map[string]func() error{
		"QueryDevice":       func() error { _, err := e.ctx.QueryDevice(); return err },
		"QueryPort":         func() error { _, err := e.ctx.QueryPort(1); return err },
		"QueryGID":          func() error { _, err := e.ctx.QueryGID(1, 0); return err },
		"QueryGIDEntry":     func() error { _, err := e.ctx.QueryGIDEntry(1, 0); return err },
		"QueryGIDTable":     func() error { _, err := e.ctx.QueryGIDTable(); return err },
		"QueryPKey":         func() error { _, err := e.ctx.QueryPKey(1, 0); return err },
		"AllocPD":           func() error { _, err := e.ctx.AllocPD(); return err },
		"CreateCompChannel": func() error { _, err := e.ctx.CreateCompChannel(); return err },
		"CreateCQ":          func() error { _, err := e.ctx.CreateCQ(4, nil, 0, 0); return err },
		"Resize":            func() error { return e.scq.Resize(8) },
		"RegMR":             func() error { _, err := e.pd.RegMR(e.at(0), 64, 0, 0); return err },
		"CreateQP": func() error {
			_, err := e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: e.scq, RecvCQ: e.rcq, Type: verbs.QPTRC})
			return err
		},
		"Modify": func() error { return e.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState) },
		"Query":  func() error { _, err := e.qp.Query(); return err },
		"a post": func() error { _, err := e.post(e.send(1, verbs.WRSend, 0)); return err },
		"a poll": func() error { _, err := verbs.Poll(e.scq, make([]verbs.WC, 1)); return err },
		"an arm": func() error { return verbs.Arm(e.scq, false) },
		"a turn of nothing": func() error {
			var turn verbs.IOBatch
			return e.ctx.Execute(&turn)
		},
	}
	for name, call := range calls {
		gone(t, name, call())
	}
	infos := must.Get(w.p.Devices())(t)
	if len(infos) != 1 || infos[0].Name != "b" {
		t.Fatalf("devices %+v, want b alone", infos)
	}
	for _, err := range []error{w.p.Remove("a"), w.p.SetPort("a", false), second(w.p.Open("a"))} {
		d := (*verbs.DeviceError)(nil)
		if !errors.As(err, &d) || d.Name != "a" || !slices.Equal(d.Known, []string{"b"}) {
			t.Fatalf("asking for the removed device: %v, want a DeviceError that knows b", err)
		}
	}
	for _, o := range []verbs.Object{e.ctx, e.pd, e.ch, e.scq} {
		if err := o.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Fatalf("closing %v with children: %v, want ErrBusy", o, err)
		}
	}
	// newWorld's cleanup closes everything in order.
}

func second[T any](_ T, err error) error { return err }

// TestRemovalIsSilence: outstanding requests never complete, and the peer's requests end with
// RETRY_EXC_ERR.
func TestRemovalIsSilence(t *testing.T) {
	w := newWorld(t, options{})
	w.b.recv(7, w.b.sge(0, 64))
	wr := w.b.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.b.sge(0, 4096))
	wr.SetRDMA(w.a.at(0), w.a.mr.RKey())
	fill(w.b.data()[:4096], 5)
	w.b.mustPost(wr)
	must.Do(t, w.p.Remove("a"))
	if c := w.b.want(w.b.scq, 1)[0]; c.Status != verbs.WCRetryExcErr {
		t.Fatalf("the peer's write: %v, want RETRY_EXC_ERR", c.Status)
	}
	for _, b := range w.a.data()[:4096] {
		if b != 0 {
			t.Fatal("a removed device wrote to memory")
		}
	}
}

// TestNobodyReadsMemoryOfARemovedDevice: packets in flight that point into its memory are lost,
// both requests it sent and answers to READs. Data that the owner writes to that memory
// afterwards arrives nowhere.
func TestNobodyReadsMemoryOfARemovedDevice(t *testing.T) {
	for _, read := range []bool{false, true} {
		// b is attached after a: its packets of one step wait at a.
		w := newWorld(t, options{})
		from, to := w.b.data()[:2048], w.a.data()[:2048]
		if read {
			wr := w.a.send(1, verbs.WRRDMARead, verbs.SendSignaled, w.a.sge(0, 2048))
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
			w.a.mustPost(wr)
		} else {
			wr := w.b.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.b.sge(0, 2048))
			wr.SetRDMA(w.a.at(0), w.a.mr.RKey())
			w.b.mustPost(wr)
		}
		sent := w.b.sent()
		w.fab.Step()
		if w.b.sent() == sent {
			t.Fatalf("read %v: nothing is on its way, so the test shows nothing", read)
		}
		must.Do(t, w.p.Remove("b"))
		fill(from, 9)
		w.settle()
		for _, b := range to {
			if b != 0 {
				t.Fatalf("read %v: memory of a removed device was read after Remove had returned", read)
			}
		}
	}
}

// sent returns the number of packets the device has given to the link.
func (e *peer) sent() uint64 { return e.ctx.dev.port.Load().Stats().TxPackets }

// TestRestoredDeviceIsANewOne: it has the same name and address, beside the remains of the old
// one; no object of the old one works again.
func TestRestoredDeviceIsANewOne(t *testing.T) {
	w := newWorld(t, options{})
	old := w.a.ctx
	must.Do(t, w.p.Remove("a"))
	must.Do(t, w.p.Restore("a"))
	if err := w.p.Restore("a"); !errors.Is(err, verbs.ErrInvalid) || !errors.Is(err, syscall.EEXIST) {
		t.Fatalf("restoring a device that is there: %v, want ErrInvalid and EEXIST", err)
	}
	if err := w.p.Restore("z"); !errors.Is(err, verbs.ErrUnknownDevice) {
		t.Fatalf("restoring what never was: %v", err)
	}
	infos := must.Get(w.p.Devices())(t)
	if len(infos) != 2 || infos[0].Name != "a" || infos[0].GUID != old.Device().GUID {
		t.Fatalf("devices %+v, want a and b as before", infos)
	}
	gone(t, "a turn of the old context", old.Execute(new(verbs.IOBatch)))
	// A new pair, on the new device.
	fresh := *w
	fresh.a = w.newPeer("a", options{memory: 1 << 16, cqe: 64, access: allAccess, cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	fresh.b = w.newPeer("b", options{memory: 1 << 16, cqe: 64, access: allAccess, cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	for _, q := range []*queuePair{w.a.qp, w.b.qp} {
		if fresh.a.qp.number == q.number && q.dev.gid == fresh.a.gid {
			t.Fatal("the new device has given the number of a queue pair that a peer is connected with")
		}
	}
	fresh.connect(options{mtu: verbs.MTU1024, access: allAccess})
	fill(fresh.a.data()[:512], 1)
	wr := fresh.a.send(3, verbs.WRRDMAWrite, verbs.SendSignaled, fresh.a.sge(0, 512))
	wr.SetRDMA(fresh.b.at(0), fresh.b.mr.RKey())
	fresh.a.mustPost(wr)
	fresh.a.ok(fresh.a.want(fresh.a.scq, 1), 3)
	if string(fresh.a.data()[:512]) != string(fresh.b.data()[:512]) {
		t.Fatal("the new device carries other bytes")
	}
	fresh.close()
}

// removalRounds is how often the stress removes a device. It is the same under the race detector,
// where a shorter test would show less.
const removalRounds = 200

// TestRemovalUnderLoad: a device is removed at a random moment while it sends, is written to and
// read from, registers memory, makes queue pairs and listens. When Remove has returned, its
// memory belongs to the owner: nothing is written there, and data that the owner writes arrives
// nowhere. Every user gets its event, every object closes, and the next round has a new device.
func TestRemovalUnderLoad(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("VERBENA_REMOVAL_SEED"); s != "" {
		v := must.Get(strconv.ParseUint(s, 0, 64))(t)
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
	ownerByte = 0xee // written by the owner when the device is gone
	loadSize  = 4096 // bytes of a transfer; by reference
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
	o.attr = func(a *verbs.QPAttr) { a.Timeout = 9 } // 2 ms, eight times: the peer detects it soon
	w.connect(o)
	mem.Poison(w.b.data())
	for i := range w.a.data() {
		w.a.data()[i] = byte(i) & 0x3f
	}
	ch := must.Get(w.p.CreateCMChannel())(t)
	id := must.Get(ch.CreateID(verbs.PSTCP, 0))(t)
	must.Do(t, id.Bind(netip.AddrPortFrom(w.a.ctx.dev.cfg.Addr, 0)))
	must.Do(t, id.Listen(0))

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
	must.Do(t, w.p.Remove("a"))
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
	must.Do(t, err)
	if !ok || ev.Type != verbs.CMDeviceRemoval || ev.ID != id {
		t.Fatalf("round %d: the listener got %v %+v, want DEVICE_REMOVAL", round, ok, ev)
	}
	ch.Ack(ev)
	must.Do(t, id.Close())
	must.Do(t, ch.Close())
	if got := w.a.events(); len(got) == 0 || got[len(got)-1] != verbs.EventDeviceFatal {
		t.Fatalf("round %d: events %v, want DEVICE_FATAL at the end", round, got)
	}
	w.b.events()
	w.close()
	must.Do(t, w.p.Restore("a"))
}

// errOver ends a load: the queue pair failed, as it must when the peer is gone.
var errOver = errors.New("over")

// loadStep keeps writes and reads to a peer outstanding. Its own half of the memory is the lower
// one, the peer's the upper.
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
