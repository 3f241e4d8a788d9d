package soft

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"pgregory.net/rapid"
)

// deed is one thing that is done in both worlds of the test below.
type deed struct {
	op      verbs.WROpcode
	n       int // bytes
	flags   verbs.SendFlags
	spoil   string // what is wrong with it
	receive int    // bytes of a receive that b posts before; -1: none
	steps   int    // of the fabric afterwards
}

// spoils are what may be wrong with a request: mostly nothing.
var spoils = []string{"", "", "", "", "", "", "", "lkey", "rkey", "local range", "remote range", "long"}

func drawDeed(t *rapid.T) deed {
	d := deed{
		op:      rapid.SampledFrom([]verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMAWrite, verbs.WRSend, verbs.WRSend, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead}).Draw(t, "op"),
		n:       rapid.SampledFrom([]int{0, 1, 8, 8, 64, 65, 256, 257, 1024, 1025, 3000}).Draw(t, "n"),
		spoil:   rapid.SampledFrom(spoils).Draw(t, "spoil"),
		receive: rapid.SampledFrom([]int{4096, 4096, 4096, 8, -1}).Draw(t, "receive"),
		steps:   rapid.IntRange(0, 3).Draw(t, "steps"),
	}
	for _, f := range []verbs.SendFlags{verbs.SendSignaled, verbs.SendSolicited, verbs.SendFence, verbs.SendInline} {
		if rapid.IntRange(0, 3).Draw(t, f.String()) == 0 && (f != verbs.SendInline || d.op != verbs.WRRDMARead && d.n <= 256) {
			d.flags |= f
		}
	}
	return d
}

// play does all deeds in a world of its own and tells everything that came of
// them: packets, completions, and what is in memory.
func play(t *rapid.T, deeds []deed, o options, l fabric.Link, quick bool) string {
	w := newWorld(t, o)
	w.fab.SetAll(l)
	r := &recorder{w: w}
	w.fab.SetTrace(r.packet, true)
	for _, e := range []*peer{w.a, w.b} {
		fill(e.data(), byte(len(e.gid)))
		if !quick {
			e.qp.quickMax = 0
		}
	}
	for i, d := range deeds {
		if d.receive >= 0 {
			w.b.recv(uint64(i), w.b.sge(1<<18+i<<12, d.receive))
		}
		s := w.a.sge(i<<12, d.n)
		key, at := w.b.mr.RKey(), w.b.at(1<<19+i<<12)
		switch d.spoil {
		case "lkey":
			s.LKey ^= 1 << 20
		case "rkey":
			key ^= 1 << 20
		case "local range":
			s.Addr = w.a.at(w.a.arena.Len()) - 1
		case "remote range":
			at = w.b.at(w.b.arena.Len()) - 1
		case "long":
			s.Length = 100_000
		}
		if d.flags&verbs.SendInline != 0 && (d.spoil == "local range" || d.spoil == "long") {
			continue // refused at once
		}
		wr := w.a.send(uint64(i), d.op, d.flags, s)
		switch d.op {
		case verbs.WRSend:
		default:
			wr.SetRDMA(at, key)
		}
		if _, err := w.a.post(wr); err != nil {
			fmt.Fprintf(r, "request %d refused: %v\n", i, err)
		}
		for range d.steps {
			w.fab.Step()
		}
	}
	w.settle()
	for _, wc := range w.a.poll(w.a.scq) {
		fmt.Fprintf(r, "completion %+v\n", wc)
	}
	for _, wc := range w.b.poll(w.b.rcq) {
		fmt.Fprintf(r, "receive %+v\n", wc)
	}
	fmt.Fprintf(r, "states %v %v memory %x %x\n", w.a.qp.current(), w.b.qp.current(), xxhash.Sum64(w.a.data()), xxhash.Sum64(w.b.data()))
	w.fab.SetTrace(nil, false)
	return strings.NewReplacer(fmt.Sprint(w.a.qp.Num()), "qp a", fmt.Sprint(w.b.qp.Num()), "qp b").Replace(r.String())
}

// Rule: the quick way does what the general way does: the same packets, the same
// completions and the same memory come of the same requests, also where something is
// wrong with them or the link is bad. Without a size that is quick enough only what
// is empty goes the quick way.
func TestQuickWayIsTheGeneralWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := options{
			seed: rapid.Uint64().Draw(t, "seed"), jumbo: true,
			mtu:  rapid.SampledFrom([]verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTUJumbo}).Draw(t, "mtu"),
			cap:  verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 256},
			attr: func(a *verbs.QPAttr) { a.RNRRetry = 2 }, // seven is for ever
		}
		if rapid.IntRange(0, 7).Draw(t, "no remote access") == 0 {
			o.access = verbs.AccessLocalWrite
		}
		l := fabric.Link{
			Loss:    rapid.SampledFrom([]float64{0, 0, 0.05}).Draw(t, "loss"),
			Dup:     rapid.SampledFrom([]float64{0, 0, 0.2}).Draw(t, "dup"),
			Reorder: rapid.SampledFrom([]float64{0, 0, 0.1}).Draw(t, "reorder"),
			Delay:   rapid.SampledFrom([]time.Duration{0, 2 * time.Microsecond}).Draw(t, "delay"),
		}
		deeds := rapid.SliceOfN(rapid.Custom(drawDeed), 1, 40).Draw(t, "deeds")
		one, other := play(t, deeds, o, l, true), play(t, deeds, o, l, false)
		if one != other {
			t.Fatalf("the quick way\n%s\nthe general way\n%s", one, other)
		}
	})
}
