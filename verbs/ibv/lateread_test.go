//go:build linux && cgo && !portable

package ibv

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/mixed"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
	"golang.org/x/sys/unix"
)

// readEnd is one end of a connection of which Soft-RoCE reads.
type readEnd struct {
	ctx   verbs.Context
	pd    verbs.PD
	cq    verbs.CQ
	qp    verbs.QP
	gid   verbs.GIDEntry
	arena *mem.Arena
	mr    verbs.MR
}

const (
	shortRead = 64 << 10
	longRead  = 2 << 20
	readReqs  = longRead // where requests and completions lie
)

const readAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead

func newReadEnd(t *testing.T, c verbs.Context) *readEnd {
	e := &readEnd{ctx: c, gid: must.Get(verbs.ChooseGID(c, 1))(t)}
	keep := func(o verbs.Object) { t.Cleanup(func() { must.Do(t, o.Close()) }) }
	e.arena = must.Get(mem.Map(longRead+1<<16, mem.Options{}))(t)
	t.Cleanup(func() { must.Do(t, e.arena.Unmap()) })
	e.pd = must.Get(c.AllocPD())(t)
	keep(e.pd)
	e.cq = must.Get(c.CreateCQ(16, nil, 0, 0))(t)
	keep(e.cq)
	e.mr = must.Get(e.pd.RegMR(e.arena.Addr(), uint64(e.arena.Len()), e.arena.Addr(), readAccess))(t)
	keep(e.mr)
	e.qp = must.Get(e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	keep(e.qp)
	return e
}

// connect brings the end to RTS. It may have two READs outstanding.
func (e *readEnd) connect(t *testing.T, to *readEnd) {
	a := verbs.QPAttr{
		State: verbs.QPSInit, Port: 1, AccessFlags: readAccess, PathMTU: verbs.MTU1024, DestQPN: to.qp.Num(), RQPSN: 1000, SQPSN: 1000,
		MinRNRTimer: 12, MaxDestRdAtomic: 2, MaxRdAtomic: 2, Timeout: slowResponse, RetryCnt: 7, RNRRetry: 7,
		AH: verbs.AHAttr{DGID: to.gid.GID, SGIDIndex: uint8(e.gid.Index), Port: 1, HopLimit: 64},
	}
	must.Do(t, e.qp.Modify(&a, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	a.State = verbs.QPSRTR
	must.Do(t, e.qp.Modify(&a, verbs.QPMState|verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN|verbs.QPMMaxDestRdAtomic|verbs.QPMMinRNRTimer))
	a.State = verbs.QPSRTS
	must.Do(t, e.qp.Modify(&a, verbs.QPMState|verbs.QPMTimeout|verbs.QPMRetryCnt|verbs.QPMRNRRetry|verbs.QPMSQPSN|verbs.QPMMaxQPRdAtomic))
}

// read reads n bytes of the peer's memory at addr to the same place here, and calls meanwhile until the READ has
// completed.
func (e *readEnd) read(t *testing.T, from *readEnd, key uint32, n int, meanwhile func()) verbs.WCStatus {
	at := e.arena.Addr() + readReqs
	sge, _ := mem.At[verbs.SGE](e.arena, at)
	*sge = verbs.SGE{Addr: e.arena.Addr(), Length: uint32(n), LKey: e.mr.LKey()}
	wr, _ := mem.At[verbs.SendWR](e.arena, at+256)
	*wr = verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: at, NumSGE: 1}
	wr.SetRDMA(from.arena.Addr(), key)
	if _, err := verbs.PostSend(e.qp, at+256, 1); err != nil {
		t.Fatal(err)
	}
	wcs, _ := mem.Array[verbs.WC](e.arena, at+1024, 4)
	for end := time.Now().Add(devicePatience); time.Now().Before(end); {
		if must.Get(verbs.Poll(e.cq, wcs))(t) > 0 {
			return wcs[0].Status
		}
		meanwhile()
	}
	t.Fatalf("a READ of %d bytes has not completed in %v", n, devicePatience)
	return 0
}

// tap sees and sends the frames of an interface.
type tap struct{ fd int }

func newTap(t *testing.T, name string) *tap {
	ifc := must.Get(net.InterfaceByName(name))(t)
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // network order
	p := &tap{must.Get(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all))(t)}
	t.Cleanup(func() { must.Do(t, unix.Close(p.fd)) })
	must.Do(t, unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	must.Do(t, unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifc.Index}))
	return p
}

// readRequest returns the last READ request that left since the last call, nil if there is none.
func (p *tap) readRequest() (frame []byte) {
	const udp, bth = 14 + 20, 14 + 20 + 8
	b := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(p.fd, b, 0)
		if err != nil {
			return frame
		}
		if n > bth && binary.BigEndian.Uint16(b[12:]) == unix.ETH_P_IP && binary.BigEndian.Uint16(b[udp+2:]) == 4791 && wire.Opcode(b[bth]) == wire.RCReadRequest {
			frame = bytes.Clone(b[:n])
		}
	}
}

// Rule: late copies of an answered READ whose region is closed, and which is older than the READs that the peer may have
// outstanding, do nothing to Soft-RoCE in the middle of a long READ. (A NAK to such a copy fails that READ: rxe_comp.c,
// check_psn.)
func TestLateCopiesOfAReadToSoft(t *testing.T) {
	p := mixedPair(t)
	rnic, kernel := newReadEnd(t, p.A.Context), newReadEnd(t, p.B.Context)
	rnic.connect(t, kernel)
	kernel.connect(t, rnic)
	for i := range longRead / 8 {
		binary.NativeEndian.PutUint64(rnic.arena.Bytes()[8*i:], uint64(i)*0x9e3779b97f4a7c15)
	}
	out := newTap(t, "mixed0")
	copies := 0
	for round := range 2 {
		region := must.Get(rnic.pd.RegMR(rnic.arena.Addr(), shortRead, rnic.arena.Addr(), readAccess))(t)
		if s := kernel.read(t, rnic, region.RKey(), shortRead, func() {}); s != verbs.WCSuccess {
			t.Fatalf("round %d: the short READ completed with %v", round, s)
		}
		must.Do(t, region.Close())
		frame := out.readRequest()
		if frame == nil {
			t.Fatal("the READ request was not seen on the cable")
		}
		if s := kernel.read(t, rnic, rnic.mr.RKey(), shortRead, func() {}); s != verbs.WCSuccess {
			t.Fatalf("round %d: the READ between completed with %v", round, s)
		}
		clear(kernel.arena.Bytes()[:longRead])
		polls := 0
		s := kernel.read(t, rnic, rnic.mr.RKey(), longRead, func() {
			if polls++; polls%64 != 1 { // leave the processor to the READ
				return
			}
			if _, err := unix.Write(out.fd, frame); err == nil {
				copies++
			}
		})
		if s != verbs.WCSuccess {
			t.Fatalf("round %d, after %d copies of an older READ: the long READ completed with %v", round, copies, s)
		}
		if !bytes.Equal(kernel.arena.Bytes()[:longRead], rnic.arena.Bytes()[:longRead]) {
			t.Fatal("the long READ brought other bytes")
		}
	}
	if copies == 0 {
		t.Fatal("no copy was sent")
	}
	t.Logf("%d copies, on %s", copies, mixed.Device)
}
