package plog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// intruder is a writer that has joined a lane and does with its windows what it likes.
type intruder struct {
	t  *testing.T
	rt *verbena.Runtime
	c  *verbena.Conn
	*Writer
}

func intrude(t *testing.T, rt *verbena.Runtime, s *server, lane int) *intruder {
	t.Helper()
	c := dial(t, rt, s)
	return &intruder{t, rt, c, must.Get(Join(testContext(t), rt, c, lane))(t)}
}

// put writes bytes at a position, by the window that reaches it, or by forged descriptors beside one.
func (x *intruder) put(position uint64, b []byte) error {
	x.t.Helper()
	off := int(position%x.log.lines()) * LineSize
	p := x.port.(*connPort)
	at, err := p.at(off, len(b))
	if err != nil {
		if at = (verbena.Remote{}); len(p.windows) > 0 {
			at = p.windows[0]
		}
		at.Addr, at.Length = at.Addr+uint64(off-p.parts[0].off), uint64(len(b))
	}
	buf := must.Get(x.rt.Alloc(len(b)))(x.t)
	defer buf.Release()
	copy(buf.Bytes(), b)
	if _, err := x.c.Do(testContext(x.t), new(verbena.WriteOp(buf.Slice(), at))); err != nil {
		return err
	}
	_, err = x.c.Do(testContext(x.t), new(verbena.FlushOp(at, verbs.FlushPersistent)))
	return err
}

// forge makes a record with a right checksum.
func (x *intruder) forge(position, generation uint64, payload string) []byte {
	rec := record{position: position, generation: generation, lane: x.lane, kind: kindData}
	return rec.encode(nil, x.log.id, []byte(payload))
}

func (x *intruder) leave(s *server) {
	x.t.Helper()
	n := len(s.ended(x.t, 0))
	must.Do(x.t, x.c.Close(testContext(x.t)))
	s.ended(x.t, n+1)
}

// honest appends records as a writer that comes and goes.
func honest(t *testing.T, rt *verbena.Runtime, s *server, texts ...string) {
	t.Helper()
	x := intrude(t, rt, s, 0)
	for _, text := range texts {
		must.Get(x.Append(testContext(t), []byte(text)))(t)
	}
	x.leave(s)
}

// Rule: a writer cannot change the acknowledged, unread records of the lane's earlier writers.
func TestEarlierWritersRecordsAreOutOfReach(t *testing.T) {
	s := newServer(t, Config{Lanes: 1, LaneSize: 1 << 12})
	rt := openRuntime(t)
	honest(t, rt, s, "pay 100 to Alice", "pay 200 to Bob")
	ends := 1
	for name, b := range map[string]func(x *intruder) []byte{
		"forges":   func(x *intruder) []byte { return x.forge(0, x.gen-1, "pay 100 to Malle") },
		"destroys": func(*intruder) []byte { return make([]byte, LineSize) },
	} {
		x := intrude(t, rt, s, 0)
		if err := x.put(0, b(x)); err == nil {
			t.Errorf("a writer %s a record of an earlier one, want an access error", name)
			x.leave(s)
		}
		ends++
		s.ended(t, ends)
	}
	if got := all(t, must.Get(s.log.Reader(0))(t)); !slices.Equal(got, []string{"pay 100 to Alice", "pay 200 to Bob"}) {
		t.Errorf("the lane has %q", got)
	}
}

// Rule: what a writer leaves behind is not taken for a record of the next one, whatever generation it names.
func TestNextWritersGenerationCannotBeGuessed(t *testing.T) {
	s := newServer(t, Config{Lanes: 1, LaneSize: 1 << 12})
	rt := openRuntime(t)
	x := intrude(t, rt, s, 0)
	must.Do(t, x.put(1, x.forge(1, x.gen+1, strings.Repeat("m", 300))))
	must.Do(t, x.put(2, x.forge(2, x.gen+1, strings.Repeat("m", 300))))
	x.leave(s)
	y := intrude(t, rt, s, 0)
	r := must.Get(s.log.Reader(0))(t)
	for _, text := range []string{"one", "two", "three"} {
		must.Get(y.Append(testContext(t), []byte(text)))(t)
		if got := all(t, r); !slices.Equal(got, []string{text}) {
			t.Errorf("the reader has %q, want %q", got, text)
		}
	}
}

