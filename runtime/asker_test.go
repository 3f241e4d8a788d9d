package runtime

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// asker is a port that asks for connections, each time for another, and takes no answer.
type asker struct {
	port    *fabric.Port
	to      netip.AddrPort
	private []byte
	asked   uint32
	// due is how many requests are to be sent by the next turn. Added to by anybody.
	due atomic.Int64
	// every is how often one is sent of itself, on virtual time; 0: never.
	every, at time.Duration
}

// newAsker attaches an asker at addr that asks for to with the private data.
func newAsker(t testing.TB, link *fabric.Fabric, addr string, to netip.AddrPort, private []byte) *asker {
	t.Helper()
	a := &asker{to: to, private: private}
	port, err := link.Attach(verbs.GIDFromAddr(netip.MustParseAddr(addr)), "asker", a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Detach)
	port.Exclusive(func() { a.port = port })
	return a
}

// ask sends n requests, soon.
func (a *asker) ask(n int) {
	a.due.Add(int64(n))
	a.port.Kick()
}

// askOn sends perMS requests in each millisecond until stop, which waits for the end of
// it.
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

// Turn implements [fabric.Endpoint].
func (a *asker) Turn(now time.Duration) (next time.Duration, more bool) {
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
	q := &cm.REQ{
		TID: uint64(a.asked), LocalID: a.asked, ServiceID: cm.ServiceID(verbs.PSTCP, a.to.Port()), QPN: 2 + a.asked%(1<<23),
		RemoteTimeout: 15, LocalTimeout: 15, RetryCount: 7, RNRRetry: 7, PathMTU: 3, MaxCMRetries: 15, PKey: wire.DefaultPKey,
	}
	src := a.port.GID().Addr()
	cm.ConnHeader{SrcPort: 9, Src: src, Dst: a.to.Addr()}.Put(&q.Private)
	copy(q.Private[cm.ConnHeaderSize:], a.private)
	var m cm.MAD
	if err := q.Put(&m); err != nil {
		panic(err)
	}
	k := a.port.Get()
	k.SetHeader(&wire.Header{Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQP: 1, MigReq: true, PadCount: wire.PadLen(len(m)), QKey: wire.GSIQKey, SrcQP: 1})
	k.Dst = verbs.GIDFromAddr(a.to.Addr())
	k.AddCopy(m[:])
	a.port.Send(k)
}
