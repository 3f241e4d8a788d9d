package plog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// The log of the tests with kills. The rings are small, so that they are used again and again.
const (
	killedLanes = 4
	killedSize  = 1 << 18
)

var killedConfig = Config{Lanes: killedLanes, LaneSize: 1 << 14}

// text returns the payload of a record, so that a torn or foreign one is recognized.
func text(lane, number int) string {
	rnd := rand.New(rand.NewPCG(uint64(lane), uint64(number)))
	return fmt.Sprintf("%d %d %s", lane, number, strings.Repeat(string(rune('a'+rnd.IntN(26))), rnd.IntN(300)))
}

// numberOf returns the number of the record with a text, 0 if it is none of this lane.
func numberOf(lane int, payload string) (number int) {
	_, err := fmt.Sscanf(payload, fmt.Sprintf("%d %%d", lane), &number)
	if err != nil || text(lane, number) != payload {
		return 0
	}
	return number
}

// promises is what the writers and the server have said of a lane.
type promises struct {
	last     int            // number of the last record that was started
	sure     map[uint64]int // by position: the numbers of records that were acknowledged or read; not consumed
	consumed map[uint64]bool
	found    int // records that were found without an acknowledgement
}

// lives is a log whose server is killed again and again.
type lives [killedLanes]promises

func newLives() *lives {
	v := &lives{}
	for i := range v {
		v[i].sure, v[i].consumed = map[uint64]int{}, map[uint64]bool{}
	}
	return v
}

// acknowledged notes that a record is persistent.
func (v *lives) acknowledged(lane int, at uint64, number int) {
	if p := &v[lane]; !p.consumed[at] {
		p.sure[at] = number
		p.last = max(p.last, number)
	}
}

// has notes that the server has read a record and frees it.
func (v *lives) has(lane int, at uint64) {
	v[lane].consumed[at] = true
	delete(v[lane].sure, at)
}

// check compares what a log has with the promises: the records that were acknowledged are there, unless
// the server has consumed them; those that are there were appended; they are in order.
func (v *lives) check(found []Record) error {
	var errs []error
	for lane := range v {
		p := &v[lane]
		last := 0
		there := map[uint64]int{}
		for _, rec := range found {
			if rec.Lane != lane {
				continue
			}
			n := numberOf(lane, string(rec.Payload))
			there[rec.Position] = n
			if n == 0 || n > p.last {
				errs = append(errs, fmt.Errorf("lane %d: nobody has appended %.40q at %d", lane, rec.Payload, rec.Position))
			} else if n <= last {
				errs = append(errs, fmt.Errorf("lane %d: record %d follows record %d", lane, n, last))
			}
			last = n
		}
		for at, n := range p.sure {
			if there[at] != n {
				errs = append(errs, fmt.Errorf("lane %d: record %d was acknowledged at %d, and the log has %d", lane, n, at, there[at]))
			}
		}
		for at, n := range there {
			if p.sure[at] == 0 && !p.consumed[at] {
				p.found++
				p.sure[at] = n // it was read: from now on it must be there
			}
		}
	}
	return errors.Join(errs...)
}

// report says what was checked, and fails the test if that was too little.
func (v *lives) report(t *testing.T, least int) {
	t.Helper()
	consumed, there, found := 0, 0, 0
	for i := range v {
		consumed, there, found = consumed+len(v[i].consumed), there+len(v[i].sure), found+v[i].found
	}
	t.Logf("%d records were consumed, %d are in the log, %d were found without an acknowledgement", consumed, there, found)
	if consumed+there < least {
		t.Errorf("%d records, want at least %d: too few to show anything", consumed+there, least)
	}
}

// appender appends to a lane, with some records outstanding.
type appender struct {
	lane    int
	number  int                               // of the last record that it has started
	started func(number int)                  // called before a record is started
	acked   func(position uint64, number int) // called when it is persistent
}

// run appends until the server is gone.
func (a *appender) run(ctx context.Context, rt *verbena.Runtime, addr string, rnd *rand.Rand) error {
	c, err := rt.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Abort()
	w, err := Join(ctx, rt, c, a.lane)
	if err != nil {
		return err
	}
	type one struct {
		Pending
		number int
	}
	var pending []one
	defer func() {
		for _, p := range pending {
			p.Discard()
		}
	}()
	for {
		for len(pending) < 1+rnd.IntN(4) {
			a.started(a.number + 1)
			p, err := w.Start(ctx, []byte(text(a.lane, a.number+1)))
			if errors.Is(err, ErrFull) {
				if len(pending) == 0 {
					<-time.After(time.Millisecond) // the server is about to trim
				}
				break
			}
			a.number++
			if err != nil {
				return err
			}
			pending = append(pending, one{p, a.number})
		}
		if len(pending) == 0 {
			continue
		}
		if err := pending[0].Wait(ctx); err != nil {
			return err
		}
		a.acked(pending[0].Position, pending[0].number)
		pending = pending[1:]
	}
}

