package soft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// TestStressRealTime: many goroutines in real time, a bad link, two devices and several
// connections that share them: each SEND arrives once, in order, with its content, and both ends
// count the same. Under the race detector it also checks that posters, pollers and engines share
// atomic words only.
func TestStressRealTime(t *testing.T) {
	const pairs, messages, size, depth = 4, 1500, 700, 16
	fab := fabric.New(fabric.Config{Seed: 11})
	p := must.Get(New(Config{Fabric: fab, Devices: []DeviceConfig{
		{Name: "a", Addr: netip.MustParseAddr("10.0.0.1")}, {Name: "b", Addr: netip.MustParseAddr("10.0.0.2")},
	}}))(t)
	fab.SetAll(fabric.Link{Loss: 0.01, Dup: 0.02, Reorder: 0.01})
	var ws []*world
	o := options{
		mtu: verbs.MTU256, access: allAccess, cqe: 256, memory: 1 << 16,
		cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1},
		// 67 ms, eight times; see connect. With 17 ms a busy machine has once stopped one half of the process for
		// longer than all retries.
		attr: func(a *verbs.QPAttr) { a.Timeout = 14 },
	}
	for range pairs {
		w := &world{t: t, fab: fab, p: p}
		w.a, w.b = w.newPeer("a", o), w.newPeer("b", o)
		w.connect(o)
		ws = append(ws, w)
	}
	var wg sync.WaitGroup
	for i, w := range ws {
		wg.Go(func() { report(t, w.stressSend(messages, size, depth, byte(i))) })
		wg.Go(func() { report(t, w.stressRecv(messages, size, depth, byte(i))) })
	}
	wg.Wait()
	for _, w := range ws {
		w.close()
	}
}

func report(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}

// stressEnd bounds a stress test that makes no progress.
const stressEnd = 60 * time.Second

func (w *world) stressSend(messages, size, depth int, seed byte) error {
	e := w.a
	buf, _ := mem.Array[verbs.WC](e.wcs, e.wcs.Addr(), 64)
	end := time.Now().Add(stressEnd)
	for sent, done := 0, 0; done < messages; {
		for sent < messages && sent-done < depth {
			at := sent % depth * size
			fill(e.data()[at:at+size], seed+byte(sent))
			binary.NativeEndian.PutUint64(e.data()[at:], uint64(sent))
			if _, err := e.post(e.send(uint64(sent), verbs.WRSend, verbs.SendSignaled, e.sge(at, size))); err != nil {
				return err
			}
			sent++
		}
		n, err := verbs.Poll(e.scq, buf)
		if err != nil {
			return err
		}
		for _, c := range buf[:n] {
			if c.Status != verbs.WCSuccess || c.WRID != uint64(done) {
				return fmt.Errorf("send %d completes as id %d %v", done, c.WRID, c.Status)
			}
			done++
		}
		if n == 0 {
			runtime.Gosched()
			if time.Now().After(end) {
				return fmt.Errorf("%d of %d sends completed in %v", done, messages, stressEnd)
			}
		}
	}
	return nil
}

func (w *world) stressRecv(messages, size, depth int, seed byte) error {
	e := w.b
	buf, _ := mem.Array[verbs.WC](e.wcs, e.wcs.Addr(), 64)
	want := make([]byte, size)
	end := time.Now().Add(stressEnd)
	for posted, done := 0, 0; done < messages; {
		for posted < messages && posted-done < depth {
			e.recv(uint64(posted), e.sge(posted%depth*size, size))
			posted++
		}
		n, err := verbs.Poll(e.rcq, buf)
		if err != nil {
			return err
		}
		for _, c := range buf[:n] {
			if c.Status != verbs.WCSuccess || c.WRID != uint64(done) || c.ByteLen != uint32(size) {
				return fmt.Errorf("receive %d completes as id %d %v %d bytes", done, c.WRID, c.Status, c.ByteLen)
			}
			at := done % depth * size
			fill(want, seed+byte(done))
			binary.NativeEndian.PutUint64(want, uint64(done))
			if string(want) != string(e.data()[at:at+size]) {
				return fmt.Errorf("message %d has other content", done)
			}
			done++
		}
		if n == 0 {
			runtime.Gosched()
			if time.Now().After(end) {
				return fmt.Errorf("%d of %d receives completed in %v", done, messages, stressEnd)
			}
		}
	}
	return nil
}

// TestChurnRealTime: regions and queue pairs are made and closed while the same devices serve
// other traffic. Closing an object under a transfer ends the transfer with an error, and no byte
// is written afterwards.
func TestChurnRealTime(t *testing.T) {
	w := newWorld(t, options{real: true, jumbo: true})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // unrelated traffic, in the other direction
		wr := w.b.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.b.sge(1<<19, 9000))
		wr.SetRDMA(w.a.at(1<<19), w.a.mr.RKey())
		buf, _ := mem.Array[verbs.WC](w.b.wcs, w.b.wcs.Addr(), 8)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := w.b.post(wr); err != nil {
				t.Error(err)
				return
			}
			for n := 0; n == 0; {
				var err error
				if n, err = verbs.Poll(w.b.scq, buf); err != nil || (n > 0 && buf[0].Status != verbs.WCSuccess) {
					t.Errorf("transfer beside the churn: %v, %v", buf[0].Status, err)
					return
				}
				runtime.Gosched()
			}
		}
	})
	for i := range 150 {
		// A region of the target is closed while a peer writes to it.
		arena := must.Get(mem.Map(1<<16, mem.Options{}))(t)
		m := must.Get(w.a.pd.RegMR(arena.Addr(), 1<<16, arena.Addr(), allAccess))(t)
		src := must.Get(w.a.pd.RegMR(arena.Addr(), 1<<16, arena.Addr(), allAccess))(t)
		q := w.a.newQP(verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1})
		a := verbs.QPAttr{PathMTU: verbs.MTUJumbo, Port: 1, AccessFlags: allAccess, MaxRdAtomic: 4, MaxDestRdAtomic: 4, Timeout: 14, RetryCnt: 2}
		self := &peer{w: w, gid: w.a.gid, qp: q, wrs: w.a.wrs, arena: w.a.arena, ctx: w.a.ctx, pd: w.a.pd, mr: w.a.mr, next: w.a.next}
		self.toRTS(a, self) // a loopback to itself
		wr := self.send(uint64(i), verbs.WRRDMAWrite, verbs.SendSignaled, verbs.SGE{Addr: arena.Addr(), Length: 20000, LKey: src.LKey()})
		wr.SetRDMA(arena.Addr()+1<<15, m.RKey())
		self.mustPost(wr)
		must.Do(t, m.Close())
		must.Do(t, src.Close())
		must.Do(t, arena.Unmap())
		w.a.poll(w.a.scq)
		self.events()
		must.Do(t, q.Close())
	}
	close(stop)
	wg.Wait()
}
