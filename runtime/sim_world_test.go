package runtime

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// simWorld is the simulation. Several runtimes run on one goroutine, in virtual time. A seed determines
// the faults of the links between the runtimes. A model has the expected effect of each operation. When
// the effect of an operation is certain, the simulation compares the real effect with the model.
//
//	simWorld ─┬─ simNode   a runtime, its listeners, the memory that peers use
//	          ├─ simPair   a dialed connection, with its two ends
//	          │    └─ simEnd   a Conn, its outstanding operations and receives
//	          └─ simTrace  the hash of all packets and outcomes
//
// One round of the method run has these steps:
//
//  1. disturb() may start disturbances.
//  2. reconnect() may dial a new connection.
//  3. The nodes and the ends of connections start some operations.
//  4. The reactors and devices do a few steps.
//  5. collect() takes the results and checks them.
//  6. If the reactors and devices have no work at the present virtual time, the time advances.
type simWorld struct {
	seed  uint64
	r     simRand
	fab   *fabric.Fabric
	prov  *soft.Provider
	nodes []*simNode
	pairs []*simPair
	// orphans are accepted connections whose dialing end has given up.
	orphans []*Conn
	trace   *simTrace
	ended   context.Context // givenUp

	nextPair, nextOp uint64
	issued, target   int
	counts           [opKinds][outcomes]int
	events           [simEvents]int
	ways             [simWays]simWay
	broken           string // the first error that note() has recorded; "": none
	polled           uint64 // how many completions all reactors together had polled at the end of the last turn()
	space            []byte // the buffer of fill()
	// datagrams[i] is the last datagram whose number is i modulo simRemembered. numbers[i] is the
	// number of that datagram. nextDatagram is the number of the next datagram.
	nextDatagram uint32
	datagrams    [simRemembered]simDatagram
	numbers      [simRemembered]uint32

	heavy   bool          // the links lose so many packets that connections may fail
	cut     int           // the node that is cut off; -1: none
	healAt  time.Duration // the virtual time at which the node is connected again
	oneWay  *simOneWay    // a link cut in one direction; nil: none
	calmAt  time.Duration // the virtual time at which changeLink gives the links other faults
	opened  int           // connections established at both ends
	blames  int           // failed dials, and ends whose connection has failed or was closed
	cancels int           // calls of simEnd.cancel
}

// simFailure describes a broken rule. If a rule is broken, the run ends with a panic of this value.
type simFailure struct{ why string }

func (w *simWorld) fail(format string, args ...any) {
	panic(simFailure{fmt.Sprintf(format, args...)})
}

// note() records a broken rule without a panic. The next call of collect() fails with this error.
func (w *simWorld) note(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

const (
	simNodes   = 3
	simPairs   = 8    // the largest number of connections at a time
	simMaxMsg  = 4096 // the devices' largest message in bytes: longer transfers are split
	simMsgSize = 2000 // the MessageSize of connections
)

// givenUp is a context that has ended since a call began: a call with it begins, and does not wait. errGivenUp is the error.
var (
	givenUp = func() reactor.DoneContext {
		c := make(chan struct{})
		close(c)
		return c
	}()
	errGivenUp = givenUp.Err()
)

func newSimWorld(seed uint64, target int) *simWorld {
	w := &simWorld{seed: seed, r: newSimRand(seed), target: target, trace: newSimTrace(), cut: -1}
	w.ended = givenUp
	w.fab = fabric.New(fabric.Config{Virtual: true, Seed: seed})
	mtus := []verbs.MTU{verbs.MTU512, verbs.MTU1024, verbs.MTU4096}
	var devs []soft.DeviceConfig
	for i := range simNodes {
		devs = append(devs, soft.DeviceConfig{
			Name: fmt.Sprintf("sim%d", i), Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}),
			MTU: mtus[w.r.IntN(len(mtus))], Limits: soft.Limits{MaxMsgSize: simMaxMsg},
		})
	}
	var err error
	if w.prov, err = soft.New(soft.Config{Fabric: w.fab, Devices: devs}); err != nil {
		w.fail("making the provider: %v", err)
	}
	w.fab.SetTrace(w.trace.packet, true)
	for i, d := range devs {
		n := &simNode{w: w, i: i, name: d.Name, addr: d.Addr, gid: verbs.GIDFromAddr(d.Addr)}
		n.open()
		w.nodes = append(w.nodes, n)
	}
	return w
}

func (w *simWorld) now() time.Duration { return w.fab.Now() }

// turn() lets every reactor and every device do one step. It returns false if none of them had work
// at the present virtual time.
func (w *simWorld) turn() bool {
	var polled uint64
	pending := false
	for _, n := range w.nodes {
		for _, s := range n.shards() {
			s.r.Step()
		}
	}
	busy := w.fab.Step()
	for _, n := range w.nodes {
		for _, s := range n.shards() {
			at := s.r.NextTimer()
			pending = pending || !at.IsZero() && time.Duration(at.UnixNano()) <= w.fab.Now()
			polled += s.r.Stats().Polled
		}
	}
	busy = busy || pending || polled != w.polled
	w.polled = polled
	return busy
}