// consume reads a lane and frees it, for ever; it says so before it frees. Some records are left.
func consume(r *Reader) error {
	var found []Record
	for {
		more, err := readAll(r)
		if err != nil {
			return err
		}
		if found = append(found, more...); len(found) > 20 {
			var lines strings.Builder
			for _, rec := range found {
				fmt.Fprintln(&lines, "consumed", rec.Lane, rec.Position)
			}
			_, err := os.Stdout.WriteString(lines.String()) // in one piece
			if err := errors.Join(err, r.Trim()); err != nil {
				return err
			}
			found = nil
		}
		<-time.After(time.Millisecond)
	}
}

// hear notes what a process has said: what was consumed, and what was acknowledged.
func (v *lives) hear(t *testing.T, said string) {
	t.Helper()
	for line := range strings.Lines(said) {
		var lane, number int
		var at uint64
		if !strings.HasSuffix(line, "\n") {
			continue // cut off: nothing had followed from it
		}
		if _, err := fmt.Sscanf(line, "consumed %d %d\n", &lane, &at); err == nil {
			v.has(lane, at)
		} else if _, err := fmt.Sscanf(line, "acknowledged %d %d %d\n", &lane, &at, &number); err == nil {
			v.acknowledged(lane, at, number)
		} else {
			t.Fatalf("a process said %q", line)
		}
	}
}

// openOrCreate opens the log in the file, and makes one if there is none.
func openOrCreate(t testing.TB, rt *verbena.Runtime, path string) (*Log, *verbena.Region) {
	t.Helper()
	r := fileRegion(t, rt, path, killedSize)
	l, err := Open(r)
	if errors.Is(err, ErrNoLog) {
		l, err = Create(r, killedConfig)
	}
	must.Do(t, err)
	return l, r
}

// everything returns all records of a log.
func everything(t testing.TB, l *Log) (found []Record) {
	t.Helper()
	for lane := range l.Lanes() {
		found = append(found, must.Get(readAll(must.Get(l.Reader(lane))(t)))(t)...)
	}
	return found
}

// Rule: the checker of the tests with kills finds a planted lost record, a torn one, and one that nobody
// has appended.
func TestPromisesAreChecked(t *testing.T) {
	v := newLives()
	plant := func() *Log {
		l := must.Get(create(make(image, killedSize), killedConfig, 3))(t)
		for lane := range killedLanes {
			s := must.Get(l.claim(lane, 9))(t)
			at := s.claimed
			for n := range 5 {
				rec := record{position: at, generation: s.generation, lane: lane, kind: kindData}
				b := rec.encode(nil, l.id, []byte(text(lane, n+1)))
				copy(l.ringOf(lane)[at*LineSize:], b)
				v.acknowledged(lane, at, n+1)
				at += linesOf(len(b) - recordHeader)
			}
		}
		return l
	}
	must.Do(t, v.check(everything(t, plant())))
	position := func(lane, number int) uint64 {
		for at, n := range v[lane].sure {
			if n == number {
				return at * LineSize
			}
		}
		t.Fatal("no such record")
		return 0
	}
	for name, c := range map[string]struct {
		fault func(*Log)
		want  string
	}{
		"the last is lost": {func(l *Log) { clear(l.ringOf(2)[position(2, 5):]) }, "record 5 was acknowledged"},
		"one is lost":      {func(l *Log) { clear(l.ringOf(2)[position(2, 3):][:LineSize]) }, "record 3 was acknowledged"},
		"one is torn":      {func(l *Log) { l.ringOf(1)[position(1, 4)+33] ^= 1 }, "record 4 was acknowledged"},
		"one is another": {func(l *Log) {
			rec := record{position: position(3, 5) / LineSize, generation: 9, lane: 3, kind: kindData}
			copy(l.ringOf(3)[position(3, 5):], rec.encode(nil, l.id, []byte("3 5 torn and whole")))
		}, "nobody has appended"},
		"one too many": {func(*Log) { v[0].last = 4 }, "nobody has appended"},
	} {
		l := plant()
		c.fault(l)
		if err := v.check(everything(t, l)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
