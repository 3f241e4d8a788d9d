package runtime

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// asker is an endpoint of the fabric (the software network). It sends connection requests (REQ), each
// with a new identifier, and ignores all answers.
type asker struct {
	port    *fabric.Port
	to      netip.AddrPort
	private []byte
	asked   uint32
	// asker.due is how many requests the next call of Progress sends. Any goroutine may add to the
	// number.
	due atomic.Int64
	// If asker.every is not 0, the asker also sends a request at regular intervals of virtual time.
	// asker.every is the interval, and asker.at is the time of the next request.
	every, at time.Duration
}

// newAsker attaches an asker with the address addr to the fabric. The requests of the asker go to the
// listener at the address to, and carry the given private data.
func newAsker(t testing.TB, link *fabric.Fabric, addr string, to netip.AddrPort, private []byte) *asker {
	t.Helper()
	a := &asker{to: to, private: private}
	port := must.Get(link.Attach(verbs.GIDFromAddr(netip.MustParseAddr(addr)), "asker", a))(t)
	t.Cleanup(port.Detach)
	port.Exclusive(func() { a.port = port })
	return a
}

// ask makes the asker send n requests. It may return before the requests are sent.
func (a *asker) ask(n int) {
	a.due.Add(int64(n))
	a.port.Kick()
}

// askOn starts a goroutine that sends perMS requests in each millisecond. The returned function
// ends the goroutine and waits until it has ended.
func (a *asker) askOn(perMS int) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				a.ask(perMS)
			}
		}
	}()
	return func() { close(end); <-ended }
}

// Progress implements [fabric.Endpoint].
func (a *asker) Progress(now time.Duration) (next time.Duration, more bool) {
	if a.port == nil {
		return 0, false
	}
	for k := a.port.Take(); k != nil; k = a.port.Take() {
		a.port.Return(k)
	}
	n := a.due.Swap(0)
	if a.every > 0 {
		for ; a.at <= now; a.at += a.every {
			n++
		}
		next = a.at
	}
	for range n {
		a.send()
	}
	return next, false
}

func (a *asker) send() {
	a.asked++
	h, m := askedREQ(a.asked, a.port.GID().Addr(), a.to, a.private)
	k := a.port.Get()
	k.SetHeader(h)
	k.AddCopy(m[:])
	a.port.Send(wire.To(verbs.GIDFromAddr(a.to.Addr())), k)
}

// askedREQ returns the header and the datagram of request n from src to a listener.
func askedREQ(n uint32, src netip.Addr, to netip.AddrPort, private []byte) (h *wire.Header, m cm.MAD) {
	q := &cm.REQ{
		TID: uint64(n), LocalID: n, ServiceID: cm.ServiceID(verbs.PSTCP, to.Port()), QPN: 2 + n%(1<<23),
		RemoteTimeout: 15, LocalTimeout: 15, RetryCount: 7, RNRRetry: 7, PathMTU: 3, MaxCMRetries: 15, PKey: wire.DefaultPKey,
	}
	cm.ConnHeader{SrcPort: 9, Src: src, Dst: to.Addr()}.Put(&q.Private)
	copy(q.Private[cm.ConnHeaderSize:], private)
	if err := q.Put(&m); err != nil {
		panic(err)
	}
	return &wire.Header{Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQP: 1, MigReq: true, PadCount: wire.PadLen(len(m)), QKey: wire.GSIQKey, SrcQP: 1}, m
}

