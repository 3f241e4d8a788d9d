package soft

import (
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/roce"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// On a link with a socket an acknowledgement that travels alone costs both sides a system call, and a
// peer that sleeps wakes up for it. So the acknowledgement of a message that has completed a receive is
// owed: it leaves with the first request that the queue pair sends, in one message of the system
// (UDP_SEGMENT), which is often the program's answer. It leaves alone, at the latest,
//
//   - after owedLooks looks of pollers that found nothing (who polls would have answered by now);
//   - after owedRuns runs of the engine;
//   - when a goroutine may be about to sleep: it arms a completion queue, or calls Rest (verbs.PollReceiver), or
//     polls several queues, and every queue without a completion is armed. But if the programs of all that owe one are
//     known to answer at once (habit), the goroutine probably has a message, and such a poll is a look like others;
//   - when the link's own goroutine has received it, and has let others run;
//   - when the queue pair ends or changes its state to one that does not send;
//   - after owedTime.
//
// Later acknowledgements of the queue pair replace it. A message that completes no receive (a WRITE) is
// acknowledged at once: no program is told of it. So is everything within the fabric.
const (
	owedLooks = 4
	owedRuns  = 8
	// owedTime is for a program that stops to poll without sleeping, or that ends its habit. The peer probes after 4 ms.
	owedTime = 2 * time.Millisecond
)

// owings is the owed acknowledgements of a device. All but the atomics belongs to the engine.
type owings struct {
	count int          // queue pairs that owe one
	qps   []*queuePair // those, and others that owed one since count was 0
	since time.Duration
	runs  int

	// looks is 0 if none is owed, otherwise 1 and the looks that found nothing since; due asks the engine
	// to send. The engine writes 0 and 1, pollers count. It publishes nothing.
	looks atomic.Int32
	// due asks the engine to send them all. Any goroutine sets it, the engine clears it.
	due atomic.Bool
	// unsure is set when one of them is of a program that is not known to answer at once (habit), until none is owed.
	// The engine writes, pollers read. It publishes nothing.
	unsure atomic.Bool
}

// owe keeps the acknowledgement of q that is due for later.
func (d *device) owe(q *queuePair) {
	o, r := &d.owed, &q.resp
	r.habit.received(r.ackPSN, d.now)
	if !r.habit.answers() && !o.unsure.Load() {
		o.unsure.Store(true)
	}
	if r.ackOwed {
		return
	}
	r.ackOwed = true
	if o.count == 0 {
		o.since, o.runs = d.now, 0
		o.due.Store(false)
		o.looks.Store(1)
	}
	o.count++
	o.qps = append(o.qps, q)
}

// mayOwe reports whether the acknowledgement that is due may wait.
func (q *queuePair) mayOwe() bool {
	return q.resp.ackMay && q.req.window.lossy
}

// acknowledgeOrOwe sends the acknowledgement that is due and may wait, if a request was sent before it,
// or owes it.
func (q *queuePair) acknowledgeOrOwe(sent bool) {
	if sent && q.dev.p.Room(q.route) > 0 {
		q.sendDueAck()
	} else {
		q.dev.owe(q)
	}
}

// sendDueAck sends the acknowledgement that is due.
func (q *queuePair) sendDueAck() {
	q.forgetAck()
	q.sendAck(wire.Ack(wire.CreditInvalid), q.resp.ackPSN)
}

// forgetAck notes that no acknowledgement is due.
func (q *queuePair) forgetAck() {
	q.resp.ackDue = false
	if q.resp.ackOwed {
		q.dev.owed.less(&q.resp)
	}
}

// less notes that a queue pair owes none any more.
func (o *owings) less(r *responder) {
	r.ackOwed = false
	if o.count--; o.count == 0 {
		o.end()
	}
}

// end notes that none is owed any more.
func (o *owings) end() {
	clear(o.qps)
	o.qps, o.count = o.qps[:0], 0
	o.looks.Store(0)
	o.unsure.Store(false)
}

// payOwed has the queue pairs that owe an acknowledgement send it in this run, or when the link has room,
// if it is time. There are some.
func (d *device) payOwed() {
	o := &d.owed
	o.runs++
	if !(o.due.Load() && o.due.Swap(false)) && o.runs < owedRuns && d.now < o.since+owedTime {
		return
	}
	for _, q := range o.qps {
		if q.resp.ackOwed {
			q.resp.ackOwed, q.resp.ackMay = false, false
			d.activate(q)
		}
	}
	o.end()
}

// looked notes that a poller has found nothing and, if again is false, may now sleep. Any goroutine, but not within
// a run; it does not block.
func (d *device) looked(l *roce.Link, again bool) {
	n := d.owed.looks.Load()
	switch {
	case n == 0:
	case n < owedLooks && (again || !d.owed.unsure.Load()):
		d.owed.looks.CompareAndSwap(n, n+1)
	case again || !l.Attending():
		d.pay()
	}
}

// rests notes that a goroutine polls no more for now: it sleeps, or has a result. Any goroutine, but not within a run; it
// does not block.
func (d *device) rests(l *roce.Link) {
	if d.owed.looks.Load() > 0 && d.owed.unsure.Load() && !l.Attending() {
		d.pay()
	}
}

// pay has all owed acknowledgements sent. Any goroutine, but not within a run; it does not block.
func (d *device) pay() {
	if d.owed.looks.Load() == 0 {
		return
	}
	d.owed.due.Store(true)
	if p := d.port.Load(); p != nil {
		p.Kick()
	}
}
