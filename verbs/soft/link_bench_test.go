package soft_test

import (
	crand "crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// linkEnd is one end of a connection between devices of two processes.
type linkEnd struct {
	end  roceEnd
	dest bootstrap.Dest
	qp   verbs.QP
	pd   verbs.PD
	ctx  verbs.Context
	mr   verbs.MR
	wr   *verbs.SendWR
	at   uint64 // of wr
	look verbs.IOBatch
}

func newLinkEnd(b testing.TB, end roceEnd, size int) *linkEnd {
	const records = 2048
	ctx := end.ctx
	close := func(o verbs.Object) { b.Cleanup(func() { must.Do(b, o.Close()) }) }
	pd := must.Get(ctx.AllocPD())(b)
	close(pd)
	cq := must.Get(ctx.CreateCQ(16, nil, 0, 0))(b)
	close(cq)
	m := must.Get(verbs.AllocMemory(records + size))(b)
	close(m)
	mr := must.Get(pd.RegMR(m.Addr(), uint64(records+size), m.Addr(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(b)
	close(mr)
	qp := must.Get(pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 2, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(b)
	close(qp)
	sges, sgesAt := verbs.Records[verbs.SGE](m, 0, 1)
	sges[0] = verbs.SGE{Addr: mr.Addr() + records, Length: uint32(size), LKey: mr.LKey()}
	wrs, wrsAt := verbs.Records[verbs.SendWR](m, 256, 1)
	wrs[0] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: sgesAt, NumSGE: 1, Flags: verbs.SendSignaled}
	wcs, _ := verbs.Records[verbs.WC](m, 512, 4)
	return &linkEnd{end, bootstrap.Dest{}, qp, pd, ctx, mr, &wrs[0], wrsAt, verbs.IOBatch{Polls: []verbs.PollGroup{{CQ: cq, WC: wcs}}}}
}

// poll returns the number of completions.
func (e *linkEnd) poll(b testing.TB) int {
	err := e.ctx.Execute(&e.look)
	p := &e.look.Polls[0]
	for i := range p.N {
		if err == nil {
			err = p.WC[i].Err()
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	return p.N
}

// newLinkPair connects devices of two processes. Each has memory of size bytes.
func newLinkPair(b testing.TB, size int) [2]*linkEnd { return newFanIn(b, 1, size)[0] }

// newFanIn connects devices of n processes with one, the second of each pair.
func newFanIn(b testing.TB, n, size int) (pairs [][2]*linkEnd) {
	if !udp.ReportsTo {
		b.Skip("the portable socket does not choose its source: devices of one machine would have one address")
	}
	right := openPeer(b, "right", "127.0.0.2", verbs.MTU4096)
	for i := range n {
		name, addr := "left", "127.0.0.1"
		if i > 0 {
			name, addr = fmt.Sprint("left", i), fmt.Sprint("127.0.1.", i)
		}
		left := openPeer(b, name, addr, verbs.MTU4096)
		pairs = append(pairs, connectEnds(b, 0, newLinkEnd(b, left, size), newLinkEnd(b, right, size)))
	}
	return pairs
}

// connectEnds connects two ends by an entry of their address tables.
func connectEnds(b testing.TB, entry int, ends ...*linkEnd) [2]*linkEnd {
	var path [2]bootstrap.Path
	for i, e := range ends {
		var err error
		path[i], e.dest, err = bootstrap.Path{GIDIndex: entry + 1}.On(e.ctx)
		must.Do(b, err)
		e.dest.QPN, e.dest.PSN = e.qp.Num(), bootstrap.RandomPSN()
		must.Do(b, path[i].Init(e.qp))
	}
	for i, e := range ends {
		must.Do(b, path[i].Connect(e.qp, e.dest.PSN, ends[1-i].dest))
		other := ends[1-i].mr
		e.wr.SetRDMA(other.Addr()+2048, other.RKey())
	}
	return [2]*linkEnd(ends)
}

// write writes from one end to the other, and polls both until that has completed.
func (e *linkEnd) write(b testing.TB, to *linkEnd) {
	if _, err := verbs.PostSend(e.qp, e.at, 1); err != nil {
		b.Fatal(err)
	}
	for e.poll(b) == 0 {
		to.poll(b)
	}
}

// BenchmarkLink is an 8-byte WRITE between devices of two processes, on one goroutine: what both ends and
// the system take, without any waiting.
func BenchmarkLink(b *testing.B) {
	ends := newLinkPair(b, 8)
	b.ReportAllocs()
	for b.Loop() {
		ends[0].write(b, ends[1])
	}
}

// BenchmarkLinkFanIn is BenchmarkLink with several processes that write to one in turn.
func BenchmarkLinkFanIn(b *testing.B) {
	for _, n := range []int{2, 4, 8, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pairs := newFanIn(b, n, 8)
			for i := 0; b.Loop(); i++ {
				p := pairs[i%n]
				p[0].write(b, p[1])
			}
		})
	}
}

// flood sends junk to an address, as fast as the system takes it, until the test ends.
func flood(b testing.TB, to netip.AddrPort) {
	s := must.Get(udp.Listen(netip.MustParseAddrPort("127.0.0.3:0"), udp.Options{}))(b)
	outs := make([]udp.Out, udp.MaxBatch)
	for i := range outs {
		junk := make([]byte, 64)
		_, _ = crand.Read(junk) // it does not fail
		outs[i] = udp.Out{To: to, Data: junk}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = s.Send(outs) // a refused one does no harm
			}
		}
	}()
	b.Cleanup(func() {
		close(stop)
		<-stopped
		must.Do(b, s.Close())
	})
}

// port returns the address of the port of an end.
func (e *linkEnd) port() netip.AddrPort { return netip.AddrPortFrom(e.dest.GID.Addr(), e.dest.LID) }

// BenchmarkFlood is a WRITE of 4 KiB as in BenchmarkLink, beside a flood of junk: to the port of the end
// that is written to, and, for comparison, to a socket that another goroutine reads.
func BenchmarkFlood(b *testing.B) {
	for _, name := range []string{"read elsewhere", "at the port"} {
		b.Run(name, func(b *testing.B) {
			ends := newLinkPair(b, 4096)
			ends[0].write(b, ends[1])
			to := ends[1].port()
			if name == "read elsewhere" {
				s := must.Get(net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.4:0"))))(b)
				read := make(chan struct{})
				b.Cleanup(func() {
					must.Do(b, s.Close())
					<-read
				})
				go func() {
					defer close(read)
					buf := make([]byte, 128)
					for err := error(nil); err == nil; {
						_, _, err = s.ReadFromUDPAddrPort(buf)
					}
				}()
				to = s.LocalAddr().(*net.UDPAddr).AddrPort()
			}
			flood(b, to)
			for b.Loop() {
				ends[0].write(b, ends[1])
			}
		})
	}
}
