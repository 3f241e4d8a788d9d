package runtime

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// fillFrom writes bytes that follow from seed alone.
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

// clean tells whether all of b is poison.
func clean(b []byte) bool { return mem.Poisoned(b) < 0 }

// simTrace is the hash of everything that a run did: each packet that was given
// to the link with its fate, and each operation's outcome, in order. Addresses
// are not part of it: two runs have their memory in different places, so they
// count from the beginning of their mapping.
type simTrace struct {
	d       xxhash.Digest
	packets uint64
	fates   [8]uint64
	dups    uint64
}

// simPage divides every mapping's address.
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
		t.d.Write(b[:]) // a Digest never fails
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
		// The RETH and the AtomicETH begin with the address, and stand first; a FLUSH
		// has its own header in front.
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

// simRand is the one source of chance of a run.
type simRand struct{ *rand.Rand }

func newSimRand(seed uint64) simRand { return simRand{rand.New(rand.NewPCG(seed, 0x76657262656e61))} }

// one is true once in n times.
func (r simRand) one(n int) bool { return r.IntN(n) == 0 }

// between is lo to hi, both included.
func (r simRand) between(lo, hi int) int { return lo + r.IntN(hi-lo+1) }

func (r simRand) span(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(r.Int64N(int64(hi-lo)+1))
}
