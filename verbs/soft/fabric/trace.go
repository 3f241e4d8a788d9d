package fabric

import (
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/verbs"
)

// Verdict is what the link did with a packet.
type Verdict uint8

// The verdicts.
const (
	Delivered        Verdict = iota // into the inbox at once
	Delayed                         // into the inbox later
	DroppedLoss                     // by chance
	DroppedRule                     // by a rule
	DroppedDown                     // the link is down
	DroppedPartition                // a partition lies across it
	DroppedUnknown                  // no port there
	DroppedFull                     // the link's share of the inbox is in use
)

var verdictNames = [...]string{"delivered", "delayed", "lost", "dropped by rule", "link down", "partitioned", "unknown destination", "no room"}

// String says the verdict in words.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Event is one packet given to the link, or the copy of a duplicated one.
type Event struct {
	Now      time.Duration // of the turn that sent it
	Src, Dst verbs.GID
	Ordinal  uint64 // of the packet on this link, from 1; 0 to an unknown GID
	Hdr      []byte // as delivered; valid during the call only

	PayloadLen  int
	PayloadHash uint64 // xxhash of the payload, when asked for

	Verdict   Verdict
	Due       time.Duration // when Delayed
	Copy      bool          // the second of a duplicated packet
	Corrupted bool
}

type tracer struct {
	fn   func(Event)
	hash bool
}

// SetTrace has fn called for every packet sent from now on, in the sender's turn; nil
// ends it. With hash the payloads are hashed. fn must not call the fabric; in real time it is
// called from several goroutines at once. Tracing allocates nothing itself.
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
