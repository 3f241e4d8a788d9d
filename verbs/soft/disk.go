package soft

import (
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// A disk may keep a goroutine waiting for milliseconds, or, if it stands still, for seconds. The engine serves all queue
// pairs of its device, so it leaves what may wait for a disk to goroutines: diskJobs. A queue pair goes on when the
// engine has taken the result, in its next Progress call. In virtual time there are no jobs, so that a run stays in one
// goroutine.
//
//	            begin                    a place is free              done                    Progress
//	queue pair ───────> waiting in line ───────────────> a goroutine ──────> device.finished ──────────> finish
//	                        │ the queue pair left its state: forget              │ forgotten: no effect
//	                        v
//	                       gone
//
// A job changes no byte of memory, so one whose queue pair has gone may end at any time. Close of a region waits for the
// jobs that use it. So a job needs no pin of its own, and a closed context leaves no goroutine behind.

const (
	// jobsAtOnce bounds the goroutines of a line that wait for a disk: each blocks a thread, and disks gain
	// nothing from more. A queue pair has at most four jobs, and those that it has forgotten.
	jobsAtOnce = 8
	// diskPatience is the time after which a repeated request that waits for a disk gets an RNR NAK. A requester with the
	// smallest timeout of the runtime (code 13, 7 retries) gives up after 268 ms. Most disks have answered by then, and a
	// requester that has got the NAK may send nothing for the delay.
	diskPatience = 100 * time.Millisecond
	// longestRNR is the timer code of the longest RNR delay, 655.36 ms.
	longestRNR = 0
)

// diskKind is what a diskJob does with its spans.
type diskKind uint8

const (
	writeBack diskKind = iota // makes them persistent: a FLUSH (resp_persist.go)
	toWrite                   // brings their pages in, to be written (disk_memory.go)
	toRead                    // brings their pages in, to be read
)

// span is n bytes at addr, an address of the process, in a region.
type span struct {
	mr   *memoryRegion
	addr uint64
	n    int
}

// diskJob is work that may wait for a disk. It belongs to the engine, except spans and err while the goroutine works.
type diskJob struct {
	hook  ring.Hook[diskJob]
	q     *queuePair
	kind  diskKind
	spans []span
	psn   uint64        // of the FLUSH
	from  time.Duration // when it began
	err   error         // of writeBack. Written by the goroutine before the push
	done  bool          // it has finished, at the time at
	at    time.Duration

	// parked holds the packets that wait for it, see park.go.
	parked     []*fabric.Packet
	lastParked uint64 // PSN of the last
}

// InboxHook returns the link into the device's inbox.
func (j *diskJob) InboxHook() *ring.Hook[diskJob] { return &j.hook }

// diskLine is the jobs of a device that wait for a place, the first come first, and the number of those that have one.
// Each file system has its lines, because one that stands still keeps its places. FLUSHes have a line of their own: a
// write takes longer than to bring in a page, which mostly is there.
type diskLine struct {
	waiting []*diskJob
	busy    int
}

// lineKey names a line.
type lineKey struct {
	disk    uint64 // mem.Arena.Disk
	flushes bool
}

// diskWork is what a job does; tests replace it. See the methods of [mem.Arena].
type diskWork struct {
	mayWait     func(*mem.Arena) bool // at the time of registration
	syncIsQuick func(a *mem.Arena, n int) bool
	sync        func(a *mem.Arena, addr uint64, n int) error
	resident    func(a *mem.Arena, addr uint64, n int) bool
	prefetch    func(a *mem.Arena, addr uint64, n int, write bool)
}

// newDiskWork returns the work of a device on a fabric, in virtual time or not.
func newDiskWork(virtual bool) diskWork {
	w := diskWork{
		mayWait: (*mem.Arena).MayWait, syncIsQuick: (*mem.Arena).SyncIsQuick, sync: (*mem.Arena).Sync,
		resident: (*mem.Arena).Resident, prefetch: (*mem.Arena).Prefetch,
	}
	if virtual {
		w.mayWait = func(*mem.Arena) bool { return false }
		w.syncIsQuick = func(*mem.Arena, int) bool { return true }
	}
	return w
}

// line returns the line of a kind of job for a region. takeFinished removes it when it is empty.
func (d *device) line(kind diskKind, m *memoryRegion) *diskLine {
	k := lineKeyOf(kind, m)
	l := d.lines[k]
	if l == nil {
		if d.lines == nil {
			d.lines = map[lineKey]*diskLine{}
		}
		l = &diskLine{}
		d.lines[k] = l
	}
	return l
}

func lineKeyOf(kind diskKind, m *memoryRegion) lineKey {
	return lineKey{m.arena.Disk(), kind == writeBack}
}

// lineKey names the line of j. A job with spans on several disks is in the line of the first.
func (j *diskJob) lineKey() lineKey { return lineKeyOf(j.kind, j.spans[0].mr) }

// line returns the line of j.
func (j *diskJob) line() *diskLine { return j.q.dev.line(j.kind, j.spans[0].mr) }

// begin has a job of q done, and sets *at to it.
func (q *queuePair) begin(at **diskJob, kind diskKind, spans ...span) {
	d := q.dev
	j := &diskJob{q: q, kind: kind, spans: spans, from: d.now}
	*at = j
	for _, s := range spans {
		s.mr.atDisk.Add(1)
	}
	l := j.line()
	l.waiting = append(l.waiting, j)
	l.start()
}

// start starts the next jobs, as long as there are places.
func (l *diskLine) start() {
	for ; l.busy < jobsAtOnce && len(l.waiting) > 0; l.busy++ {
		go l.waiting[0].run()
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
}

func (j *diskJob) run() {
	defer j.leave() // last: afterwards this goroutine does not touch the device
	d := j.q.dev
	for _, s := range j.spans {
		if j.kind == writeBack {
			j.err = d.disk.sync(s.mr.arena, s.addr, s.n)
		} else {
			d.disk.prefetch(s.mr.arena, s.addr, s.n, j.kind == toWrite)
		}
	}
	d.finished.Push(j)
	d.kick()
}

// leave notes that the job does not use its regions any more.
func (j *diskJob) leave() {
	for _, s := range j.spans {
		s.mr.atDisk.Done()
	}
}

// takeFinished goes on with the queue pairs of finished jobs, and starts the next jobs.
func (d *device) takeFinished() {
	for j := d.finished.TakeAll(); j != nil; {
		following := j.hook.Unlink()
		l := j.line()
		l.busy--
		j.finish()
		if l.start(); l.busy == 0 {
			delete(d.lines, j.lineKey())
		}
		j = following
	}
}

// finish goes on with the queue pair of j. A job that its queue pair has forgotten has no effect.
func (j *diskJob) finish() {
	q := j.q
	j.done, j.at = true, q.dev.now
	switch j {
	case q.resp.disk:
		if q.resp.nakDue && q.resp.nak == wire.RNRNak(longestRNR) {
			q.resp.nakDue = false // it said that the peer has to wait for j
		}
		if j.kind == writeBack {
			q.resp.disk = nil
			q.flushed(j.psn, j.err)
			q.executeParked(j, &q.resp.disk, q.onRequest)
			return
		}
		q.withMemory(j, &q.resp.disk, q.onRequest)
	case q.req.storing:
		q.withMemory(j, &q.req.storing, q.onResponse)
	case q.resp.reading, q.req.reading:
		q.dev.activate(q)
	}
}

// forget makes a job have no effect, if there is one, and drops the packets parked behind it.
func (q *queuePair) forget(at **diskJob) {
	j := *at
	if j == nil {
		return
	}
	*at = nil
	if !j.done {
		l := j.line()
		if i := slices.Index(l.waiting, j); i >= 0 {
			l.waiting = slices.Delete(l.waiting, i, i+1)
			j.leave()
		}
	}
	q.dropParked(j)
}

// isLong reports whether the peer, which repeats its request, is to be told that this end waits for a disk.
func (q *queuePair) isLong(j *diskJob) bool {
	return q.peerWaits && q.dev.now-j.from >= diskPatience
}
