//go:build linux && cgo && !portable

package ibv

// #cgo noescape batch_run
// #cgo nocallback batch_run
// #include "batch.h"
import "C"

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// group is one group of a batch as C sees it: numbers only. An array of them, a frame, is lent to
// C only while batch_run runs, so it may lie on the stack of the goroutine, which does not move
// during the call. The objects and memory behind the numbers stay valid: no object of a batch may
// be closed meanwhile, and lists and completions are off-heap memory of the caller.
type group = C.struct_batch_group

// lookOpcodes makes C check for invalid opcodes, in lists for a library that accepts any.
const lookOpcodes = C.BATCH_LOOK_OPCODES

// lookInvalid makes C correct completions of Soft-RoCE that encode WITH_INV by another number.
const lookInvalid = C.BATCH_LOOK_INVALID

// mostSpin bounds IOBatch.Spin: some 100 µs on the slowest device.
const mostSpin = 4096

// smallFrame is the number of groups in a frame on the stack: enough for a reactor with a handful
// of busy queue pairs. 16 of 40 bytes are cheap to clear.
const smallFrame = 16

// frames holds the frames of larger batches, so that those do not allocate either. Execute owns
// one from before the cgo call until it has read the results.
var frames = sync.Pool{New: func() any { return new([]group) }}

// Execute carries out one batch in one cgo call. It does not block and does not allocate.
func (c *deviceContext) Execute(t *verbs.IOBatch) error {
	if c.removed() {
		return opError("execute", c.label, syscall.EIO, "%w", verbs.ErrDeviceRemoved)
	}
	n := len(t.Recvs) + len(t.Sends) + len(t.Arms) + len(t.Polls)
	if n == 0 {
		return nil
	}
	if n <= smallFrame {
		var small [smallFrame]group
		return c.outcome(t, c.run(t, small[:n]))
	}
	f := frames.Get().(*[]group)
	if cap(*f) < n {
		*f = make([]group, n)
	}
	g := (*f)[:n]
	clear(g)
	eio := c.run(t, g)
	frames.Put(f)
	return c.outcome(t, eio)
}

// run fills the frame, calls C, and reads the results. It reports whether one of them was EIO.
func (c *deviceContext) run(t *verbs.IOBatch, f []group) (eio bool) {
	at := 0
	for i := range t.Recvs {
		c.fillRecv(&f[at], &t.Recvs[i])
		at++
	}
	for i := range t.Sends {
		c.fillSend(&f[at], &t.Sends[i])
		at++
	}
	for i := range t.Arms {
		c.fillArm(&f[at], &t.Arms[i])
		at++
	}
	for i := range t.Polls {
		c.fillPoll(&f[at], &t.Polls[i])
		at++
	}
	C.batch_run(&f[0], C.uint32_t(len(f)), C.uint32_t(min(max(t.Spin, 0), mostSpin)))
	if raceEnabled {
		used(t)
	}
	at = 0
	for i := range t.Recvs {
		r := &t.Recvs[i]
		r.Accepted, r.Errno = int(f[at].count), c.answer(&f[at])
		at++
	}
	for i := range t.Sends {
		s := &t.Sends[i]
		s.Accepted, s.Errno = int(f[at].count), c.answer(&f[at])
		at++
	}
	for i := range t.Arms {
		t.Arms[i].Errno = c.answer(&f[at])
		at++
	}
	for i := range t.Polls {
		p := &t.Polls[i]
		p.N, p.Errno = int(f[at].count), c.answer(&f[at])
		at++
	}
	for i := range f {
		eio = eio || syscall.Errno(f[i].err) == syscall.EIO
	}
	return eio
}

// used shows the race detector that a batch used its objects until now: the detector does not see
// the accesses of C. It comes after the cgo call, because the detector takes each C call to be
// synchronized with earlier ones.
func used(t *verbs.IOBatch) {
	see := func(o any) {
		if r, ok := o.(registered); ok {
			_ = r.base().destroyed
		}
	}
	for i := range t.Recvs {
		see(t.Recvs[i].QP)
		see(t.Recvs[i].SRQ)
	}
	for i := range t.Sends {
		see(t.Sends[i].QP)
	}
	for i := range t.Arms {
		see(t.Arms[i].CQ)
	}
	for i := range t.Polls {
		see(t.Polls[i].CQ)
	}
}

