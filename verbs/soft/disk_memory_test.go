package soft

import (
	"bytes"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// slowMemory is the region of an end, whose pages are not in memory. Its jobs do not run: the test finishes them.
type slowMemory struct {
	w     *world
	e     *peer
	mr    *memoryRegion
	there bool // to be read without a wait
}

// slow makes the memory of e slow.
func (w *world) slow(e *peer) *slowMemory {
	s := &slowMemory{w: w, e: e, mr: e.mr.(*memoryRegion)}
	d := e.ctx.dev
	d.exclusive(func() {
		s.mr.slow, s.mr.foreign = true, true
		d.slowRegions++
		d.line(toWrite, s.mr).busy = jobsAtOnce
		d.disk.resident = func(*mem.Arena, uint64, int) bool { return s.there }
	})
	return s
}

// finish finishes the jobs that wait, and returns their number.
func (s *slowMemory) finish() (n int) {
	d := s.e.ctx.dev
	d.exclusive(func() {
		l := d.line(toWrite, s.mr)
		for _, j := range l.waiting {
			j.leave()
			l.busy++
			d.finished.Push(j)
			n++
		}
		l.waiting = nil
		s.there = true
	})
	s.w.step()
	return n
}

type diskCase struct {
	name  string
	slowB bool // the memory of b is slow, else that of a
	jobs  int
	n     int
	post  func(w *world)
	into  func(w *world) []byte
}

// slow returns the end whose memory is slow.
func (c *diskCase) slow(w *world) *peer {
	if c.slowB {
		return w.b
	}
	return w.a
}

// diskCases are all ways to access registered memory: a posts to b. Data is at 0 in the memory of a, and at 4096 in that
// of b. Each leaves 3,000 or 8 bytes of it where into says.
var diskCases = []diskCase{
	{"WRITE", true, 1, 3000, func(w *world) { w.a.mustPost(w.a.write3000(1, verbs.WRRDMAWrite)) }, intoB},
	{"WRITE of a word", true, 1, 8, func(w *world) { w.a.mustPostExtended(w.a.writeWR(1, 8, w.b.at(4096), w.b.mr.RKey())) }, intoB},
	{"WRITE_WITH_IMM", true, 1, 3000, func(w *world) {
		w.b.recv(9, w.b.sge(0, 8))
		w.a.mustPost(w.a.write3000(1, verbs.WRRDMAWriteWithImm))
	}, intoB},
	// Each packet asks for what it needs, and the two that are behind the first wait with it.
	{"SEND", true, 3, 3000, func(w *world) {
		w.b.recv(9, w.b.sge(4096, 100), w.b.sge(4196, 2900))
		w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 3000)))
	}, intoB},
	{"SEND of a word", true, 1, 8, func(w *world) {
		w.b.recv(9, w.b.sge(4096, 8))
		w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	}, intoB},
	{"FETCH_AND_ADD", true, 1, 8, func(w *world) {
		wr := w.a.send(1, verbs.WRAtomicFetchAndAdd, verbs.SendSignaled, w.a.sge(64, 8))
		wr.SetFetchAdd(w.b.at(4096), w.b.mr.RKey(), w.a.word(0))
		w.a.mustPost(wr)
	}, intoB},
	{"ATOMIC_WRITE", true, 1, 8, func(w *world) {
		w.a.mustPostExtended(w.a.atomicWR(1, w.b.at(4096), w.b.mr.RKey(), w.a.word(0)))
	}, intoB},
	{"source of a READ", true, 1, 3000, readB, intoA},
	{"destination of a READ", false, 3, 3000, readB, intoA},
	{"result of an atomic", false, 1, 8, func(w *world) {
		wr := w.a.send(1, verbs.WRAtomicFetchAndAdd, verbs.SendSignaled, w.a.sge(8192, 8))
		wr.SetFetchAdd(w.b.at(0), w.b.mr.RKey(), 0)
		w.a.mustPost(wr)
	}, intoA},
	{"payload of a WRITE", false, 1, 3000, func(w *world) { w.a.mustPost(w.a.write3000(1, verbs.WRRDMAWrite)) }, intoB},
	{"payload of a SEND of a word", false, 1, 8, func(w *world) {
		w.b.recv(9, w.b.sge(4096, 8))
		w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	}, intoB},
}

func intoA(w *world) []byte { return w.a.data()[8192:] }
func intoB(w *world) []byte { return w.b.data()[4096:] }

func readB(w *world) {
	wr := w.a.send(1, verbs.WRRDMARead, verbs.SendSignaled, w.a.sge(8192, 3000))
	wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
	w.a.mustPost(wr)
}

