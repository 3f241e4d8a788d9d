package soft

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// The memory of each end of a living connection: the source of everything sent, and areas for what comes from the peer.
// Each transfer has its own place.
const (
	livingSrc   = 0
	livingWord  = 16 << 10 // target of the peer's atomics
	livingDst   = 64 << 10
	livingRecv  = 256 << 10
	livingRead  = 384 << 10
	livingOther = 448 << 10 // receives of queue pairs without a checked connection
	livingEnd   = 512 << 10
	livingMTU   = 1024
)

// living is a world of two devices with a connection of each service, the reliable ones in use in both directions.
type living struct {
	*world
	ends    []func() // closes the world; not t.Cleanup: after a panic of the engine Close would wait for its token
	qps     []*queuePair
	srqn    uint32
	dirs    [2]*direction
	packets []packet // seen on the links, the latest
}

// direction is what one end asks of the other, one request after the other.
type direction struct {
	x                *living
	from, to         *peer
	dst, recvd, read int // next free places
	id, recvID       uint64
	adds             uint64
	checks           []func() error
	// shut are the regions and windows that are closed when their READ has completed, by its id.
	shut map[uint64]verbs.Object
}

// packet is a packet that an end sent.
type packet struct {
	h    wire.Header
	n    int // bytes of payload
	from *peer
}

// livingT is the testing.TB of the harness.
type livingT struct {
	*testing.T
	x *living
}

func (t livingT) Cleanup(fn func()) { t.x.ends = append(t.x.ends, fn) }

func newLiving(t *testing.T, seed uint64) *living {
	x := &living{}
	lt := livingT{t, x}
	x.world = newWorld(lt, options{
		seed: seed, access: flushGlobal | verbs.AccessMWBind, lossy: seed&1 != 0,
		cap: verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 2, MaxRecvSGE: 2},
	})
	x.qps = []*queuePair{x.a.qp, x.b.qp}
	for _, kind := range []verbs.QPType{verbs.QPTUC, verbs.QPTUD} {
		x.pair(x.a.ofKind(kind), x.b.ofKind(kind))
	}
	dom := must.Get(x.b.ctx.OpenXRCD(-1, os.O_CREATE))(lt)
	srq := must.Get(x.b.pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 64, MaxSGE: 1, XRCD: dom, CQ: x.b.scq}))(lt).(*sharedQueue)
	recv := must.Get(dom.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTXRCRecv}))(lt)
	x.before = append(x.before, recv, srq, dom)
	x.srqn = srq.Num()
	x.pair(x.a.ofKind(verbs.QPTXRCSend), recv.(*xrcReceiver).q)
	for i, e := range []*peer{x.a, x.b} {
		mem.Poison(e.data())
		fill(e.data()[livingSrc:livingWord], byte(i+1))
		clear(e.data()[livingWord:livingDst])
		x.dirs[i] = &direction{x: x, from: e, to: []*peer{x.b, x.a}[i], dst: livingDst, recvd: livingRecv, read: livingRead, shut: map[uint64]verbs.Object{}}
	}
	for i := range 16 {
		for _, q := range x.qps[2:] {
			if e := x.owner(q); q.xrc == nil && q.kind != verbs.QPTXRCSend {
				e.recvOn(q, uint64(1000+i), e.sge(livingOther, 2048))
			}
		}
	}
	x.fab.SetTrace(func(ev fabric.Event) {
		p := packet{n: ev.PayloadLen, from: x.a}
		if ev.Src == x.b.gid {
			p.from = x.b
		}
		if _, err := wire.Parse(ev.Hdr, &p.h); err == nil && !ev.Copy {
			x.packets = append(x.packets, p)
		}
	}, false)
	return x
}

// ofKind makes a queue pair of another type.
func (e *peer) ofKind(kind verbs.QPType) *queuePair {
	o := must.Get(e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: e.scq, RecvCQ: e.scq, Type: kind, Cap: e.qp.granted}))(e.w.t)
	e.w.closing(o)
	return o.(*queuePair)
}

func (x *living) owner(q *queuePair) *peer {
	if q.dev == x.a.ctx.dev {
		return x.a
	}
	return x.b
}

// pair connects two queue pairs.
func (x *living) pair(qs ...*queuePair) {
	for i, q := range qs {
		to := qs[1-i]
		a := verbs.QPAttr{
			PathMTU: verbs.MTU1024, RQPSN: 0xfffff0, SQPSN: 0xfffff0, AccessFlags: flushGlobal, Port: 1, QKey: testQKey, DestQPN: to.number,
			MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 1, Timeout: 8, RetryCnt: 7, RNRRetry: 7,
		}
		a.AH.DGID, a.AH.Port = x.owner(to).gid, 1
		for _, a.State = range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS} {
			must.Do(x.t, q.modify(&a, verbs.QPMState|needs(q.kind, a.State)))
		}
	}
	x.qps = append(x.qps, qs...)
}

