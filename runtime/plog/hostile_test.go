package plog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// siege is a lane that honest writers and a hostile one share, one after the other. The hostile one has
// a connection and its windows, and knows what it was told; it writes anything by any window that it has had.
type siege struct {
	*world
	evil    bool     // the lane's writer is the hostile one
	had     []*pane  // the windows of the hostile writer
	known   []uint64 // the generations of the hostile writer
	aim     uint64   // where it continues
	begun   uint64   // where the present writer began
	honest  []reign
	records map[uint64]entry // of honest writers, by position
	last    []int64          // by reader: the position that it has returned last, or the one before its first
}

// reign is a range of positions that was an honest writer's.
type reign struct{ from, to uint64 }

func newSiege(c chooser, lines int, seed uint64) *siege {
	g := Config{Lanes: 1, LaneSize: lines * LineSize}
	s := &siege{world: newWorld(c, g, 1, seed, nil), records: map[uint64]entry{}}
	s.quiet = func() bool { return true }
	s.generation = seed // the hostile writer does not guess it
	s.create(g, seed|1)
	s.readers = nil
	s.addReader()
	return s
}

func (s *siege) addReader() {
	r, err := s.log.Reader(0)
	if err != nil {
		broken("%v", err)
	}
	s.readers, s.last = append(s.readers, r), append(s.last, int64(r.at)-1)
}

func (s *siege) dropReader(i int) {
	s.readers, s.last = slices.Delete(s.readers, i, i+1), slices.Delete(s.last, i, i+1)
}

// end ends the present writer's connection.
func (s *siege) end() {
	if s.writers[0] == nil {
		return
	}
	s.leave(0)
}

// join gives the lane to the next writer. What honest writers have left is persistent then.
func (s *siege) join(evil bool) {
	s.end()
	was, begun := s.evil, s.begun
	s.generation = s.generation*6364136223846793005 + 1442695040888963407
	f, st := s.enter(0)
	f.unsure = true
	if !was && st.claimed > begun {
		s.honest = append(s.honest, reign{begun, st.claimed})
	}
	for p, e := range s.records {
		switch {
		case p < st.claimed:
			e.sure = true
			s.records[p] = e
		case e.sure:
			broken("the next writer begins at %d, and the record at %d is lost", st.claimed, p)
		default:
			delete(s.records, p)
		}
	}
	s.evil, s.begun = evil, st.claimed
	if evil {
		s.had = append(s.had, panes(f.access.used)...)
		s.aim = st.claimed
		s.known = append(s.known, st.generation)
	}
}

// attack is a WRITE of the hostile writer, mostly of a record where readers, the next writer, or its own last
// record would have the next one. It tries all windows that it has had: one that was revoked opens nothing.
func (s *siege) attack() {
	st, n := s.log.lanes[0].state, s.log.lines()
	pick := func(n uint64) uint64 { return uint64(s.c.pick(int(n))) }
	at := []uint64{s.aim, s.aim, s.aim, st.head, st.claimed, s.log.lanes[0].kept, s.readers[s.c.pick(len(s.readers))].at, st.head + pick(2*n)}[pick(8)]
	b := make([]byte, LineSize)
	if s.c.pick(8) > 0 {
		rec := record{position: at, lane: 0, kind: []kind{kindData, kindData, kindData, kindPad, kindVoid}[s.c.pick(5)]}
		switch rec.generation = s.known[len(s.known)-1]; s.c.pick(6) {
		case 0:
			rec.generation += 1 + pick(2) // as if generations were counted
		case 1:
			rec.generation = s.known[s.c.pick(len(s.known))]
		}
		payload := ""
		if rec.kind == kindData {
			payload = strings.Repeat("evil", s.c.pick(s.log.MaxRecord()/4))
		}
		s.aim = at + rec.lines(n)
		b = rec.encode(nil, s.log.id, []byte(payload))
	}
	off := int(at%n) * LineSize
	for _, p := range s.had {
		if p.open && off >= p.off && off+len(b) <= p.off+p.n {
			s.p.store(s.log.ring(0)+off, b)
			if s.c.pick(2) == 0 {
				s.p.flush("FLUSH of the hostile writer", s.log.ring(0)+off, len(b))
			}
			return
		}
	}
}

// ask is a question for space of the hostile writer, by any number.
func (s *siege) ask() {
	f := s.writers[0]
	number := f.access.used.number
	if f.access.offered != nil && s.c.pick(2) == 1 {
		number = f.access.offered.number
	}
	o, err := f.access.space(context.Background(), number, s.log.headOf(0))
	if err != nil {
		broken("space: %v", err)
	}
	s.had = append(s.had, panes(o)...)
}

// append appends a record of an honest writer.
func (s *siege) append() {
	f := s.writers[0]
	s.number++
	payload := fmt.Sprintf("%0*d", 8+s.c.pick(s.log.MaxRecord()-8), s.number)
	p, err := f.out.Start(context.Background(), []byte(payload))
	if err != nil {
		return // no space, or the answer was lost
	}
	if p.Position < s.begun {
		broken("a record at %d, before its writer began at %d", p.Position, s.begun)
	}
	f.pending = append(f.pending, p)
	s.records[p.Position] = entry{position: p.Position, payload: payload}
}

func (s *siege) acknowledge() {
	f := s.writers[0]
	if len(f.pending) == 0 {
		return
	}
	p := f.pending[0]
	f.pending = f.pending[1:]
	if err := p.Wait(context.Background()); err != nil {
		broken("wait: %v", err)
	}
	s.sureTo(p.Position)
}

