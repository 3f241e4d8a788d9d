package verbstest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// flowSlot is the memory of one operation of a flow; messages have at most this many bytes,
// several packets at the smaller MTUs.
const flowSlot = 6000

// flow is a stream of mixed operations from one queue pair to its peer, with as many outstanding
// as the send queue holds. Each operation has memory of its own, so that an operation executed
// twice, late or in part is detected:
//
//	SEND, WRITE, READ  move their slot's pattern; the rest stays poisoned
//	FETCH_AND_ADD      adds 1 to one word: results count up, none missing
//	CMP_AND_SWP        turns k into k+1: each must succeed once
type flow struct {
	c        *Case
	from, to *QP
	ops      []flowOp
	mine     *Region // at from: the source, or the buffer of a READ
	theirs   *Region // at to
	res      *Region // atomic results
	words    *Region // at to: word 0 is added to, word 8 swapped
	next     int
	done     int
	recvd    int
	recvs    []int // operations that consume a receive, in order
}

type flowOp struct {
	op     verbs.WROpcode
	n      int
	expect uint64 // atomic result
}

// messages are the operations that return no data; everything are all operations.
var (
	messages   = []verbs.WROpcode{verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm}
	everything = append(slices.Clone(messages), verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp)
)

func (c *Case) flow(from, to *QP, kinds []verbs.WROpcode, n int, seed uint64) *flow {
	rng := rand.New(rand.NewPCG(seed, 1))
	f := &flow{
		c: c, from: from, to: to,
		mine: from.end.region(n * flowSlot), theirs: to.end.region(n * flowSlot).poison(),
		res: from.end.region(8 * n), words: to.end.region(16),
	}
	var adds, swaps uint64
	for i := range n {
		o := flowOp{op: kinds[rng.IntN(len(kinds))], n: rng.IntN(flowSlot - 8)}
		if rng.IntN(8) == 0 {
			o.n = rng.IntN(3)
		}
		at := i * flowSlot
		switch o.op {
		case verbs.WRAtomicFetchAndAdd:
			o.expect = adds
			adds++
		case verbs.WRAtomicCmpAndSwp:
			o.expect = swaps
			swaps++
		case verbs.WRRDMARead:
			fill(f.theirs.bytes()[at:at+o.n], i)
		case verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWriteWithImm:
			f.recvs = append(f.recvs, i)
		}
		if o.op != verbs.WRRDMARead {
			fill(f.mine.bytes()[at:at+o.n], i)
		}
		f.ops = append(f.ops, o)
	}
	return f
}

