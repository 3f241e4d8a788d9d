package runtime

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// The simulation: several runtimes on one goroutine and on virtual time, over a
// link that a seed makes bad. What the operations should do is kept in a model
// beside them; everything that can be compared is compared at the moment when
// it must be so.
//
//	simWorld ─┬─ simNode   a runtime, its listeners, the memory that peers use
//	          ├─ simPair   a connection that was asked for, with its two ends
//	          │    └─ simEnd   a Conn, its operations and receives under way
//	          └─ simTrace  the hash of it all
//
// One round: something may break; each end starts some operations; everything is
// turned a few times; outcomes are taken and checked; if nothing is left to do
// now, time goes on.
type simWorld struct {
	seed  uint64
	r     simRand
	fab   *fabric.Fabric
	prov  *soft.Provider
	nodes []*simNode
	pairs []*simPair
	// orphans are accepted connections whose other end has given up before.
	orphans []*Conn
	trace   *simTrace
	ended   context.Context // done: what waits on it never waits

	nextPair, nextOp uint64
	issued, target   int
	counts           [opKinds][outcomes]int
	events           [simEvents]int
	ways             [simWays]simWay
	broken           string // the first rule broken where nobody could fail; "": none
	polled           uint64
	space            []byte // fill gives it
	// The datagrams sent last, by their number, and which number that is.
	nextDatagram uint32
	datagrams    [simRemembered]simDatagram
	numbers      [simRemembered]uint32

	heavy   bool // the link loses so much that connections may fail
	cut     int  // the node that is cut off, -1: none
	healAt  time.Duration
	oneWay  *simOneWay    // a link cut in one direction; nil: none
	calmAt  time.Duration // when the link's script changes again
	opened  int           // connections established at both ends
	blames  int           // of those, how many failed
	cancels int           // of those, how many were cancelled
}

// simFailure is a broken rule: the run ends with it.
type simFailure struct{ why string }

func (w *simWorld) fail(format string, args ...any) {
	panic(simFailure{fmt.Sprintf(format, args...)})
}

// note is fail, for later.
func (w *simWorld) note(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

const (
	simNodes   = 3
	simPairs   = 8
	simMaxMsg  = 4096 // of the device: longer transfers are split
	simMsgSize = 2000 // of a managed message
)

func newSimWorld(seed uint64, target int) *simWorld {
	w := &simWorld{seed: seed, r: newSimRand(seed), target: target, trace: newSimTrace(), cut: -1}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.ended = ctx
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
		w.fail("%v", err)
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

// turn lets every reactor and every device do one step; false when there was
// nothing to do at this time.
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

// advance moves the clock to the next thing that happens, at most by limit;
// false when nothing ever will.
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

// run is the whole life of a world. It returns the hash of its trace.
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
			if w.r.one(60) { // everybody thinks for a while
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

// rest lets time pass without new operations.
func (w *simWorld) rest(limit time.Duration) {
	for until := w.now() + limit; w.now() < until; {
		w.advance(until - w.now())
		for n := 0; n < 50 && w.turn(); n++ {
		}
		w.collect()
	}
}

// collect takes what has come: connections, results, messages, ends.
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