// sureTo notes that the records up to a position are persistent: one was acknowledged, or read, and so
// are those of its writer before it.
func (s *siege) sureTo(p uint64) {
	for q, e := range s.records {
		if q <= p {
			e.sure = true
			s.records[q] = e
		}
	}
}

// missed returns the first sure record of an honest writer behind a position, and before another.
func (s *siege) missed(from int64, to uint64) (first int64) {
	first = -1
	for p, e := range s.records {
		if e.sure && int64(p) > from && p < to && (first < 0 || int64(p) < first) {
			first = int64(p)
		}
	}
	return first
}

// next reads a record and checks the rules. It reports whether there was one.
func (s *siege) next(i int) bool {
	r := s.readers[i]
	rec, ok, err := r.Next()
	to := rec.Position
	if !ok {
		to = 1 << 62
	}
	switch {
	case errors.Is(err, ErrTrimmed):
		s.dropReader(i)
		return false
	case err != nil && !errors.Is(err, ErrCorrupt):
		broken("next: %v", err)
	case err != nil && !s.evil:
		broken("the writer is honest, and Next returns %v", err)
	}
	if p := s.missed(s.last[i], to); p >= 0 {
		broken("reader %d has read up to %d, and Next returned %q at %d, %v, %v: the record at %d is lost", i, s.last[i], rec.Payload, rec.Position, ok, err, p)
	}
	if !ok {
		return false
	}
	s.last[i] = int64(rec.Position)
	p := rec.Position
	honest := !s.evil && p >= s.begun || slices.ContainsFunc(s.honest, func(h reign) bool { return p >= h.from && p < h.to })
	if e, there := s.records[p]; honest && (!there || e.payload != string(rec.Payload)) {
		broken("Next returned %q at %d, where an honest writer has %q", rec.Payload, p, e.payload)
	}
	if honest {
		s.sureTo(p)
	}
	return true
}

func (s *siege) trim(i int) {
	if err := s.readers[i].Trim(); err != nil {
		broken("trim: %v", err)
	}
	head := s.log.headOf(0)
	for p := range s.records {
		if p < head {
			delete(s.records, p)
		}
	}
}

// outage is a loss of power: records that are not sure may be gone, and then stay away.
func (s *siege) outage() {
	words, _ := s.p.words(1)
	left := make([]byte, len(s.p.now))
	s.p.lose(left, words, func(_, n int) int { return s.c.pick(n) })
	copy(s.p.now, left)
	copy(s.p.seen, left)
	clear(s.p.dirty)
	var err error
	if s.log, err = open(s.p); err != nil {
		broken("open: %v", err)
	}
	s.writers[0], s.had, s.readers, s.last = nil, nil, nil, nil
	s.addReader()
	if s.evil {
		return
	}
	r, err := s.log.Reader(0)
	if err != nil {
		broken("%v", err)
	}
	found, err := readAll(r)
	if err != nil {
		broken("after a loss of power: %v", err)
	}
	for p, e := range s.records {
		if !e.sure && !slices.ContainsFunc(found, func(rec Record) bool { return rec.Position == p }) {
			delete(s.records, p)
		}
	}
}

func (s *siege) run(steps int) {
	for range steps {
		i := s.c.pick(len(s.readers))
		switch k := s.c.pick(16); {
		case k == 0:
			s.join(true)
		case k == 1:
			s.join(false)
		case k == 2:
			s.end()
		case k == 3 && len(s.readers) < 3:
			s.addReader()
		case k == 4:
			s.trim(i)
		case k == 5 && s.c.pick(2) == 0:
			s.outage()
		case k < 9:
			s.next(i)
		case k == 15 && len(s.had) > 0:
			s.attack()
		case s.writers[0] == nil:
		case s.evil && k < 14:
			s.attack()
		case s.evil:
			s.ask()
		case k < 13:
			s.append()
		default:
			s.acknowledge()
		}
		if len(s.readers) == 0 {
			s.addReader()
		}
	}
	// Whatever the hostile writer has done: when it has gone, the lane is an honest writer's again.
	s.join(false)
	for i := len(s.readers) - 1; i >= 0; i-- {
		for s.next(i) {
		}
	}
	s.addReader()
	i := len(s.readers) - 1
	for s.next(i) {
	}
	s.trim(i)
	f := s.writers[0]
	f.unsure = false
	s.append()
	if len(f.pending) == 0 {
		broken("the lane is empty, and an honest writer cannot append")
	}
	s.acknowledge()
	if !s.next(i) {
		broken("the last record is not read")
	}
}

// Rule: whatever a writer writes by its windows, at any moment, and however it comes and goes, readers
// trim, and power is lost: the acknowledged records of the lane's other writers, before it and after it,
// are read as they were appended, by every reader, and nothing else at their positions.
func TestHostileWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		lines := rapid.IntRange(4, 16).Draw(t, "lines")
		n := rapid.IntRange(1, 120).Draw(t, "steps")
		if why := attempt(func() { newSiege(drawn{t}, lines, seed).run(n) }); why != "" {
			t.Fatal(why)
		}
	})
}

// Rule: the same in more and longer runs, of numbered seeds.
func TestHostileWriterForLong(t *testing.T) {
	for seed := range uint64(400) {
		c := dice{rand.New(rand.NewPCG(seed, 6))}
		if why := attempt(func() { newSiege(c, 4+int(seed%13), seed).run(200) }); why != "" {
			t.Fatalf("seed %d: %s", seed, why)
		}
	}
}