// BenchmarkWriteBesideRefusals starts a WRITE every 200 µs, and reports the median and the 99th
// percentile of the durations of the WRITEs in µs. In the sub-benchmark refusals=20/ms, an asker sends
// 20 requests in each millisecond, and a listener on the same reactor refuses them. There the 99th
// percentile should be at most three times that of the sub-benchmark quiet. On a busy machine, the
// longest durations come from the scheduler, not from the refusals.
func BenchmarkWriteBesideRefusals(b *testing.B) {
	for name, perMS := range map[string]int{"quiet": 0, "refusals=20/ms": 20} {
		b.Run(name, func(b *testing.B) {
			p, link := smallPorts(b, 1<<20)
			client, server := connected(b, Config{Provider: p})
			ln := must.Get(server.rt.Listen(":0"))(b)
			region := must.Get(client.rt.NewRegion(4096, allAccess))(b)
			defer region.Close()
			remote := must.Get(region.Remote(0, 8))(b)
			buf := must.Get(server.rt.Alloc(8))(b)
			defer buf.Release()
			if perMS > 0 {
				defer newAsker(b, link, "127.0.0.9", ln.Addr(), []byte("no hello")).askOn(perMS)()
			}
			pace := time.NewTicker(200 * time.Microsecond)
			defer pace.Stop()
			ctx := testContext(b)
			var took []time.Duration
			for b.Loop() {
				<-pace.C
				at := time.Now()
				if _, err := server.Do(ctx, new(WriteOp(buf.Slice(), remote))); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(at))
			}
			reportTook(b, took)
		})
	}
}

// reportTook reports the median and the 99th percentile of the given durations.
func reportTook(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	micro := func(part int) float64 { return float64(took[len(took)*part/100].Nanoseconds()) / 1e3 }
	b.ReportMetric(micro(50), "p50-µs")
	b.ReportMetric(micro(99), "p99-µs")
}

// BenchmarkDialBesideSilentRequests measures the duration of Dial. In the sub-benchmark silent=1/ms,
// an asker with another address sends 1,000 requests a second and ignores the answers. The 99th
// percentile should be less than 50 ms. TestDialingBesideAFloodOfSilentRequests checks this limit in
// virtual time.
func BenchmarkDialBesideSilentRequests(b *testing.B) {
	for name, perMS := range map[string]int{"quiet": 0, "silent=1/ms": 1} {
		b.Run(name, func(b *testing.B) {
			p, link := smallPorts(b, 1<<20)
			server := mustOpen(b, Config{Provider: p, Device: "soft1"})
			client := mustOpen(b, Config{Provider: p, Device: "soft0"})
			ln := must.Get(server.Listen(":0"))(b)
			if perMS > 0 {
				defer newAsker(b, link, "127.0.0.9", ln.Addr(), proto.EncodeHello(proto.Hello{Credits: 4, Most: 4, RecvSize: 4096})).askOn(perMS)()
			}
			pace := time.NewTicker(2 * time.Millisecond)
			defer pace.Stop()
			ctx := testContext(b)
			var took []time.Duration
			for b.Loop() {
				<-pace.C
				at := time.Now()
				c := must.Get(client.Dial(ctx, ln.Addr().String()))(b)
				took = append(took, time.Since(at))
				s := must.Get(ln.Accept(ctx))(b)
				if err := errors.Join(c.Close(ctx), s.Close(ctx)); err != nil {
					b.Fatal(err)
				}
			}
			reportTook(b, took)
		})
	}
}

// askedChannel is an event channel without events. It counts the calls of GetEvent.
type askedChannel struct {
	verbs.CMChannel
	asked int
}

func (c *askedChannel) GetEvent() (ev verbs.CMEvent, ok bool, err error) {
	c.asked++
	return ev, false, nil
}

// Rule: if maxRejections rejections are queued, the shard (a reactor with its event channel) takes no
// connection events.
func TestNoEventsAreTakenWhileRejectionsQueue(t *testing.T) {
	s := mustOpen(t, Config{}).shards[0]
	if err := s.r.Do(testContext(t), func() {
		cm := &askedChannel{CMChannel: s.cm}
		s.cm = cm
		for _, queued := range []int{maxRejections, maxRejections - 1} {
			s.queued = make([]rejection, queued)
			s.takeCM()
			if full := queued == maxRejections; s.stuck != full || (cm.asked == 0) != full {
				t.Errorf("after takeCM with %d rejections queued: GetEvent called=%t, stuck=%t; want %t and %t", queued, cm.asked > 0, s.stuck, !full, full)
			}
		}
		s.cm, s.queued = cm.CMChannel, nil
	}); err != nil {
		t.Fatal(err)
	}
}
