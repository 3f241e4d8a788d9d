package plog

import (
	"context"
	"fmt"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Writer appends records to a lane of a log on another machine, with WRITEs and FLUSHes alone. Several
// goroutines may append at the same time: their records do not wait for each other.
type Writer struct {
	port port
	lane int
	log  layout
	gen  uint64
	head uint64 // as the server said last; records behind it may be overwritten
	at   uint64 // where the next record begins
	// unflushed is the position from which on no FLUSH was started. It differs from at only after a
	// start whose FLUSHes were not started.
	unflushed uint64
	buf       []byte
	// turn holds one token, which is taken by the goroutine that uses the fields above.
	turn chan struct{}
}

// port is a lane's memory as its writer reaches it. Tests simulate one.
type port interface {
	// post starts a WRITE for each write, and then a FLUSH for each span, in this order. A call of flush, or of
	// the waiter's wait, posts them. The server's device executes them in this order. post returns how many of
	// them were started; if not all, err is the reason. Otherwise the waiter waits for the FLUSHes.
	post(ctx context.Context, writes []write, flushes []span) (started int, done waiter, err error)
	// flush posts the operations that post has started.
	flush()
	// askHead returns the position of the oldest record that the server keeps.
	askHead(ctx context.Context) (uint64, error)
}

// write is a WRITE of bytes at an offset of the ring. post copies the bytes.
type write struct {
	off int
	b   []byte
}

// waiter waits for FLUSHes.
type waiter interface {
	wait(ctx context.Context) error
	discard()
}

// Join asks the log that the peer of a managed connection serves for a lane, and waits for the answer.
// The server must run [Log.Serve]. The connection must be of rt, and serves this writer alone: the
// program does not receive from it. It stays the program's, which closes it after the last append.
//
// After the end of a connection the writer dials and joins again. [Writer.Position] then tells which
// records of the last connection are in the log: those with a smaller position.
//
// Errors: [ErrLane]; [ErrLaneHeld]; [ErrFull]; [ErrFailed] of the server; [ErrMessage] for a peer that
// does not keep to the protocol; those of Conn.Call.
func Join(ctx context.Context, rt *verbena.Runtime, conn *verbena.Conn, lane int) (*Writer, error) {
	if lane < 0 || lane >= MaxLanes {
		return nil, fmt.Errorf("%w: %d", ErrLane, lane)
	}
	p := &connPort{rt: rt, conn: conn}
	var g grant
	if err := p.call(ctx, appendHead(nil, msgJoin, 0, uint32(lane)), func(b []byte) (err error) {
		g, err = parseGranted(b, lane)
		return err
	}); err != nil {
		return nil, err
	}
	p.log, p.claimed, p.windows = g.log, g.state.claimed, g.windows
	p.parts = g.log.open(g.state.claimed, g.state.head)
	return newWriter(p, &g), nil
}

func newWriter(p port, g *grant) *Writer {
	w := &Writer{port: p, lane: g.lane, log: g.log, gen: g.state.generation, head: g.state.head, at: g.state.claimed, unflushed: g.state.claimed, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

// MaxRecord returns the size in bytes of the largest record.
func (w *Writer) MaxRecord() int { return w.log.maxRecord() }

// Position returns the position of the next record. Records with smaller positions were in the log
// when the writer joined, or were started by it. A writer that comes back so finds out which of its records
// are there: those before the Position of its new Writer, which no later writer changes. It waits for a goroutine that is starting a record.
func (w *Writer) Position() uint64 {
	<-w.turn
	defer w.pass()
	return w.at
}

// Append appends a record and returns its position when it is persistent: whatever fails then, the log
// has it. Append costs one round trip. It waits for the records that this writer has started before,
// as for its own.
//
// Errors: those of Start, after which the record is not in the log; [ErrUnknown] with those of Wait.
func (w *Writer) Append(ctx context.Context, payload []byte) (position uint64, err error) {
	posted := false
	defer func() { // deferred: a context may panic
		if !posted {
			w.port.flush()
		}
	}()
	p, err := w.start(ctx, payload)
	if err != nil {
		return 0, err
	}
	if err := p.Wait(ctx); err != nil {
		p.Discard()
		return p.Position, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	posted = true
	return p.Position, nil
}

// Pending is a record that was started. The caller calls Wait until it returns something else than
// the context's error, or Discard.
type Pending struct {
	Position uint64
	done     waiter
}

// Wait waits until the record, and all that the writer started before, are persistent. If ctx ends
// first, Wait may be called again. After another error it is unknown whether the record is in the log: the
// next writer of the lane finds out by its position. If Start found room in the connection's send queue
// for the record, and none for the FLUSH behind it, Wait waits for that.
func (p Pending) Wait(ctx context.Context) error { return p.done.wait(ctx) }

// Discard gives the result up. The record is in the log, or not.
func (p Pending) Discard() { p.done.discard() }

// Start starts to append a record, and does not wait until it is persistent. It copies the payload. It
// waits for room in the connection's send queue, and where the lane's space is used up, it asks the
// server whether there is more.
//
// Errors: [ErrTooLarge]; [ErrFull]; ErrNilContext; those of Conn.Start. After these the record is not in
// the log. If ctx ends when the record is started, and the FLUSH behind it is not, Start returns the
// record: Wait starts the FLUSH.
func (w *Writer) Start(ctx context.Context, payload []byte) (Pending, error) {
	defer w.port.flush()
	return w.start(ctx, payload)
}

// start is Start without the flush. The caller waits, and so posts the record itself, or calls flush.
func (w *Writer) start(ctx context.Context, payload []byte) (p Pending, err error) {
	if n := len(payload); n > w.MaxRecord() {
		return p, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, w.MaxRecord())
	}
	if err := w.take(ctx); err != nil {
		return p, err
	}
	defer w.pass()
	ring := w.log.lines()
	at, end := w.at, w.at+linesOf(len(payload))
	if w.at%ring+linesOf(len(payload)) > ring {
		at += ring - w.at%ring
		end += at - w.at
	}
	if err := w.room(ctx, end); err != nil {
		return p, err
	}
	writes := make([]write, 0, 2)
	w.buf = w.buf[:0]
	if at > w.at { // the record does not fit behind the last one: a pad fills the ring's end
		pad := record{position: w.at, generation: w.gen, lane: w.lane, kind: kindPad}
		w.buf = pad.encode(w.buf, w.log.id, nil)
		writes = append(writes, write{int(w.at%ring) * LineSize, w.buf})
	}
	rec := record{position: at, generation: w.gen, lane: w.lane, kind: kindData}
	first := len(w.buf)
	w.buf = rec.encode(w.buf, w.log.id, payload)
	writes = append(writes, write{int(at%ring) * LineSize, w.buf[first:]})
	started, done, err := w.port.post(ctx, writes, w.log.spans(w.dirty(), end))
	// Each record that was started is there: the next one comes behind it, or the lane would end
	// with it.
	if started < len(writes) {
		if started > 0 {
			w.at = at
		}
		return p, err
	}
	if w.at = end; err != nil {
		return Pending{Position: at, done: &late{w: w, from: at, end: end}}, nil
	}
	w.unflushed = end
	return Pending{Position: at, done: done}, nil
}

// dirty returns the position from which on records may be in the ring that no FLUSH was started for. What
// the server has freed is persistent, and what is behind head fits into the ring.
func (w *Writer) dirty() uint64 { return max(w.unflushed, w.head) }

// take takes the turn, and pass gives it back.
func (w *Writer) take(ctx context.Context) error {
	if ctx == nil {
		return verbena.ErrNilContext
	}
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Writer) pass() { w.turn <- struct{}{} }

// late waits for a record whose WRITE was started, and whose FLUSH was not: it starts one.
type late struct {
	w         *Writer
	from, end uint64 // of the record
	done      waiter // nil until the FLUSH is started
}

func (l *late) wait(ctx context.Context) error {
	if l.done == nil {
		freed, err := l.start(ctx)
		if freed || err != nil {
			return err
		}
	}
	return l.done.wait(ctx)
}

// start starts a FLUSH of the record and of everything before it. It reports whether the server has freed
// the record: then it is persistent.
func (l *late) start(ctx context.Context) (freed bool, err error) {
	w := l.w
	if err := w.take(ctx); err != nil {
		return false, err
	}
	defer w.pass()
	if w.head >= l.end {
		return true, nil
	}
	// If later records have started FLUSHes since, one of this record is executed behind these.
	if _, l.done, err = w.port.post(ctx, nil, w.log.spans(min(w.dirty(), max(l.from, w.head)), w.at)); err == nil {
		w.unflushed = w.at
	}
	return false, err
}

func (l *late) discard() {
	if l.done != nil {
		l.done.discard()
	}
}

// room returns nil if the ring has space for the positions below end.
func (w *Writer) room(ctx context.Context, end uint64) error {
	if end-w.head <= w.log.lines() {
		return nil
	}
	head, err := w.port.askHead(ctx)
	switch {
	case err != nil:
		return err
	case head < w.head || head > w.at:
		return fmt.Errorf("%w: the oldest record is at %d, which is not from %d to %d", ErrMessage, head, w.head, w.at)
	}
	if w.head = head; end-head > w.log.lines() {
		return fmt.Errorf("%w: lane %d keeps the records from %d to %d", ErrFull, w.lane, head, w.at)
	}
	return nil
}
