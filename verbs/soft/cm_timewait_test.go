package soft

import (
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// liveHeap returns the bytes in use after garbage collection.
func liveHeap() int64 {
	var m runtime.MemStats
	for range 2 { // the second frees memory held by finalizers and pools
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// deepQP is the capacity of a queue pair whose queues take about 60 KiB.
var deepQP = verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}

// connectOnce connects a to l with deep queues and returns both ends.
func (r *cmRig) connectOnce(l verbs.CMID) (ida, idb verbs.CMID) {
	r.t.Helper()
	ida = r.a.route(l.LocalAddr())
	r.a.deep(ida)
	must.Do(r.t, ida.Connect(nil))
	idb = r.b.event(verbs.CMConnectRequest).ID
	r.b.deep(idb)
	must.Do(r.t, idb.Accept(nil))
	r.a.event(verbs.CMEstablished)
	r.b.event(verbs.CMEstablished)
	return ida, idb
}

func (e *cmEnd) deep(id verbs.CMID) {
	e.r.t.Helper()
	must.Do(e.r.t, id.CreateQP(e.pd, &verbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Type: verbs.QPTRC, Cap: deepQP}))
}

// passing is the work requests of an empty message, and memory for a completion.
type passing struct {
	arena *mem.Arena
	wc    []verbs.WC
}

func newMessage(t *testing.T) *passing {
	a := must.Get(mem.Map(4096, mem.Options{}))(t)
	t.Cleanup(func() { must.Do(t, a.Unmap()) })
	m := &passing{arena: a}
	send, _ := mem.At[verbs.SendWR](a, a.Addr())
	*send = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
	m.wc, _ = mem.Array[verbs.WC](a, a.Addr()+1024, 1)
	return m
}

// pass sends the message from a to b and polls both completions.
func (m *passing) pass(r *cmRig, a, b verbs.CMID) {
	r.t.Helper()
	_, err := verbs.PostRecv(b.QP(), m.arena.Addr()+512, 1) // zeros: no elements
	must.Do(r.t, err)
	must.Get(verbs.PostSend(a.QP(), m.arena.Addr(), 1))(r.t)
	for _, e := range []*cmEnd{r.a, r.b} {
		r.until("a completion at "+e.name, func() bool {
			n := must.Get(verbs.Poll(e.cq, m.wc))(r.t)
			return n == 1 && m.wc[0].Status == verbs.WCSuccess
		})
	}
}

// Rule: a connection that its owner has closed keeps numbers in TIMEWAIT, not queues: below 320
// bytes for both ends together. Afterwards it keeps nothing.
func TestTimewaitKeepsNumbersOnly(t *testing.T) {
	const conns, most, timeWait = 1500, 320, time.Minute
	r := newRig(t, false, func(c *Config) { c.CM.TimeWait = timeWait })
	l := r.b.listen(0)
	wrs := newMessage(t)
	once := func() {
		ida, idb := r.connectOnce(l)
		wrs.pass(r, ida, idb) // completions and timers, which refer to the queues
		must.Do(t, ida.Disconnect())
		r.a.event(verbs.CMDisconnected)
		r.b.event(verbs.CMDisconnected)
		r.closeAll(ida, idb)
		r.a.got, r.b.got = nil, nil
	}
	kept := func() (n int) {
		for _, d := range r.p.plugged() {
			n += d.cm.machine.Conns()
		}
		return n
	}
	once() // pools grow
	before := liveHeap()
	for range conns {
		once()
	}
	if n := kept(); n != 2*(conns+1) {
		t.Fatalf("%d ends are in TIMEWAIT, want %d", n, 2*(conns+1))
	}
	grown := liveHeap() - before
	t.Logf("%d closed connections keep %d bytes each", conns, grown/conns)
	if grown > conns*most {
		t.Errorf("%d connections in TIMEWAIT keep %d bytes, %d each; want at most %d each", conns, grown, grown/conns, most)
	}
	r.settle()
	if n := kept(); n != 0 || r.fab.Now() < timeWait {
		t.Errorf("%d ends are kept after %v, TIMEWAIT is %v", n, r.fab.Now(), timeWait)
	}
	if left := liveHeap() - before; left > conns*most/8 {
		t.Errorf("%d bytes are kept after TIMEWAIT", left)
	}
	r.closeAll(l)
}

// Rule: a provider without contexts keeps nothing of its connections, even during their TIMEWAIT.
func TestProviderWithoutContextsKeepsNothing(t *testing.T) {
	const conns, most = 64, 64 << 10
	before := liveHeap()
	var p *Provider
	t.Cleanup(func() { // after the rig has closed its contexts
		grown := liveHeap() - before
		if grown > most {
			t.Errorf("a provider without contexts keeps %d bytes after %d connections, want less than %d", grown, conns, most)
		}
		for _, d := range p.plugged() {
			if n := d.cm.machine.Conns(); n != 0 || d.onProgress(0) != 0 || len(d.timers) != 0 || d.qps.n != 0 || d.qps.slots != nil {
				t.Errorf("%s keeps %d connections, %d timers and %d places of queue pairs; it wants to run at %v", d.cfg.Name, n, len(d.timers), len(d.qps.slots), d.onProgress(0))
			}
		}
	})
	r := newRig(t, true, func(c *Config) { c.CM.TimeWait = time.Minute })
	p = r.p
	l := r.b.listen(0)
	for range conns {
		ida, idb := r.connectOnce(l)
		r.closeAll(ida, idb)
	}
	r.closeAll(l)
}

// Rule: the numbers of a closed connection are not reused in TIMEWAIT, and a device that has been
// closed and reopened connects at once.
func TestReopenedDeviceConnects(t *testing.T) {
	r := newRig(t, false, func(c *Config) { c.CM.TimeWait = time.Minute })
	seen := map[uint32]bool{}
	for range 3 {
		l := r.b.listen(0)
		for range 20 {
			ida, idb := r.connectOnce(l)
			for _, id := range []verbs.CMID{ida, idb} {
				n := id.QP().Num()
				if seen[n] {
					t.Fatalf("queue pair number 0x%06x was given twice", n)
				}
				seen[n] = true
			}
			r.closeAll(ida, idb)
		}
		r.closeAll(l)
		for _, e := range []*cmEnd{r.a, r.b} {
			must.Do(t, e.cq.Close())
			must.Do(t, e.pd.Close())
			must.Do(t, e.ctx.Close())
			e.open()
		}
	}
}