// advance() moves virtual time to the next event, but at most by limit. If there is no next event,
// advance() moves virtual time by limit and returns false.
func (w *simWorld) advance(limit time.Duration) bool {
	next, some := w.fab.NextEvent()
	for _, n := range w.nodes {
		for _, s := range n.shards() {
			if at := s.r.NextTimer(); !at.IsZero() && (!some || time.Duration(at.UnixNano()) < next) {
				next, some = time.Duration(at.UnixNano()), true
			}
		}
	}
	if !some || next > w.now()+limit {
		next = w.now() + limit
	}
	w.fab.AdvanceTo(next)
	return some
}

// run() runs the simulation to its end, and returns the hash of the trace.
func (w *simWorld) run() uint64 {
	nextPause := simPause
	for w.issued < w.target {
		if w.issued >= nextPause {
			w.settleAll()
			nextPause = w.issued + simPause
		}
		w.disturb()
		w.reconnect()
		for _, n := range w.nodes {
			if n.up() {
				n.srq.act()
				n.packets.act()
			}
		}
		for _, p := range w.pairs {
			for _, e := range p.ends {
				if e != nil {
					e.act()
				}
			}
		}
		busy := true
		for n := w.r.between(1, 5); n > 0 && busy; n-- {
			busy = w.turn()
		}
		w.collect()
		if !busy {
			limit := w.r.span(time.Microsecond, 300*time.Microsecond)
			if w.r.one(60) { // no new operations for a while
				limit = w.r.span(time.Millisecond, 700*time.Millisecond)
			}
			w.rest(limit)
		}
	}
	w.settleAll()
	w.finish()
	for i := range w.counts {
		for _, n := range w.counts[i] {
			w.trace.note(uint64(n))
		}
	}
	return w.trace.d.Sum64()
}

// rest() advances virtual time by limit without new operations.
func (w *simWorld) rest(limit time.Duration) {
	for until := w.now() + limit; w.now() < until; {
		w.advance(until - w.now())
		for n := 0; n < 50 && w.turn(); n++ {
		}
		w.collect()
	}
}

// collect() takes new connections, results and messages. It removes pairs and orphans that have
// ended.
func (w *simWorld) collect() {
	if w.broken != "" {
		w.fail("%s", w.broken)
	}
	for _, n := range w.nodes {
		n.collect()
	}
	kept := w.pairs[:0]
	for _, p := range w.pairs {
		if !p.collect() {
			kept = append(kept, p)
		}
	}
	clear(w.pairs[len(kept):])
	w.pairs = kept
	left := w.orphans[:0]
	for _, c := range w.orphans {
		if !isGone(c) {
			left = append(left, c)
		}
	}
	w.orphans = left
}

// fillFrom fills b with bytes that depend only on seed.
func fillFrom(b []byte, seed uint64) {
	x := seed*0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019
	for len(b) > 0 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], x)
		b = b[copy(b, w[:]):]
	}
}

// clean() reports whether all bytes of b are poison (mem.PoisonByte).
func clean(b []byte) bool { return mem.Poisoned(b) < 0 }

// simTrace is the hash of a run. It covers each packet, what the link did with the packet, and the
// outcome of each operation, in order. The addresses of memory differ between runs, so the hash covers
// only the offset of an address in its page.
type simTrace struct {
	d       xxhash.Digest
	packets uint64
	fates   [8]uint64
	dups    uint64
}

// The address of every memory mapping is a multiple of simPage bytes.
const simPage = 4096

func newSimTrace() *simTrace {
	t := &simTrace{}
	t.d.Reset()
	return t
}

func (t *simTrace) note(words ...uint64) {
	var b [8]byte
	for _, w := range words {
		binary.LittleEndian.PutUint64(b[:], w)
		t.d.Write(b[:]) // this Write never returns an error
	}
}

func (t *simTrace) packet(ev fabric.Event) {
	t.packets++
	t.fates[ev.Verdict]++
	if ev.Copy {
		t.dups++
	}
	var hdr [wire.MaxHeader]byte
	n := copy(hdr[:], ev.Hdr)
	var h wire.Header
	if _, err := wire.Parse(hdr[:n], &h); err == nil && h.VA != 0 {
		// The address is at the beginning of the RETH or AtomicETH. In a FLUSH, this header follows
		// the FETH; otherwise it follows the BTH.
		at := wire.BTHLen
		if h.Opcode.Ext()&wire.ExtFETH != 0 {
			at += wire.FETHLen
		}
		binary.BigEndian.PutUint64(hdr[at:], h.VA%simPage)
	}
	t.d.Write(ev.Src[:])
	t.d.Write(ev.Dst[:])
	t.d.Write(hdr[:n])
	t.note(uint64(ev.Now), ev.Ordinal, ev.PayloadHash, uint64(ev.Verdict), uint64(ev.Due))
}

// simRand is the only source of randomness of a run.
type simRand struct{ *rand.Rand }

func newSimRand(seed uint64) simRand { return simRand{rand.New(rand.NewPCG(seed, 0x76657262656e61))} }

// one() returns true with the probability 1/n.
func (r simRand) one(n int) bool { return r.IntN(n) == 0 }

// between() returns a random number from lo to hi, both included.
func (r simRand) between(lo, hi int) int { return lo + r.IntN(hi-lo+1) }

func (r simRand) span(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(r.Int64N(int64(hi-lo)+1))
}
