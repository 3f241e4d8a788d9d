package fabric

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

const (
	// inlineSegs is the number of payload segments that fit in a packet without a separate slice;
	// most messages have one or two.
	inlineSegs = 3
	// wordLen is the most frequent short payload: an 8-byte message, which is copied without a
	// call.
	wordLen = 8
	// smallOwn is the number of bytes of copied payload that fit in a packet without a separate
	// buffer: sizes that senders copy rather than refer to.
	smallOwn = 64
	// maxKeptOwn bounds the copy buffer that a pooled packet keeps, so that one delayed gigabyte is
	// not kept forever.
	maxKeptOwn = 64 << 10
)

// Holder owns the memory that packets refer to.
type Holder interface {
	// PacketDone is called exactly once for each packet sent with this holder, when nothing refers
	// to the payload any more: it was consumed, dropped, or copied because the packet has to wait.
	// It may be called from any goroutine and during the run of another endpoint, so it must only
	// count; to have its own endpoint run, it calls [Port.Wake].
	PacketDone(p *Packet)
}

// Packet is one packet on the link: encoded headers, and a payload that lies in the sender's memory
// or in the packet itself.
//
//	sender's run            the link           receiver's run
//	Get ── fill ── Send ──► inbox ───────────► Take ── read ── Release ──► its pool
//	                          │ lost: Release
//	                          └ delayed, duplicated: payload copied, PacketDone, later the inbox
//
// A packet belongs to the sender from Get to Send, then to the fabric, and to the receiver from
// Take to Release. Its memory is Go heap; the memory that Payload refers to need not be.
type Packet struct {
	// The fields that every packet needs come first, in four cache lines.

	next *Packet // in a chain, the inbox, the delay line or a pool

	// Holder, if set by the sender, is told when Payload is no longer referred to. Cookie is the
	// sender's, for its holder.
	Holder Holder
	Cookie uint64

	// Payload is the payload's segments in order, PayloadLen the sum of their lengths in bytes.
	// AddRef and AddCopy fill them.
	Payload    [][]byte
	PayloadLen int

	// Hdr holds HdrLen bytes of encoded headers; see package wire.
	HdrLen int
	Hdr    [wire.MaxHeader]byte
	// Foreign is set by the sender if segments of Payload refer to memory that can stop being there: a
	// reader copies them with mem.Copy, and drops the packet if that fails.
	Foreign bool
	// Stranger is set by the sender if the address of the receiver is not proven: the packet may answer a forged one.
	Stranger bool
	state    packetState // detects the use of a packet after it was given away

	// Net is the rest of the network header, for links that have one and receivers that report it.
	// Set by the sender.
	Net NetHeader
	// Src and Dst are the addresses of the ends; the port's methods set them.
	Src, Dst verbs.GID
	// Far is the path as the sender of the packet sees it, or its receiver if an uplink passes it on; nil
	// for a path without UDP ports. The port's methods and SetFar set it.
	Far *wire.Path

	home   *Port  // the owner of its pool, whichever port sends it; see Port.Return
	own    []byte // copied payload; initially in small
	inline [inlineSegs][]byte
	small  [smallOwn]byte

	below  *Packet // in an inbox, of the first of a chain: the chain pushed before
	last   *Packet // in an inbox, of the first of a chain: its last
	route  *Route  // while delayed: its route; in an inbox, of the first of a chain: the route it came by
	charge int64   // in an inbox, of the first of a chain: its units of route's share
	held   int64   // in an inbox, of the first of a chain: its units of the mailbox
	due    int64   // while delayed: its due time
	seq    uint64  // while delayed: order among packets due at the same time
	far    wire.Path
}

// SetFar sets the path by which an uplink received the packet, seen from its receiver.
func (p *Packet) SetFar(path *wire.Path) {
	p.Src, p.far = path.Peer, *path
	p.Far = &p.far
}

// NetHeader is the fields of a packet's IP header besides its addresses.
type NetHeader struct {
	FlowLabel    uint32 // 20 bits; IPv6 only
	TrafficClass uint8
	HopLimit     uint8
}

// packetState names the owner of a packet. Only the owner reads or writes it.
type packetState uint8

const (
	pooled   packetState = iota
	filling              // the sender, between Get and Send
	onLink               // the fabric
	received             // the receiver, between Take and Release
)

// Header returns the encoded headers. They are valid until Release.
func (p *Packet) Header() []byte { return p.Hdr[:p.HdrLen] }

// SetHeader encodes h as the packet's headers.
func (p *Packet) SetHeader(h *wire.Header) { p.HdrLen = h.Encode(&p.Hdr) }

