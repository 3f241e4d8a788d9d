package plog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// chooser makes the choices of a run.
type chooser interface {
	// pick returns a number below n.
	pick(n int) int
}

// entry is a record that a writer has started.
type entry struct {
	position uint64
	payload  string
	// sure means that the record was acknowledged, or read, or was there when the lane's next writer
	// began: no loss of power takes it back.
	sure bool
}

// ledger is what a lane must have.
type ledger struct {
	entries []entry
	// freed is the number of entries that were trimmed, or are being trimmed: they need not be there.
	freed int
}

// violation is a broken rule, thrown by panic and caught by the run.
type violation struct{ text string }

func broken(format string, args ...any) { panic(violation{fmt.Sprintf(format, args...)}) }

// world is a log on a machine that may lose power, with its writers.
type world struct {
	c       chooser
	p       *power
	log     *Log
	id      uint64 // of the log
	made    bool   // Create has returned
	before  *world // the log that Create replaces; nil for none
	ledgers []ledger
	writers []*far // by lane; nil without one
	readers []*Reader
	number  int // of records, so that no two are equal

	generation uint64 // of the last writer

	scratch image
	// limit bounds the contents that are tried at each step; above it, random ones are.
	limit int
	rnd   *rand.Rand
	quiet func() bool // reports whether the step was tried before
	tried int         // contents that were tried
}

// newWorld makes a log; the machine may lose power in the meantime. old is the memory before.
func newWorld(c chooser, g Config, limit int, seed uint64, old []byte) *world {
	l, err := g.validate(1 << 30)
	if err != nil {
		panic(err)
	}
	w := &world{c: c, p: newPower(int(l.size())), limit: limit, rnd: rand.New(rand.NewPCG(seed, 1)), quiet: func() bool { return false }}
	copy(w.p.now, old)
	copy(w.p.seen, old)
	w.scratch = make(image, len(w.p.now))
	w.ledgers, w.writers = make([]ledger, g.Lanes), make([]*far, g.Lanes)
	w.p.crash = w.tryLosses
	return w
}

func (w *world) create(g Config, id uint64) {
	var err error
	if w.made {
		w.before = &world{id: w.id, ledgers: w.ledgers}
	}
	w.id, w.made, w.ledgers = id, false, make([]ledger, g.Lanes)
	if w.log, err = create(w.p, g, id); err != nil {
		broken("create: %v", err)
	}
	w.made = true
	w.openReaders()
}

func (w *world) openReaders() {
	w.readers = nil
	for i := range w.ledgers {
		r, err := w.log.Reader(i)
		if err != nil {
			broken("%v", err)
		}
		w.readers = append(w.readers, r)
	}
}

// tryLosses loses power at this step in all ways, and checks what is found.
func (w *world) tryLosses() {
	if w.quiet() {
		return
	}
	words, contents := w.p.words(w.limit)
	for k := range contents {
		pick := func(_, n int) int { v := k % n; k /= n; return v }
		if contents == w.limit {
			pick = w.randomLoss(k)
		}
		w.p.lose(w.scratch, words, pick)
		w.tried++
		w.check(w.scratch)
	}
}

// randomLoss returns the choices of a random loss: everything lost, everything kept, or any mixture.
func (w *world) randomLoss(k int) func(i, n int) int {
	keep := w.rnd.Float64()
	return func(_, n int) int {
		switch {
		case k == 0:
			return 0
		case k == 1 || w.rnd.Float64() < keep:
			return n - 1
		default:
			return w.rnd.IntN(n)
		}
	}
}

// check opens the log of a machine that has lost power, and compares it with the ledgers. While a log
// is being made, there may be the one before, or none.
func (w *world) check(m image) {
	l, err := open(m)
	switch {
	case err != nil && !w.made && errors.Is(err, ErrNoLog):
		return
	case err != nil:
		broken("after the loss the log cannot be opened: %v", err)
	case l.id != w.id && !w.made && w.before != nil && l.id == w.before.id:
		w = w.before
	case l.id != w.id:
		broken("after the loss there is another log")
	}
	for i := range w.ledgers {
		r, err := l.Reader(i)
		if err != nil {
			broken("lane %d: %v", i, err)
		}
		found, err := readAll(r)
		if err != nil {
			broken("after the loss: lane %d: %v", i, err)
		}
		if why := w.ledgers[i].compare(found); why != "" {
			broken("after the loss: lane %d: %s", i, why)
		}
	}
}

func readAll(r *Reader) (found []Record, err error) {
	for {
		rec, ok, err := r.Next()
		if err != nil || !ok {
			return found, err
		}
		found = append(found, rec)
	}
}

