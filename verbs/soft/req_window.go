package soft

import "github.com/verbena-rdma/verbena/verbs"

// sendWindow bounds the outstanding PSNs of a requester. Within the fabric the bound is windowPSNs, and
// the link tells when it has no room. A link with a socket loses what the peer's receive buffer cannot
// hold, so there the window begins small, grows by one for each window that is acknowledged, and is
// halved by a loss.
//
//	 firstWindow           each window acknowledged: +1
//	──────────────> psns ───────────────────────────────┐
//	                 ^ ^────────────────────────────────┤ at most windowPSNs
//	                 └──────────────────────────────────┘ a loss: half, at least minWindow
//
// These are for packets of 4 KiB; of larger ones there are fewer.
//
// While a probe is out the window is one packet: see roundTrip.
//
// It is one packet, too, before the first packet from the peer, if the connection manager has not proven the peer's
// address (ADR 10): a program that names the address of another machine must not cause a flood to it. The packet is
// sent three times at most: at once, at the first retry, and at the last one, for a peer that gets ready late. The
// other retries are used up without a packet.
//
// Implements: additive increase, multiplicative decrease (RFC 5681, 3.1, without slow start).
type sendWindow struct {
	psns  uint64
	least uint64 // bounds of psns
	most  uint64
	lossy bool // the packets pass a socket
	// unproven: nothing has come from the peer. The packet may be sent tries times more.
	unproven bool
	tries    uint8
	acked    uint64 // since the window has grown
	saved    uint64 // psns as it was before a probe; 0: no probe is out
	// ackEvery is the maximum number of packets that are sent without requesting an acknowledgement:
	// one is under way before the window is closed.
	ackEvery uint32
	// chunk is the maximum number of responses that one READ request packet asks for; a power of two.
	chunk uint32
}

const (
	// firstWindow is what the smallest receive buffer holds that Linux grants by default: 47 datagrams
	// of 4 KiB, counted with their overhead.
	firstWindow = 32
	minWindow   = 4
	// fewestPackets is the smallest window of large packets: one lost packet and one that shows the loss.
	fewestPackets = 2
	// firstTries is how often the first packet is sent to an address that is not proven. On a path that loses a
	// hundredth of the packets, this ends one connection in a million, and of those whose peer gets ready after the
	// first retry one in a hundred. At least 2.
	firstTries = 3
	// linkChunk is the chunk on a link with a socket: the window bounds the answers to a READ by it.
	linkChunk = 16
)

// newWindow returns the window of a new connection. lossy: its packets, of up to mtu bytes, pass a socket. proven: it
// is known that the peer is at its address.
func newWindow(lossy, proven bool, mtu uint32) sendWindow {
	if !lossy {
		return sendWindow{psns: windowPSNs, least: windowPSNs, most: windowPSNs, ackEvery: ackEvery, chunk: readChunk}
	}
	scale := max(1, mtu/verbs.MTU4096.Bytes())
	w := sendWindow{
		lossy: true, chunk: max(1, linkChunk/scale),
		least: max(minWindow/uint64(scale), fewestPackets), most: windowPSNs / uint64(scale),
	}
	w.set(max(firstWindow/uint64(scale), fewestPackets))
	if !proven {
		w.unproven, w.tries = true, firstTries-1
		w.probe()
	}
	return w
}

// again reports whether a packet that was not answered may be sent again, and counts it. last: it is the last time that
// this is asked; the last try is kept for it.
func (w *sendWindow) again(last bool) bool {
	if w.unproven {
		if w.tries == 0 || w.tries == 1 && !last {
			return false
		}
		w.tries--
	}
	return true
}

// prove opens the window after the first packet from the peer. It reports whether that was not known.
func (w *sendWindow) prove() bool {
	if !w.unproven {
		return false
	}
	w.unproven = false
	w.probed(true)
	return true
}

func (w *sendWindow) set(n uint64) {
	w.psns, w.acked = n, 0
	w.ackEvery = min(ackEvery, uint32(n/2))
}

// took notes that n more PSNs are acknowledged.
func (w *sendWindow) took(n uint64) {
	if w.psns == w.most {
		return
	}
	if w.acked += n; w.acked >= w.psns {
		w.set(w.psns + 1)
	}
}

// lost notes that packets were lost.
func (w *sendWindow) lost() {
	switch {
	case w.unproven: // the address may have no peer, so a timeout is no sign of a loss
	case w.saved != 0:
		w.saved = max(w.least, w.saved/2)
	case w.lossy:
		w.set(max(w.least, w.psns/2))
	}
}

// probe closes the window behind the next packet, which requests an acknowledgement.
func (w *sendWindow) probe() {
	if w.saved == 0 && w.lossy {
		w.saved = w.psns
		w.set(1)
	}
}

// probed opens the window again after a probe, and reports whether one was out. late: its answer does not
// mean a loss.
func (w *sendWindow) probed(late bool) bool {
	if w.saved == 0 {
		return false
	}
	w.set(w.saved)
	w.saved = 0
	if !late {
		w.lost()
	}
	return true
}