// answer returns the errno of a group; EIO is a sign of the device's removal.
func (c *deviceContext) answer(g *group) syscall.Errno {
	if g.err == 0 {
		return 0
	}
	if e := syscall.Errno(g.err); e != syscall.EIO || g.kind >= C.BATCH_POLL {
		return e // polling an overrun queue returns EIO
	}
	c.saw(sawEIO)
	return syscall.EIO
}

// in reports whether a batch of c may use the object: it belongs to c and is not closed.
func (n *node) in(c *deviceContext) bool { return n.ctx == c && !n.closed.Load() }

// refuse makes C skip a group.
func refuse(g *group) { g.kind, g.count, g.err = C.BATCH_NONE, 0, C.EINVAL }

func (c *deviceContext) fillRecv(g *group, r *verbs.RecvGroup) {
	if r.Head == 0 || r.Count <= 0 {
		g.kind = C.BATCH_NONE
		return
	}
	g.at, g.count = C.uint64_t(r.Head), C.uint32_t(r.Count)
	if s, ok := r.SRQ.(*sharedReceiveQueue); ok && s != nil && s.in(c) {
		g.kind, g.obj = C.BATCH_SRQ_RECV, C.uint64_t(addr(s.c))
	} else if q, ok := r.QP.(*queuePair); ok && q != nil && q.in(c) && r.SRQ == nil && !q.xrc() {
		g.kind, g.obj = C.BATCH_RECV, C.uint64_t(addr(q.c))
	} else {
		refuse(g)
	}
}

func (c *deviceContext) fillSend(g *group, s *verbs.SendGroup) {
	if s.Head == 0 || s.Count <= 0 {
		g.kind = C.BATCH_NONE
		return
	}
	q, ok := s.QP.(*queuePair)
	if !ok || q == nil || !q.in(c) || q.init.Type == verbs.QPTXRCRecv {
		refuse(g)
		return
	}
	g.kind, g.obj = C.BATCH_SEND, C.uint64_t(addr(q.c))
	if s.Extended {
		g.kind = C.BATCH_SEND_EX
	}
	g.at, g.count = C.uint64_t(s.Head), C.uint32_t(s.Count)
	g.look = C.uint16_t(c.look &^ lookInvalid)
	if c.windows.Load() != 0 {
		g.look |= C.BATCH_LOOK_BINDINGS
	}
	if q.ex != nil {
		g.ex, g.ops = C.uint64_t(addr(q.ex)), C.uint32_t(q.ops)
	}
}

func (c *deviceContext) fillArm(g *group, a *verbs.ArmGroup) {
	q, ok := a.CQ.(*completionQueue)
	if !ok || q == nil || !q.in(c) {
		refuse(g)
		return
	}
	g.kind, g.obj = C.BATCH_ARM, C.uint64_t(addr(q.c))
	if a.Solicited {
		g.kind = C.BATCH_ARM_SOLICITED
	}
}

func (c *deviceContext) fillPoll(g *group, p *verbs.PollGroup) {
	q, ok := p.CQ.(*completionQueue)
	if !ok || q == nil || !q.in(c) {
		refuse(g)
		return
	}
	if len(p.WC) == 0 {
		g.kind = C.BATCH_NONE
		return
	}
	g.kind, g.obj = C.BATCH_POLL, C.uint64_t(addr(q.c))
	if q.extended {
		g.kind = C.BATCH_POLL_EX
	}
	g.look = C.uint16_t(c.look & lookInvalid)
	g.at = C.uint64_t(uintptr(unsafe.Pointer(unsafe.SliceData(p.WC))))
	g.count = C.uint32_t(len(p.WC))
	g.ops = g.count
}