// compare is the checker. The records that were found must be entries, in order and without a gap;
// every sure entry must be among them, unless it was freed. It returns the rule that is broken.
func (l *ledger) compare(found []Record) string {
	if len(found) == 0 {
		if k := slices.IndexFunc(l.entries[l.freed:], func(e entry) bool { return e.sure }); k >= 0 {
			return fmt.Sprintf("the record at %d is lost, and all others", l.entries[l.freed+k].position)
		}
		return ""
	}
	from := slices.IndexFunc(l.entries, func(e entry) bool { return e.position == found[0].Position })
	if from < 0 {
		return fmt.Sprintf("a record at %d that nobody has appended: %q", found[0].Position, found[0].Payload)
	}
	if from > l.freed {
		if k := slices.IndexFunc(l.entries[l.freed:from], func(e entry) bool { return e.sure }); k >= 0 {
			return fmt.Sprintf("the record at %d is lost", l.entries[l.freed+k].position)
		}
		return fmt.Sprintf("the record at %d is there, and those before it are not", found[0].Position)
	}
	for i, rec := range found {
		if from+i >= len(l.entries) {
			return fmt.Sprintf("a record at %d that nobody has appended: %q", rec.Position, rec.Payload)
		}
		if e := l.entries[from+i]; e.position != rec.Position || e.payload != string(rec.Payload) {
			return fmt.Sprintf("the record at %d is %q, want the one at %d: %q", rec.Position, rec.Payload, e.position, e.payload)
		}
	}
	for _, e := range l.entries[from+len(found):] {
		if e.sure {
			return fmt.Sprintf("the record at %d is lost", e.position)
		}
	}
	return ""
}

// far is a writer on another machine, and its connection: what it has posted and the device has not
// executed, and the server's side of it.
type far struct {
	w       *world
	lane    int
	out     *Writer
	queue   []request
	pending []Pending

	executed int // the number of requests that the device has executed

	access access
	number uint32 // of the windows that the writer uses
	panes  []*pane
	unsure bool // answers to questions for space may be lost
}

// pane is a simulated window on a part of a ring.
type pane struct {
	span
	open bool
}

func (p *pane) Remote() (verbena.Remote, error) { return verbena.Remote{}, nil }

func (p *pane) Revoke(context.Context) error {
	p.open = false
	return nil
}

func panes(o *opening) (all []*pane) {
	for _, w := range o.windows {
		all = append(all, w.(*pane))
	}
	return all
}

// request is a WRITE, or a FLUSH, that the device has not executed.
type request struct {
	off, n int
	b      []byte // nil for a FLUSH
	by     *pane  // the window
	place  string // of the FLUSH
}

// request returns a request for n bytes of the ring by one of the windows that the writer knows.
func (f *far) request(off, n int) request {
	for _, p := range f.panes {
		if off >= p.off && off+n <= p.off+p.n {
			return request{off: f.w.log.ring(f.lane) + off, n: n, by: p}
		}
	}
	broken("lane %d: the writer has no window on %d bytes at %d", f.lane, n, off)
	return request{}
}

func (f *far) post(_ context.Context, writes []write, flushes []span) (int, waiter, error) {
	for _, wr := range writes {
		r := f.request(wr.off, len(wr.b))
		r.b = slices.Clone(wr.b)
		f.queue = append(f.queue, r)
	}
	for i, s := range flushes {
		r := f.request(s.off, s.n)
		r.place = fmt.Sprintf("FLUSH %d of a writer", i)
		f.queue = append(f.queue, r)
	}
	return len(writes) + len(flushes), &executed{f, f.executed + len(f.queue)}, nil
}

// flush does nothing: step executes requests whether or not they were flushed. TestRecordsArePosted checks the calls.
func (f *far) flush() {}

var errLost = errors.New("the answer was lost")

// askHead is a question behind all that was posted.
func (f *far) askHead(ctx context.Context) (uint64, error) {
	for len(f.queue) > 0 {
		f.step()
	}
	head := f.w.log.headOf(f.lane)
	o, err := f.access.space(ctx, f.number, head)
	if err != nil {
		broken("lane %d: space: %v", f.lane, err)
	}
	if f.unsure && f.w.c.pick(2) == 1 {
		return 0, errLost
	}
	f.number, f.panes = o.number, panes(o)
	return head, nil
}

// step lets the device execute the oldest request.
func (f *far) step() {
	if len(f.queue) == 0 {
		return
	}
	r := f.queue[0]
	f.queue = f.queue[1:]
	f.executed++
	if !r.by.open {
		broken("lane %d: a request for %d bytes at %d by a window that was revoked", f.lane, r.n, r.off)
	}
	if r.b != nil {
		f.w.p.store(r.off, r.b)
	} else {
		f.w.p.flush(r.place, r.off, r.n)
	}
}

// executed waits until the device has executed a number of requests.
type executed struct {
	f *far
	n int
}

func (e *executed) wait(context.Context) error {
	for e.f.executed < e.n {
		e.f.step()
	}
	return nil
}

func (e *executed) discard() {}

// leave ends a writer's connection: what the device has not executed is not executed any more, perhaps
// but for a part of one WRITE.
func (w *world) leave(lane int) {
	f := w.writers[lane]
	if f == nil {
		return
	}
	if len(f.queue) > 0 && f.queue[0].b != nil && w.c.pick(2) == 1 {
		w.p.store(f.queue[0].off, f.queue[0].b[:recordHeader])
	}
	w.writers[lane] = nil
	if err := f.access.end(context.Background()); err != nil {
		broken("lane %d: %v", lane, err)
	}
	w.log.release(lane)
}

