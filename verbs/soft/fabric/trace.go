package fabric

import (
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/verbs"
)

// Verdict is the link's decision about a packet.
type Verdict uint8

// Values of Verdict.
const (
	Delivered        Verdict = iota // into the inbox at once
	Delayed                         // into the inbox later
	DroppedLoss                     // by chance
	DroppedRule                     // by a rule
	DroppedDown                     // the link is down
	DroppedPartition                // a partition cuts the link
	DroppedUnknown                  // no port at the destination
	DroppedFull                     // the link's share of the inbox is in use
)

var verdictNames = [...]string{"delivered", "delayed", "lost", "dropped by rule", "link down", "partitioned", "unknown destination", "no room"}

// String describes the verdict.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Event is one packet given to the link, or the copy of a duplicated one.
type Event struct {
	Now      time.Duration // of the sender's run
	Src, Dst verbs.GID
	Ordinal  uint64 // number of the packet on this link, from 1; 0 to an unknown GID
	Hdr      []byte // as delivered; valid during the call only

	PayloadLen  int
	PayloadHash uint64 // xxhash of the payload, if SetTrace asked for it

	Verdict   Verdict
	Due       time.Duration // when Delayed
	Copy      bool          // the second of a duplicated packet
	Corrupted bool
}

type tracer struct {
	fn   func(Event)
	hash bool
}

// SetTrace sets a function that is called for every packet sent from now on, in the sender's run;
// nil ends tracing. With hash the payloads are hashed. fn must not call the fabric; in real time it
// is called concurrently. Tracing itself does not allocate.
func (f *Fabric) SetTrace(fn func(Event), hash bool) {
	if fn == nil {
		f.tracer.Store(nil)
		return
	}
	f.tracer.Store(&tracer{fn: fn, hash: hash})
}

// trace fills in ev and reports it.
func (f *Fabric) trace(p *Port, r *Route, k *Packet, ev Event) {
	t := f.tracer.Load()
	if t == nil {
		return
	}
	ev.Now = time.Duration(p.lastNow)
	ev.Src, ev.Dst, ev.Ordinal = linkAddrs(r, k)
	ev.Hdr = k.Header()
	ev.PayloadLen = k.PayloadLen
	if t.hash {
		var d xxhash.Digest
		d.Reset()
		for _, seg := range k.Payload {
			d.Write(seg) // a Digest never fails
		}
		ev.PayloadHash = d.Sum64()
	}
	t.fn(ev)
}