// AddRef appends b to the payload by reference. Its owner keeps b until the holder's PacketDone; its
// bytes may change meanwhile, and then the receiver gets some of both states.
func (p *Packet) AddRef(b []byte) {
	if len(b) == 0 {
		return
	}
	p.Payload = append(p.Payload, b)
	p.PayloadLen += len(b)
}

// AddCopy appends a copy of b to the payload.
func (p *Packet) AddCopy(b []byte) {
	if len(b) == 0 {
		return
	}
	if len(p.Payload) == 0 && len(b) <= cap(p.own) {
		p.copyFirst(b)
		return
	}
	// When own has to grow, earlier segments stay in the old array, which holds the same bytes.
	start := len(p.own)
	p.own = append(p.own, b...)
	p.Payload = append(p.Payload, p.own[start:len(p.own):len(p.own)])
	p.PayloadLen += len(b)
}

// copyFirst is AddCopy for the first segment, which fits.
func (p *Packet) copyFirst(b []byte) {
	own := p.own[:len(b)]
	if len(b) == wordLen {
		binary.NativeEndian.PutUint64(own, binary.NativeEndian.Uint64(b))
	} else {
		copy(own, b)
	}
	p.own = own
	p.Payload = p.Payload[:1]
	p.Payload[0] = own[:len(b):len(b)]
	p.PayloadLen = len(b)
}

// Release returns the packet to its pool. The receiver calls it once for every packet it took, in
// its run or later, and does not touch the packet afterwards; a sender calls it for a packet from
// Get that it does not send. It does not block. It panics when the packet was released or sent
// before.
func (p *Packet) Release() {
	p.mustHave()
	p.drop()
}

// mustHave panics unless the caller may release the packet.
func (p *Packet) mustHave() {
	if p.state != received && p.state != filling {
		panic("fabric: Release of a packet that is not the caller's: released twice, or sent")
	}
}

// drop tells the holder and returns the packet to its pool.
func (p *Packet) drop() {
	p.done()
	p.reset()
	p.home.returned.put(chain{p, p})
}

// done tells the holder, once.
func (p *Packet) done() {
	if h := p.Holder; h != nil {
		p.Holder = nil
		h.PacketDone(p)
	}
}

// reset empties the packet for its next use.
func (p *Packet) reset() {
	if len(p.Payload) == 1 {
		p.Payload[0] = nil // no stale view of foreign memory stays behind
	} else {
		clear(p.Payload)
	}
	p.Payload = p.Payload[:0]
	p.PayloadLen = 0
	p.HdrLen = 0
	p.Foreign, p.Stranger = false, false
	p.Net = NetHeader{}
	if p.Far != nil {
		p.Far = nil
	}
	p.Cookie = 0
	if len(p.own) > 0 {
		p.dropOwn()
	}
	p.state = pooled
}

// dropOwn empties the copy buffer for its next use.
func (p *Packet) dropOwn() {
	if cap(p.own) > maxKeptOwn {
		p.own = p.small[:]
	}
	p.own = p.own[:0]
}

// MakeOwn copies the payload into the packet and tells the holder, so that the
// packet may wait.
func (p *Packet) MakeOwn() {
	if p.Holder == nil && len(p.own) == p.PayloadLen {
		return // nothing is by reference
	}
	own := p.own[:0]
	if len(p.own) > 0 { // segments lie in it: it cannot be written over
		own = make([]byte, 0, p.PayloadLen)
	}
	for _, seg := range p.Payload {
		own = append(own, seg...)
	}
	clear(p.Payload)
	p.Payload = p.Payload[:0]
	p.setOwn(own)
	p.Foreign = false
	p.done()
}

// cloneInto makes c carry the same headers and a copy of the payload, without
// a holder.
func (p *Packet) cloneInto(c *Packet) {
	c.Src, c.Dst, c.Net, c.Far, c.Stranger = p.Src, p.Dst, p.Net, p.Far, p.Stranger
	if p.Far == &p.far {
		c.SetFar(p.Far)
	}
	c.Hdr, c.HdrLen = p.Hdr, p.HdrLen
	own := c.own
	for _, seg := range p.Payload {
		own = append(own, seg...)
	}
	c.setOwn(own)
	c.PayloadLen = p.PayloadLen
}

// setOwn makes own the whole payload; Payload is empty before.
func (p *Packet) setOwn(own []byte) {
	p.own = own
	if len(own) > 0 {
		p.Payload = append(p.Payload, own)
	}
}
