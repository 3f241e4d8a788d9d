package reactor

import (
	"cmp"
	"math/bits"
	"slices"
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

// probes has the queues with a KeepAlive, by the time of their next check. Many queues share a time, so a heap
// of queues would cost more than the checks: with one, 1,000 idle connections on the software RNIC took 15 to 22 ms
// of processor time in 5 s, and 13 to 20 ms without.
type probes struct {
	order []*probeMoment // by at
	free  []*probeMoment // without queues
}

// probeMoment is a time at which queues check.
type probeMoment struct {
	at     time.Duration
	queues []*Queue
}

// find returns the index in order of the moment at, or where it belongs.
func (p *probes) find(at time.Duration) (i int, found bool) {
	return slices.BinarySearchFunc(p.order, at, func(m *probeMoment, at time.Duration) int { return cmp.Compare(m.at, at) })
}

// add has q check at the given time.
func (p *probes) add(q *Queue, at time.Duration) {
	i, found := p.find(at)
	if !found {
		m := &probeMoment{}
		if n := len(p.free); n > 0 {
			m, p.free = p.free[n-1], p.free[:n-1]
		}
		m.at = at
		p.order = slices.Insert(p.order, i, m)
	}
	m := p.order[i]
	q.peerLimit.probeAt, q.peerLimit.probeIndex = at, len(m.queues)
	m.queues = append(m.queues, q)
}

// remove ends the wait of q for its next check.
func (p *probes) remove(q *Queue) {
	i, _ := p.find(q.peerLimit.probeAt)
	m, at, end := p.order[i], q.peerLimit.probeIndex, len(p.order[i].queues)-1
	m.queues[at] = m.queues[end]
	m.queues[at].peerLimit.probeIndex = at
	m.queues[end] = nil
	if m.queues = m.queues[:end]; end == 0 {
		p.order = slices.Delete(p.order, i, i+1)
		p.free = append(p.free, m)
	}
}

// due removes a queue whose check is due, and returns it; nil if there is none.
func (p *probes) due(now time.Duration) *Queue {
	if len(p.order) == 0 || p.order[0].at > now {
		return nil
	}
	q := p.order[0].queues[len(p.order[0].queues)-1]
	p.remove(q)
	return q
}
