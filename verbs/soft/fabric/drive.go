package fabric

const (
	// kickBudget is how many runs one Kick does on the caller's goroutine: many times what a
	// synchronous operation needs (three), and few enough that a caller with a deep queue soon
	// polls its completions.
	kickBudget = 128
	// paceBudget is the same for the fabric's own goroutine, which otherwise only checks deadlines.
	paceBudget = 1024
	// clockEvery is how many runs share one reading of the clock, which costs as much as a short
	// run.
	clockEvery = 8
	// queueLen and visitedLen bound the state that a runner keeps on its stack. Ports beyond
	// queueLen go to the pacemaker; deadlines beyond visitedLen are checked at once.
	queueLen   = 32 // a power of two
	visitedLen = 8
)

// runQueue is the ports that a goroutine has yet to run. It lives on its stack. A port in it is not
// claimed: it may stand in several goroutines' queues.
type runQueue struct {
	ports    [queueLen]*Port
	head     uint32
	n        uint32
	visited  [visitedLen]*Port
	nVisited int
}

// push adds p unless it is there; false when there is no room.
func (q *runQueue) push(p *Port) bool {
	for i := range q.n {
		if q.ports[(q.head+i)%queueLen] == p {
			return true
		}
	}
	if q.n == queueLen {
		return false
	}
	q.ports[(q.head+q.n)%queueLen] = p
	q.n++
	return true
}

func (q *runQueue) pop() *Port {
	if q.n == 0 {
		return nil
	}
	p := q.ports[q.head]
	q.head = (q.head + 1) % queueLen
	q.n--
	return p
}

// drive runs p, whose token the caller has taken, and then the ports that got packets, until
// nothing is left or budget runs are done. It releases the token.
//
//  1. Run the port.
//  2. Hand over its packets, and note their destinations.
//  3. Release its token; a mark or more work puts the port at the end of the queue.
//  4. Take the next port of the queue; one that another goroutine runs gets a mark and is left to
//     it.
//  5. When the budget is used up, queued ports go to the pacemaker.
//  6. At the end, wake the pacemaker if a deadline is earlier than its wake-up time.
//
// At every moment each port with work is in a queue, marked, running, or with the pacemaker.
func (f *Fabric) drive(p *Port, budget int) {
	var q runQueue
	now := int64(f.Now())
	for turns := 1; p != nil; turns++ {
		if turns%clockEvery == 0 {
			now = int64(f.Now())
		}
		more := p.progress(now)
		f.settleSent(&q, p)
		f.noteVisited(&q, p)
		if p.release() || more {
			f.enqueue(&q, p)
		}
		if turns >= budget {
			for p = q.pop(); p != nil; p = q.pop() {
				f.deferPort(p)
			}
			break
		}
		for p = q.pop(); p != nil && !p.token.take(); p = q.pop() {
		}
	}
	for _, v := range q.visited[:q.nVisited] {
		f.pace.wakeBefore(v.deadline.Load())
	}
}

// settleSent hands over the packets that p's run sent and returned, and queues the ports that it
// sent to. p's token is held.
func (f *Fabric) settleSent(q *runQueue, p *Port) {
	for i := range p.touched {
		f.enqueue(q, p.settle(i))
	}
	p.touched = p.touched[:0]
	p.giveBack()
}

// noteVisited remembers to check p's deadline at the end: most deadlines are gone by then, because
// the answer has come.
func (f *Fabric) noteVisited(q *runQueue, p *Port) {
	for _, v := range q.visited[:q.nVisited] {
		if v == p {
			return
		}
	}
	if q.nVisited == visitedLen {
		f.pace.wakeBefore(p.deadline.Load())
		return
	}
	q.visited[q.nVisited] = p
	q.nVisited++
}

func (f *Fabric) enqueue(q *runQueue, p *Port) {
	if !q.push(p) {
		f.deferPort(p)
	}
}