func (e *peer) write3000(id uint64, op verbs.WROpcode) request {
	wr := e.send(id, op, verbs.SendSignaled, e.sge(0, 3000))
	to := e.w.b
	wr.SetRDMA(to.at(4096), to.mr.RKey())
	return wr
}

// newDiskWorld makes a world whose ends permit everything, with the data of diskCases: 3 packets each.
func newDiskWorld(t *testing.T, attr func(*verbs.QPAttr)) *world {
	w := newWorld(t, options{
		mtu: verbs.MTU1024, access: allAccess, memory: 1 << 16, attr: attr,
		cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2},
	})
	fill(w.a.data()[:3000], 7)
	copy(w.b.data()[:3000], w.a.data())
	w.a.mustPostExtended(w.a.writeWR(0, 8, w.b.at(1<<15), w.b.mr.RKey())) // from now on the fast paths are taken
	w.step()
	w.a.ok(w.a.poll(w.a.scq), 0)
	return w
}

// Rule: the engine accesses memory that may wait for a disk only after a job has brought it in. What needs the memory
// waits, is then executed once, and later requests are executed after it.
func TestTheEngineWaitsForNoDisk(t *testing.T) {
	for _, c := range diskCases {
		t.Run(c.name, func(t *testing.T) {
			w := newDiskWorld(t, nil)
			s := w.slow(c.slow(w))
			before := w.b.qp.resp.msn
			c.post(w)
			w.step()
			if got := w.a.poll(w.a.scq); len(got) != 0 {
				t.Fatalf("before the memory is there: %s, want no completion", statuses(got))
			}
			into := c.into(w)[:c.n]
			if !bytes.Equal(into, make([]byte, c.n)) {
				t.Fatal("the memory was written before it was brought in")
			}
			jobs := 0
			for n := 1; n > 0; jobs += n {
				n = s.finish()
			}
			if got := w.a.poll(w.a.scq); statuses(got) != "1:SUCCESS " {
				t.Fatalf("after that: %s, want success", statuses(got))
			}
			if !bytes.Equal(into, w.a.data()[:c.n]) {
				t.Error("the bytes are not where they were to go")
			}
			if n := w.b.qp.resp.msn - before; n != 1 || jobs != c.jobs {
				t.Errorf("%d requests were executed with %d jobs, want 1 with %d", n, jobs, c.jobs)
			}
		})
	}
}

// Rule: what waits for a disk, however long, does not end the connection: the peer of a slow memory repeats without end if
// it does so after RNR NAKs, and fails otherwise, as behind a slow FLUSH. A requester does not count the time that its own
// memory takes.
func TestSlowMemoryKeepsTheConnection(t *testing.T) {
	const lasts = 20 * time.Second
	for _, c := range diskCases {
		for _, waits := range []bool{true, false} {
			if !waits && (!c.slowB || c.name == "SEND") {
				continue
			}
			w := newDiskWorld(t, func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt, a.RNRRetry = 15, 7, verbs.RNRRetryInfinite })
			s := w.slow(c.slow(w))
			w.b.ctx.dev.exclusive(func() { w.b.qp.peerWaits = waits })
			before := w.b.qp.resp.msn
			c.post(w)
			w.stepFor(lasts)
			got := w.a.poll(w.a.scq)
			if !waits {
				if len(got) == 0 || got[0].Status != verbs.WCRetryExcErr {
					t.Errorf("%s, a peer that does not wait: %s, want RETRY_EXC_ERR", c.name, statuses(got))
				}
				w.b.events()
				w.b.ctx.dev.exclusive(func() { w.b.qp.enterError() })
				continue
			}
			if len(got) != 0 {
				t.Fatalf("%s: %s within %v, want no completion", c.name, statuses(got), lasts)
			}
			for n := 1; n > 0; {
				n = s.finish()
			}
			if got := w.a.poll(w.a.scq); statuses(got) != "1:SUCCESS " || !bytes.Equal(c.into(w)[:c.n], w.a.data()[:c.n]) {
				t.Errorf("%s: %s at the moment when the memory is there, want success and the data", c.name, statuses(got))
			}
			if n := w.b.qp.resp.msn - before; n != 1 {
				t.Errorf("%s: %d requests were executed, want 1", c.name, n)
			}
		}
	}
}

// Rule: an owner that takes its memory back while a request waits for it gets it back: the request is refused, and no byte
// changes.
func TestSlowMemoryIsTakenBack(t *testing.T) {
	for _, c := range diskCases {
		if !c.slowB || c.name == "SEND" || c.name == "SEND of a word" {
			continue
		}
		w := newDiskWorld(t, nil)
		s := w.slow(w.b)
		c.post(w)
		w.step()
		d := w.b.ctx.dev
		closed := make(chan error)
		go func() { closed <- w.b.mr.Close() }() // waits for the job
		for gone := false; !gone; {
			d.exclusive(func() { gone = d.keys.get(s.mr.key) == nil })
		}
		s.finish()
		must.Do(t, <-closed)
		if got := w.a.poll(w.a.scq); statuses(got) != "1:REM_ACCESS_ERR " {
			t.Errorf("%s: %s, want REM_ACCESS_ERR", c.name, statuses(got))
		}
		if !bytes.Equal(c.into(w)[:c.n], make([]byte, c.n)) {
			t.Errorf("%s: the memory was written after it was closed", c.name)
		}
		w.b.events()
	}
}