// enter gives a lane to a new writer.
func (w *world) enter(lane int) (f *far, s state) {
	w.generation++
	s, err := w.log.claim(lane, w.generation)
	if err != nil {
		broken("claim: %v", err)
	}
	f = &far{w: w, lane: lane}
	f.access = access{log: w.log.layout, claimed: s.claimed, bind: func(_ context.Context, s span) (window, error) { return &pane{s, true}, nil }}
	if err := f.access.first(context.Background(), s.head); err != nil {
		broken("lane %d: %v", lane, err)
	}
	f.panes = panes(f.access.used)
	f.out = newWriter(f, &grant{lane: lane, log: w.log.layout, state: s})
	w.writers[lane] = f
	return f, s
}

// claim gives a lane to a new writer, after the last one has left.
func (w *world) claim(lane int) {
	w.leave(lane)
	_, s := w.enter(lane)
	l := &w.ledgers[lane]
	for i := range l.entries {
		if e := &l.entries[i]; e.position < s.claimed {
			e.sure = true
		} else if e.sure {
			broken("lane %d: the next writer begins at %d, and the record at %d is lost", lane, s.claimed, e.position)
		} else {
			l.entries = l.entries[:i]
			break
		}
	}
}

// start appends a record without waiting. A full lane is read and trimmed.
func (w *world) start(lane, size int) {
	f := w.writers[lane]
	w.number++
	payload := fmt.Sprintf("%0*d", size, w.number)
	p, err := f.out.Start(context.Background(), []byte(payload))
	if err != nil {
		w.trim(lane)
		if p, err = f.out.Start(context.Background(), []byte(payload)); err != nil {
			return // the rest is in the queue, and the reader does not see it
		}
	}
	f.pending = append(f.pending, p)
	w.ledgers[lane].entries = append(w.ledgers[lane].entries, entry{position: p.Position, payload: payload})
}

// wait waits for the oldest pending record: it is acknowledged, and so are those before it.
func (w *world) wait(lane int) {
	f := w.writers[lane]
	if f == nil || len(f.pending) == 0 {
		return
	}
	p := f.pending[0]
	if err := p.Wait(context.Background()); err != nil {
		broken("wait: %v", err)
	}
	f.pending = f.pending[1:]
	for i := range w.ledgers[lane].entries {
		if e := &w.ledgers[lane].entries[i]; e.position <= p.Position {
			e.sure = true
		}
	}
	w.tryLosses()
}

// read reads all records of a lane: they are never lost again.
func (w *world) read(lane int) {
	found, err := readAll(w.readers[lane])
	if err != nil {
		broken("read: lane %d: %v", lane, err)
	}
	l := &w.ledgers[lane]
	for _, rec := range found {
		i := slices.IndexFunc(l.entries, func(e entry) bool { return e.position == rec.Position })
		if i < 0 || l.entries[i].payload != string(rec.Payload) {
			broken("read: lane %d: a record at %d that nobody has appended: %q", lane, rec.Position, rec.Payload)
		}
		l.entries[i].sure = true
	}
	w.tryLosses()
}

func (w *world) trim(lane int) {
	w.read(lane)
	l, r := &w.ledgers[lane], w.readers[lane]
	l.freed = 0
	for _, e := range l.entries {
		if e.position < r.at {
			l.freed++
		}
	}
	if err := r.Trim(); err != nil {
		broken("trim: %v", err)
	}
	// The trim is persistent: what it freed shall not come back.
	l.entries = l.entries[l.freed:]
	l.freed = 0
	w.tryLosses()
}

// reboot loses power in one way, and continues with what is left.
func (w *world) reboot() {
	words, _ := w.p.words(w.limit)
	left := make([]byte, len(w.p.now))
	line, keep := -1, 0
	mode := w.c.pick(3) // all lost, all kept, or some lines lost
	w.p.lose(left, words, func(i, n int) int {
		if at := words[i] / LineSize; at != line {
			if line, keep = at, mode; mode == 2 {
				keep = w.c.pick(2)
			}
		}
		return keep * (n - 1)
	})
	p := newPower(len(left))
	copy(p.now, left)
	copy(p.seen, left)
	p.crash, p.taken, p.places = w.p.crash, w.p.taken, w.p.places
	w.p = p
	w.check(left)
	var err error
	if w.log, err = open(p); err != nil {
		broken("open: %v", err)
	}
	clear(w.writers)
	w.openReaders()
	seen, err := open(image(left))
	if err != nil {
		broken("open: %v", err)
	}
	for i := range w.ledgers {
		r, err := seen.Reader(i)
		if err != nil {
			broken("%v", err)
		}
		found, err := readAll(r)
		if err != nil {
			broken("read: %v", err)
		}
		l := &w.ledgers[i]
		// What was not found is gone: it shall not come back.
		l.entries = slices.DeleteFunc(l.entries, func(e entry) bool {
			return !slices.ContainsFunc(found, func(rec Record) bool { return rec.Position == e.position })
		})
	}
}