// Rule: acknowledged records of the next writer are read, by readers that were there and by new ones, before
// and after Trim, whatever the last writer has done to records of its own that were read.
func TestNextWritersRecordsAreRead(t *testing.T) {
	for name, change := range map[string]func(x *intruder) error{
		"takes all back":        func(x *intruder) error { return x.put(0, make([]byte, 6*LineSize)) },
		"takes the second back": func(x *intruder) error { return x.put(1, make([]byte, LineSize)) },
		"makes one of all": func(x *intruder) error {
			return x.put(0, x.forge(0, x.gen, strings.Repeat("m", 6*LineSize-recordHeader)))
		},
		"makes a longer one": func(x *intruder) error {
			return x.put(0, x.forge(0, x.gen, strings.Repeat("m", 9*LineSize-recordHeader)))
		},
	} {
		for _, trims := range []bool{false, true} {
			s := newServer(t, Config{Lanes: 1, LaneSize: 1 << 12})
			rt := openRuntime(t)
			x := intrude(t, rt, s, 0)
			for i := range uint64(6) {
				must.Do(t, x.put(i, x.forge(i, x.gen, fmt.Sprint(i))))
			}
			early, late := must.Get(s.log.Reader(0))(t), must.Get(s.log.Reader(0))(t)
			for range 3 {
				if _, ok, err := early.Next(); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			all(t, late)
			must.Do(t, change(x))
			x.leave(s)
			honest(t, rt, s, "first", "second")
			if trims {
				must.Do(t, early.Trim())
			}
			for which, r := range map[string]*Reader{"early": early, "late": late, "new": must.Get(s.log.Reader(0))(t)} {
				found, err := readAll(r)
				n := len(found)
				if err != nil || n < 2 || string(found[n-2].Payload) != "first" || string(found[n-1].Payload) != "second" {
					t.Errorf("a writer %s, trim %v: the %s reader finds %d records, %v", name, trims, which, n, err)
				}
			}
		}
	}
}

// Rule: while a lane keeps records of earlier writers, its writer uses what is free, also where that is in two
// parts, and more when the server has trimmed. A writer that comes back goes on where it was.
func TestSpaceIsGivenInParts(t *testing.T) {
	s := newServer(t, Config{Lanes: 1, LaneSize: 16 * LineSize})
	rt := openRuntime(t)
	r := must.Get(s.log.Reader(0))(t)
	var want, got []string
	full := 0
	for life := range 12 {
		x := intrude(t, rt, s, 0)
		if n := uint64(len(want)); x.Position() != n {
			t.Fatalf("life %d: the writer begins at %d, want %d", life, x.Position(), n)
		}
		for i := range 7 {
			text := fmt.Sprintf("life %d record %d", life, i)
			_, err := x.Append(testContext(t), []byte(text))
			for ; errors.Is(err, ErrFull); full++ {
				for range 3 {
					rec, ok, err := r.Next()
					if !ok || err != nil {
						t.Fatalf("the lane is full, and Next returns %v, %v", ok, err)
					}
					got = append(got, string(rec.Payload))
				}
				must.Do(t, r.Trim())
				_, err = x.Append(testContext(t), []byte(text))
			}
			must.Do(t, err)
			want = append(want, text)
		}
		x.leave(s)
	}
	if got = append(got, all(t, r)...); !slices.Equal(got, want) {
		t.Errorf("the reader has %q, want %q", got, want)
	}
	if full < 10 {
		t.Errorf("the lane was full %d times: too little to show anything", full)
	}
}