// Rule: a queue pair that leaves its state forgets what waits, and its memory can be closed at once if no job runs.
func TestAQueuePairForgetsItsJobs(t *testing.T) {
	for _, c := range diskCases {
		w := newDiskWorld(t, nil)
		s := w.slow(c.slow(w))
		c.post(w)
		w.step()
		for _, e := range []*peer{w.a, w.b} {
			must.Do(t, e.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
		}
		if d := s.e.ctx.dev; len(d.line(toWrite, s.mr).waiting) != 0 || d.parked != 0 {
			t.Errorf("%s: %d jobs wait and %d packets are parked", c.name, len(d.line(toWrite, s.mr).waiting), d.parked)
		}
		must.Do(t, s.e.mr.Close())
		w.step()
		if into := c.into(w)[:c.n]; !bytes.Equal(into, make([]byte, c.n)) {
			t.Errorf("%s: the memory was written", c.name)
		}
	}
}

// Rule: what a job has brought in is not asked for again for the packet that waited, even if the system never says that it
// is there, and also for several elements. It is asked for again later.
func TestTheSystemIsNotAskedAgain(t *testing.T) {
	w := newDiskWorld(t, nil)
	s := w.slow(w.a)
	d := w.a.ctx.dev
	asked := 0
	d.exclusive(func() { d.disk.resident = func(*mem.Arena, uint64, int) bool { asked++; return false } })
	send := func(id uint64) {
		wr := w.a.send(id, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 400), w.a.sge(1000, 400))
		wr.SetRDMA(w.b.at(4096), w.b.mr.RKey())
		w.a.mustPost(wr)
		w.step()
	}
	send(1)
	if jobs := s.finish(); jobs != 1 || asked != 2 {
		t.Errorf("%d jobs and %d questions for a packet of two elements, want 1 and 2", jobs, asked)
	}
	if got := w.a.poll(w.a.scq); statuses(got) != "1:SUCCESS " {
		t.Errorf("%s, want success although the system says that the memory is not there", statuses(got))
	}
	stale := &diskJob{q: w.a.qp, kind: toRead, done: true, at: d.now, spans: []span{s.mr.spanAt(w.a.at(0), 2000)}}
	w.fab.AdvanceTo(w.fab.Now() + time.Hour)
	d.exclusive(func() { w.a.qp.req.reading = stale })
	send(2)
	if asked != 4 {
		t.Errorf("%d questions, want 4: the job has ended an hour ago", asked)
	}
	s.finish()
	w.a.ok(w.a.poll(w.a.scq), 2)
}

// Rule: the packet that a job is for is kept though no more packets may be parked.
func TestAJobsOwnPacketIsParked(t *testing.T) {
	for _, c := range diskCases {
		if c.n != 8 { // packets behind the first are lost and repeated
			continue
		}
		w := newDiskWorld(t, nil)
		s := w.slow(c.slow(w))
		d := s.e.ctx.dev
		d.exclusive(func() { d.parked = maxParkedAll })
		c.post(w)
		w.step()
		if jobs := s.finish(); jobs != 1 {
			t.Errorf("%s: %d jobs, want 1", c.name, jobs)
		}
		d.exclusive(func() { d.parked -= maxParkedAll })
		w.settle()
		if got := w.a.poll(w.a.scq); statuses(got) != "1:SUCCESS " {
			t.Errorf("%s: %s, want success", c.name, statuses(got))
		}
	}
}

// Rule: a file system that stands still keeps its own places alone.
func TestEachFileSystemHasItsLines(t *testing.T) {
	p := newPool(t, true)
	file, memory := p.mr.(*memoryRegion), p.w.b.mr.(*memoryRegion)
	p.w.b.ctx.dev.exclusive(func() {
		d := p.w.b.ctx.dev
		l := d.line(toWrite, file)
		if (l != d.line(toWrite, memory)) != file.slow { // on tmpfs no disk is waited for
			t.Errorf("the file and the memory have one line: %t, and the file is on a disk: %t", l == d.line(toWrite, memory), file.slow)
		}
		if l == d.line(writeBack, file) || l != d.line(toRead, file) {
			t.Error("FLUSHes and pages have one line, or pages to read and to write have two")
		}
	})
}
