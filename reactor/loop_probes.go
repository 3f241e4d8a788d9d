package reactor

import (
	"math/bits"
	"time"
)

// probesAtOnce is how many queues check their peers at one moment, on average at most, as long as
// mostMoments are enough. Each probe uses the state of another queue pair, and a network adapter caches only
// some of them. Fewer queues share a moment, so that one wake-up serves them all: 1,000 idle connections on
// the software RNIC take 0.3 % of a processor, and took 0.7 % with 64 at once. For adapters the number is a
// guess.
const (
	probesAtOnce = 1024
	mostMoments  = 256 // in half a KeepAlive
)

// moments returns the number of moments in half a KeepAlive over which n queues are spread.
func moments(n int) int { return min(1<<bits.Len(uint(max(n-1, 0)/probesAtOnce)), mostMoments) }

// probeTime returns when the queue next checks for a sign of its peer: at a moment of its own in each half
// of KeepAlive. The moments of queues and reactors with the same KeepAlive are the same. As
// more queues get limits there are more moments, and a queue checks once before half of KeepAlive is over.
func (p *watchdog) probeTime(now time.Duration, q *Queue) time.Duration {
	half := max(q.peerLimit.KeepAlive/2, 1)
	n := moments(p.limited)
	phase := half / time.Duration(n) * time.Duration(int(q.id)%n)
	at := now/half*half + phase
	if at <= now {
		at += half
	}
	return at
}

// probeHeap has the queues with a KeepAlive, in the order of peerLimit.probeAt. It implements heap.Interface.
type probeHeap []*Queue

func (h probeHeap) Len() int           { return len(h) }
func (h probeHeap) Less(i, j int) bool { return h[i].peerLimit.probeAt < h[j].peerLimit.probeAt }
func (h probeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].peerLimit.probeIndex, h[j].peerLimit.probeIndex = i, j
}

// Push appends a queue.
func (h *probeHeap) Push(x any) {
	q := x.(*Queue)
	q.peerLimit.probeIndex = len(*h)
	*h = append(*h, q)
}

// Pop takes the last queue.
func (h *probeHeap) Pop() any {
	old := *h
	n := len(old) - 1
	q := old[n]
	old[n] = nil
	*h = old[:n]
	return q
}