// pump posts as many operations as fit and takes completions; it reports whether all are done.
func (f *flow) pump() bool {
	c := f.c
	for f.next < len(f.ops) && f.next-f.done < f.from.o.sends {
		i, o, at := f.next, f.ops[f.next], f.next*flowSlot
		src := f.mine.sge(at, o.n)
		var r SR
		switch o.op {
		case verbs.WRSend:
			r = sendOf(uint64(i), src)
		case verbs.WRSendWithImm:
			r = sendImmOf(uint64(i), uint32(i), src)
		case verbs.WRRDMAWrite:
			r = writeOf(uint64(i), f.theirs, at, src)
		case verbs.WRRDMAWriteWithImm:
			r = writeImmOf(uint64(i), uint32(i), f.theirs, at, src)
		case verbs.WRRDMARead:
			r = readOf(uint64(i), f.theirs, at, src)
		case verbs.WRAtomicFetchAndAdd:
			r = addOf(uint64(i), f.words, 0, 1, f.res.sge(8*i, 8))
		case verbs.WRAtomicCmpAndSwp:
			r = casOf(uint64(i), f.words, 8, o.expect, o.expect+1, f.res.sge(8*i, 8))
		}
		switch o.op {
		case verbs.WRSend, verbs.WRSendWithImm:
			f.to.recv(RR{id: uint64(i), sg: sg(f.theirs.sge(at, flowSlot))})
		case verbs.WRRDMAWriteWithImm:
			f.to.recv(RR{id: uint64(i)})
		}
		f.from.send(r)
		f.next++
	}
	for f.from.scq.poll() > 0 {
	}
	for _, w := range f.from.scq.got {
		if w.Status != verbs.WCSuccess {
			c.failf("%v number %d of the flow from %s failed: %s\n%s\n%s", f.ops[f.done].op, f.done, f.from.end.name, show(w), f.from.tell(), f.to.tell())
		}
		f.from.sent(w, uint64(f.done), f.ops[f.done].op.Completion())
		f.done++
	}
	f.from.scq.got = nil
	for f.to.rcq.poll() > 0 {
	}
	for _, w := range f.to.rcq.got {
		if f.recvd == len(f.recvs) {
			c.failf("%d messages were sent, one more was received: %s", len(f.recvs), show(w))
		}
		i := f.recvs[f.recvd]
		o := f.ops[i]
		op := verbs.WCRecv
		if o.op == verbs.WRRDMAWriteWithImm {
			op = verbs.WCRecvRDMAWithImm
		}
		f.to.received(w, uint64(i), op, o.n)
		if o.op.HasImm() && w.Imm() != uint32(i) {
			c.failf("message %d came with the immediate data %d", i, w.Imm())
		}
		f.recvd++
	}
	f.to.rcq.got = nil
	return f.done == len(f.ops) && f.recvd == len(f.recvs)
}

// progress describes the progress of a flow, for a failure's message.
func (f *flow) progress() string {
	s := fmt.Sprintf("\tfrom %s: %d of %d done, %d of %d received", f.from.end.name, f.done, len(f.ops), f.recvd, len(f.recvs))
	if f.done < len(f.ops) {
		s += fmt.Sprintf("; the next is %v of %d bytes", f.ops[f.done].op, f.ops[f.done].n)
	}
	return s + "\n" + f.from.tell()
}

// verify checks all bytes when all operations are done.
func (f *flow) verify() {
	c := f.c
	c.t.Helper()
	want := make([]byte, flowSlot)
	var adds, swaps uint64
	for i, o := range f.ops {
		at := i * flowSlot
		switch o.op {
		case verbs.WRAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp:
			if got := *f.res.word(8 * i); got != o.expect {
				c.failf("%v number %d returned %d, want %d: one was executed twice or not at all", o.op, i, got, o.expect)
			}
			if o.op == verbs.WRAtomicFetchAndAdd {
				adds++
			} else {
				swaps++
			}
			continue
		case verbs.WRRDMARead:
			fill(want[:o.n], i)
			c.same(f.mine.bytes()[at:at+o.n], want[:o.n], "a READ of the flow")
			continue
		}
		fill(want[:o.n], i)
		c.same(f.theirs.bytes()[at:at+o.n], want[:o.n], o.op.String()+" of the flow")
		c.untouched(f.theirs.bytes()[at+o.n:at+flowSlot], o.op.String()+" of the flow: memory behind it")
	}
	if *f.words.word(0) != adds || *f.words.word(8) != swaps {
		c.failf("%d additions left %d, %d swaps left %d", adds, *f.words.word(0), swaps, *f.words.word(8))
	}
}

// traffic runs a flow in each direction and verifies both.
func (c *Case) traffic(a, b *QP, kinds []verbs.WROpcode, n int, seed uint64) {
	c.t.Helper()
	ab, ba := c.flow(a, b, kinds, n, seed), c.flow(b, a, kinds, n, seed+1)
	if err := c.wait(c.pair.Patience, func() bool {
		x, y := ab.pump(), ba.pump()
		return x && y
	}); err != nil {
		c.failf("all operations of the flows must complete: %v\n%s\n%s", err, ab.progress(), ba.progress())
	}
	for _, q := range []*CQ{a.scq, b.scq, a.rcq, b.rcq} {
		q.none("every operation completed once")
	}
	ab.verify()
	ba.verify()
}