// ask posts one request, of kind modulo 6. A READ is of a region or through a window of its own, which
// is closed when the READ has completed.
func (d *direction) ask(kind byte, n int) {
	if n = min(n, 4000); d.id == 30 { // the places are used up
		return
	}
	from, to, id := d.from, d.to, d.id
	d.id++
	same := func(what string, e *peer, at int, want []byte) {
		d.checks = append(d.checks, func() error {
			if got := e.data()[at : at+n]; !bytes.Equal(got, want) {
				return fmt.Errorf("request %d, a %s of %d bytes, brought other bytes", id, what, n)
			}
			return nil
		})
	}
	src := from.data()[livingSrc : livingSrc+n]
	wr := from.send(id, verbs.WRRDMAWrite, verbs.SendSignaled, from.sge(livingSrc, n))
	switch kind % 6 {
	case 0:
		wr.SetRDMA(to.at(d.dst), to.mr.RKey())
		same("WRITE", to, d.dst, src)
		d.dst += n
	case 1, 2:
		if wr.Opcode = verbs.WRSend; kind%6 == 2 {
			wr.Opcode = verbs.WRSendWithImm
			wr.SetImm(uint32(id))
		}
		to.recv(d.recvID, to.sge(d.recvd, n))
		same("SEND", to, d.recvd, src)
		d.recvd += n
		d.recvID++
	case 3:
		wr = from.send(id, verbs.WRAtomicFetchAndAdd, verbs.SendSignaled, from.sge(d.read, 8))
		wr.SetFetchAdd(to.at(livingWord), to.mr.RKey(), 1)
		at, found := d.read, d.adds
		d.read += 8
		d.adds++
		d.checks = append(d.checks, func() error {
			if got := from.word(at); got != found {
				return fmt.Errorf("request %d, an atomic, found %d, want %d", id, got, found)
			}
			return nil
		})
	default:
		n = min(n, 2000)
		var key uint32
		if kind%6 == 4 {
			mr := must.Get(to.pd.RegMR(to.at(livingSrc), livingWord, to.at(livingSrc), flushGlobal))(d.x.t)
			d.shut[id], key = mr, mr.RKey()
		} else {
			mw := to.newMW(verbs.MWType2)
			key = verbs.IncRKey(mw.RKey())
			bind := sendWQE{remote: to.at(livingSrc), arg1: livingWord, arg2: mw.Handle()<<32 | to.mr.Handle(), rkey: key, imm: uint32(verbs.AccessRemoteRead)}
			to.ctx.dev.exclusive(func() {
				if !to.qp.bind(&bind) {
					d.x.t.Fatalf("the window cannot be bound")
				}
			})
			d.shut[id] = mw
		}
		wr = from.send(id, verbs.WRRDMARead, verbs.SendSignaled, from.sge(d.read, n))
		wr.SetRDMA(to.at(livingSrc), key)
		same("READ", from, d.read, to.data()[livingSrc:livingSrc+n])
		d.read += (n + 7) &^ 7
	}
	from.mustPost(wr)
}

// collect takes completions and closes what the completed READs have read. It returns an error for one that is not the
// next, or not a success.
func (d *direction) collect(next *uint64) error {
	for _, c := range d.from.poll(d.from.scq) {
		if c.QPNum != d.from.qp.number {
			continue
		}
		if c.Status != verbs.WCSuccess || c.WRID != *next {
			return fmt.Errorf("the completion of request %d is %d %v", *next, c.WRID, c.Status)
		}
		if o := d.shut[*next]; o != nil {
			delete(d.shut, *next)
			must.Do(d.x.t, o.Close())
		}
		*next++
	}
	return nil
}

// run lets d time pass, or all of it if d is negative.
func (x *living) run(d time.Duration, done *[2]uint64) error {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(os.Stderr, "the engine: %v\n%s", r, debug.Stack())
			os.Exit(2) // its token is not given back
		}
	}()
	end := x.fab.Now() + d
	for {
		x.step()
		for i := range x.dirs {
			if err := x.dirs[i].collect(&done[i]); err != nil {
				return err
			}
		}
		at, ok := x.fab.NextEvent()
		if !ok || d >= 0 && at > end {
			if d >= 0 {
				x.fab.AdvanceTo(end)
			}
			return nil
		}
		x.fab.AdvanceTo(at)
	}
}

// verdict compares everything with what was asked.
func (x *living) verdict(done [2]uint64) error {
	for i, d := range x.dirs {
		if done[i] != d.id {
			return fmt.Errorf("%d of %d requests completed", done[i], d.id)
		}
		got := d.to.poll(d.to.rcq)
		for j, c := range got {
			if c.Status != verbs.WCSuccess || c.WRID != uint64(j) {
				return fmt.Errorf("receive %d completes as %d %v", j, c.WRID, c.Status)
			}
		}
		if uint64(len(got)) != d.recvID {
			return fmt.Errorf("%d receives completed, want %d", len(got), d.recvID)
		}
		for _, check := range d.checks {
			if err := check(); err != nil {
				return err
			}
		}
		if n := d.to.word(livingWord); n != d.adds {
			return fmt.Errorf("the word is %d after %d atomics", n, d.adds)
		}
	}
	return nil
}

// outside returns an error if a byte was written that belongs to no transfer.
func (x *living) outside() error {
	for _, d := range x.dirs {
		for _, free := range [][2]int{{d.recvd, livingRead}, {livingEnd, d.to.arena.Len()}} {
			if at := mem.Poisoned(d.to.data()[free[0]:free[1]]); at >= 0 {
				return fmt.Errorf("a byte outside every transfer was written, at %d", free[0]+at)
			}
		}
	}
	return nil
}

// finish closes everything.
func (x *living) finish() {
	x.fab.SetTrace(nil, false)
	for _, d := range x.dirs {
		for _, o := range d.shut {
			must.Do(x.t, o.Close())
		}
		d.from.events()
	}
	for _, fn := range x.ends {
		fn()
	}
}
