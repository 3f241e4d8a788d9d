package runtime

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/verbena-rdma/verbena/futures"
)

// Each message contains its number, its length and a checksum, at these offsets in bytes:
//
//	0        8        12      20
//	number   length   xxhash  bytes derived from the number
const stressHead = 20

func stressMessage(b []byte, number int64) {
	fillFrom(b[stressHead:], uint64(number))
	binary.LittleEndian.PutUint64(b, uint64(number))
	binary.LittleEndian.PutUint32(b[8:], uint32(len(b)))
	binary.LittleEndian.PutUint64(b[12:], xxhash.Sum64(b[stressHead:]))
}

// A pending is an outstanding SEND.
type pending struct{ f Future }

// send() sends messages from one end until the session is over. Several messages are outstanding at
// a time.
func (ses *session) send(side int, r simRand) {
	c, out := ses.ends[side], &ses.streams[side]
	defer out.finished.Store(true)
	var under []pending
	settle := func(keep int) {
		for ; len(under) > keep; under = under[1:] {
			if _, err := ses.await(r, under[0].f); err != nil {
				ses.failed("SEND", err)
			}
		}
	}
	space := make([]byte, stressLargest)
	for ses.spend() {
		b := space[:r.between(stressHead, stressMsgSize)]
		if r.one(2) {
			b = b[:stressHead+len(b)%60]
		} else if r.one(4) { // read by the peer
			b = space[:r.between(stressMsgSize+1, stressLargest)]
		}
		stressMessage(b, out.accepted.Load())
		// Count the message first, because it may arrive at the receiver before sendOne returns.
		out.accepted.Add(1)
		f, err := ses.sendOne(c, r, b)
		clear(b)
		if err != nil {
			out.accepted.Add(-1)
			ses.failed("posting a SEND", err)
			break
		}
		under = append(under, pending{f: f})
		settle(r.IntN(24))
	}
	settle(0)
}

// sendOne sends the message b. It calls SendBytes, or sends the message in several pieces.
func (ses *session) sendOne(c *Conn, r simRand, b []byte) (Future, error) {
	if r.one(2) {
		return c.SendBytes(ses.ctx, b)
	}
	var parts []Slice
	var bufs []Buffer
	for rest := b; len(rest) > 0; {
		n := len(rest)
		if len(parts) < DefaultMaxSGE-1 {
			n = r.between(1, n)
		}
		buf, err := c.rt.Alloc(n)
		if err != nil {
			return Future{}, err
		}
		rest = rest[copy(buf.Bytes(), rest):]
		bufs, parts = append(bufs, buf), append(parts, buf.Slice())
	}
	f, err := c.Start(ses.ctx, new(SendVOp(parts)))
	for _, buf := range bufs { // the pool reuses the buffers only after the send has completed
		if rerr := buf.Release(); rerr != nil {
			ses.fail("releasing a buffer: %v", rerr)
		}
	}
	return f, err
}

// await() waits until an operation has ended. Sometimes it first waits with a short timeout.
func (ses *session) await(r simRand, f Future) (Result, error) {
	if r.one(10) {
		ctx, cancel := context.WithTimeout(ses.ctx, time.Duration(r.IntN(30))*time.Microsecond)
		res, err := f.Await(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !f.Valid() {
			return ses.ended(f, res, err)
		}
		ses.s.gaveUp.Add(1)
	}
	res, err := f.Await(ses.ctx)
	return ses.ended(f, res, err)
}

func (ses *session) ended(f Future, res Result, err error) (Result, error) {
	ses.s.done.Add(1)
	if _, again, ok := f.Poll(); !ok || !errors.Is(again, futures.ErrConsumed) {
		ses.fail("Poll of a future whose result was taken returned %v (settled %t), want %v", again, ok, futures.ErrConsumed)
	}
	return res, err
}

// receive() takes the messages that ses.ends[from] sends. It returns when it has all messages, or
// when the connection has ended.
func (ses *session) receive(from int, r simRand) {
	c, in := ses.ends[1-from], &ses.streams[from]
	var held []Message
	release := func(keep int) {
		for len(held) > keep {
			k := r.IntN(len(held))
			m := held[k]
			held = append(held[:k], held[k+1:]...)
			if !goodMessage(m) {
				ses.fail("a message changed between RecvWait and Release")
			}
			if err := m.Release(); err != nil {
				ses.fail("releasing a message: %v", err)
			}
		}
	}
	defer release(0)
	for !in.finished.Load() || in.received < in.accepted.Load() {
		// The wait often times out. Then the next wait gets the message.
		ctx, cancel := context.WithTimeout(ses.ctx, time.Duration(r.IntN(2000))*time.Microsecond)
		m, err := c.RecvWait(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			ses.s.gaveUp.Add(1)
			if ses.ctx.Err() != nil {
				ses.fail("message %d of %d has not arrived within %v", in.received, in.accepted.Load(), stressHang)
				return
			}
			release(0)
			continue
		}
		if err != nil {
			ses.failed("RECV", err)
			return
		}
		ses.s.done.Add(1)
		if !goodMessage(m) || int64(binary.LittleEndian.Uint64(m.Data)) != in.received {
			ses.fail("end %d: want message %d, got %d bytes that begin with %x (number, length, checksum)", 1-from, in.received, len(m.Data), m.Data[:min(len(m.Data), stressHead)])
			return
		}
		in.received++
		held = append(held, m)
		release(r.IntN(8))
	}
}

func goodMessage(m Message) bool {
	b := m.Data
	return len(b) >= stressHead && binary.LittleEndian.Uint32(b[8:]) == uint32(len(b)) && binary.LittleEndian.Uint64(b[12:]) == xxhash.Sum64(b[stressHead:])
}

// A part is the memory of one worker in the server's region. It consists of slots between gaps of
// poison (mem.PoisonByte), and a word at the end. Sizes are in bytes.
const (
	stressWorkers = 4
	partSlots     = 4
	partSlot      = 24 << 10 // more than the device's MaxMsgSize (16 KiB): some transfers are split
	partGap       = 64
	partSize      = partSlots*(partSlot+partGap) + partGap + 64
)

// A worker is a goroutine that runs one-sided operations on the client.
type worker struct {
	ses    *session
	at     int // offset of the worker's part in the region
	r      simRand
	shadow []byte // expected content of the worker's part
	word   uint64
	unsure int // number of atomics on the word that may have taken effect or not
}

func newWorker(ses *session, i int, r simRand) *worker {
	w := &worker{ses: ses, at: i * partSize, r: r, shadow: make([]byte, partSize)}
	copy(w.shadow, ses.region.Bytes()[w.at:])
	clear(ses.region.Bytes()[w.at+partSize-64 : w.at+partSize-56])
	clear(w.shadow[partSize-64 : partSize-56])
	return w
}

func (w *worker) remote(at, n int) Remote {
	m, err := w.ses.remote.At(uint64(w.at+at), uint64(n))
	if err != nil {
		w.ses.fail("describing the memory of a worker: %v", err)
	}
	return m
}

// run() executes operations of random kinds.
func (w *worker) run() {
	for w.ses.spend() {
		switch w.r.IntN(6) {
		case 0, 1, 2:
			w.batch()
		case 3:
			w.add()
		case 4:
			w.addShared()
		default:
			w.copyThrough()
		}
	}
}

// place() returns a random range inside a slot.
func (w *worker) place(slot int) (at, n int) {
	n = w.r.between(1, 600)
	if w.r.one(6) {
		n = w.r.between(1, partSlot)
	}
	return partGap + slot*(partSlot+partGap) + w.r.IntN(partSlot-n+1), n
}

// batch() writes to different slots, waits for all these WRITEs at once, and reads one of the slots.
func (w *worker) batch() {
	ses, c := w.ses, w.ses.ends[0]
	var g futures.Group
	var fs []Future
	for slot := range partSlots {
		if !ses.spend() {
			break
		}
		at, n := w.place(slot)
		buf, err := c.rt.Alloc(n)
		if err != nil {
			ses.fail("allocating a buffer of %d bytes: %v", n, err)
			return
		}
		fillFrom(buf.Bytes(), w.r.Uint64())
		copy(w.shadow[at:], buf.Bytes())
		f, err := c.Write(ses.ctx, buf.Slice(), w.remote(at, n))
		if rerr := buf.Release(); rerr != nil {
			ses.fail("releasing a buffer: %v", rerr)
		}
		if err != nil {
			ses.failed("posting a WRITE", err)
			break
		}
		if err := futures.Add(&g, f); err != nil {
			ses.fail("adding a future to a group: %v", err)
		}
		fs = append(fs, f)
	}
	if err := g.Wait(ses.ctx); err != nil {
		ses.fail("WRITEs hang: %v", err)
		return
	}
	for _, f := range fs {
		res, err, ok := f.Poll()
		if !ok {
			ses.fail("Group.Wait returned before one of the futures of the group was settled")
		}
		if _, err := ses.ended(f, res, err); err != nil {
			ses.failed("WRITE", err)
		}
	}
	if !ses.lost.Load() {
		w.readBack(w.r.IntN(partSlots))
	}
}

// readBack reads a part of a slot and compares the bytes with w.shadow. Sometimes it releases the
// buffer while the device may still write to the buffer. Then it does not compare the bytes.
func (w *worker) readBack(slot int) {
	ses, c := w.ses, w.ses.ends[0]
	at, n := w.place(slot)
	buf, err := c.rt.Alloc(n)
	if err != nil {
		ses.fail("allocating a buffer of %d bytes: %v", n, err)
		return
	}
	f, err := c.Read(ses.ctx, buf.Slice(), w.remote(at, n))
	blind := err == nil && w.r.one(6)
	if blind {
		if err := buf.Release(); err != nil {
			ses.fail("releasing a buffer: %v", err)
		}
	}
	if err == nil {
		_, err = ses.await(w.r, f)
	}
	switch {
	case err != nil:
		ses.failed("READ", err)
	case !blind && !bytes.Equal(buf.Bytes(), w.shadow[at:at+n]):
		ses.fail("a READ of %d bytes at offset %d returned other bytes than were written", n, at)
	}
	if !blind {
		if err := buf.Release(); err != nil {
			ses.fail("releasing a buffer: %v", err)
		}
	}
}

// add() executes an atomic on the worker's own word.
func (w *worker) add() {
	ses, c := w.ses, w.ses.ends[0]
	var f Future
	var err error
	next := w.word + w.r.Uint64()
	if w.r.one(2) {
		f, err = c.Start(ses.ctx, new(FetchAndAddOp(w.remote(partSize-64, 8), next-w.word)))
	} else {
		f, err = c.Start(ses.ctx, new(CompareAndSwapOp(w.remote(partSize-64, 8), w.word, next)))
	}
	var res Result
	if err == nil {
		w.unsure++
		res, err = ses.await(w.r, f)
	}
	if err != nil {
		ses.failed("atomic", err)
		return
	}
	w.unsure--
	if res.Value != w.word {
		ses.fail("an atomic found the value %d in the worker's word, want %d", res.Value, w.word)
	}
	w.word = next
	binary.NativeEndian.PutUint64(w.shadow[partSize-64:], next)
}

func (w *worker) addShared() {
	ses, s, c := w.ses, w.ses.s, w.ses.ends[0]
	i := w.r.IntN(stressShared)
	remote, err := s.shared.Remote(i*8, 8)
	if err != nil {
		ses.fail("describing a shared word: %v", err)
		return
	}
	s.tried[i].Add(1)
	f, err := c.Start(ses.ctx, new(FetchAndAddOp(remote, 1)))
	var res Result
	if err == nil {
		res, err = ses.await(w.r, f)
	}
	if err != nil {
		ses.failed("atomic", err)
		return
	}
	s.countShared(i, res.Value)
}

// copyThrough writes and reads through Conn.At, which returns an io.WriterAt and io.ReaderAt.
func (w *worker) copyThrough() {
	ses := w.ses
	at, n := w.place(w.r.IntN(partSlots))
	m := ses.ends[0].At(ses.ctx, w.remote(at, n))
	b := make([]byte, n)
	fillFrom(b, w.r.Uint64())
	copy(w.shadow[at:], b)
	_, err := m.WriteAt(b, 0)
	if err == nil {
		clear(b)
		_, err = m.ReadAt(b, 0)
	}
	ses.s.done.Add(2)
	if err != nil {
		ses.failed("copying", err)
	} else if !bytes.Equal(b, w.shadow[at:at+n]) {
		ses.fail("ReadAt returned other bytes than WriteAt has written")
	}
}

// check() runs after the connection is closed. It compares the worker's part with w.shadow. If the session
// has failed (bad), the slots may differ from w.shadow, so check() compares only the gaps and the word. If
// w.unsure is also above 0, the word may differ from w.word, so check() compares only the gaps.
func (w *worker) check(bad bool) {
	got := w.ses.region.Bytes()[w.at : w.at+partSize]
	if !bad {
		if !bytes.Equal(got, w.shadow) {
			w.ses.fail("the part at offset %d has other bytes than were written", w.at)
		}
		return
	}
	for i := range partSlots + 1 {
		if at := i * (partSlot + partGap); !clean(got[at : at+partGap]) {
			w.ses.fail("the gap at offset %d of the part at offset %d was written", at, w.at)
		}
	}
	if v := binary.NativeEndian.Uint64(got[partSize-64:]); w.unsure == 0 && v != w.word {
		w.ses.fail("the word of the part at offset %d is %d, want %d", w.at, v, w.word)
	}
}
