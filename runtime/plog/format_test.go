package plog

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// filled returns a log of one lane with some records, in the memory of a machine, and its ledger.
func filled(t testing.TB) (image, *world) {
	t.Helper()
	g := Config{Lanes: 1, LaneSize: 8 * LineSize}
	w := newWorld(&odometer{}, g, 1, 1, nil)
	if why := attempt(func() {
		w.create(g, 7)
		w.claim(0)
		for range 3 {
			w.start(0, 8)
			w.wait(0)
		}
		w.claim(0)
		w.start(0, 40)
		w.start(0, 8)
		w.wait(0)
		w.wait(0)
	}); why != "" {
		t.Fatal(why)
	}
	return bytes.Clone(w.p.now), w
}

// found returns what the checker says of a machine's memory.
func found(w *world, m image) string { return attempt(func() { w.check(m) }) }

// Rule: the checker finds a record that was torn at any word, one that was lost, and one that is there and
// was never appended.
func TestCheckerFindsPlantedFaults(t *testing.T) {
	m, w := filled(t)
	if why := found(w, m); why != "" {
		t.Fatalf("without a fault: %s", why)
	}
	ring := dataOffset(1)
	for at := range m[ring : ring+6*LineSize] {
		if at%LineSize >= 40 && (at/LineSize < 3 || at/LineSize > 3) { // behind the end of a record
			continue
		}
		if at/LineSize == 4 && at%LineSize >= 8 {
			continue
		}
		torn := bytes.Clone(m)
		torn[ring+at] ^= 1
		if found(w, torn) == "" {
			t.Errorf("byte %d of the ring was changed, and nothing was found", at)
		}
	}
	for at := 0; at < 6*LineSize; at += wordSize {
		torn := bytes.Clone(m)
		clear(torn[ring+at:][:wordSize])
		if changed := !bytes.Equal(torn, m); changed && found(w, torn) == "" {
			t.Errorf("the word at %d of the ring was lost, and nothing was found", at)
		}
	}
	for _, line := range []int{0, 1, 2, 3, 5} { // line 4 has the end of a record
		lost := bytes.Clone(m)
		clear(lost[ring+line*LineSize:][:LineSize])
		if why := found(w, lost); !strings.Contains(why, "lost") && !strings.Contains(why, "not whole") {
			t.Errorf("line %d was lost, and the checker says %q", line, why)
		}
	}
	w.ledgers[0].entries = w.ledgers[0].entries[:4]
	if why := found(w, m); !strings.Contains(why, "nobody has appended") {
		t.Errorf("a record too many, and the checker says %q", why)
	}
}

// Rule: the format is what it was: a log of one version can be opened by every program of that version.
func TestFormatStays(t *testing.T) {
	m, _ := filled(t)
	const want = 0x149167f289d838da
	if got := xxhash.Sum64(m); got != want {
		t.Errorf("the medium has the hash 0x%016x, want 0x%016x: another format needs another version", got, uint64(want))
	}
	for lanes, want := range map[int]int{1: 4096, 31: 4096, 32: 8192, MaxLanes: 135168} {
		if got := dataOffset(lanes); got != want {
			t.Errorf("the rings of %d lanes begin at %d, want %d", lanes, got, want)
		}
	}
}

// Rule: a header of anything but a whole log of this version is no log.
func TestHeaderIsChecked(t *testing.T) {
	m, _ := filled(t)
	for at := range m[:headerSize] {
		bad := bytes.Clone(m)
		bad[at] ^= 0x40
		if _, err := open(image(bad)); !errors.Is(err, ErrNoLog) {
			t.Errorf("byte %d of the header was changed: %v, want ErrNoLog", at, err)
		}
	}
	if _, err := open(m[:40]); !errors.Is(err, ErrNoLog) {
		t.Errorf("half a header: %v, want ErrNoLog", err)
	}
	if _, err := open(m[:len(m)-1]); !errors.Is(err, ErrGeometry) {
		t.Errorf("a region that is too short: %v, want ErrGeometry", err)
	}
	l := must.Get(parseHeader(m))(t)
	one := bytes.Clone(m)
	clear(one[l.slot(0, int(must.Get(open(m))(t).lanes[0].state.sequence+1)%slots):][:slotSize])
	if _, err := open(image(one)); err != nil {
		t.Errorf("without the older state: %v, want no error", err)
	}
	clear(one[headerSize:][:slots*slotSize])
	if _, err := open(image(one)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without a state: %v, want ErrCorrupt", err)
	}
}

// Rule: whatever a file has, opening and reading it ends without a panic, and what is read lies within the
// bounds of the format.
func FuzzMedium(f *testing.F) {
	m, _ := filled(f)
	f.Add([]byte(m[:headerSize]), []byte(m[headerSize:3*LineSize]), []byte(m[dataOffset(1):]))
	f.Fuzz(func(t *testing.T, header, states, ring []byte) {
		m := make(image, dataOffset(1)+8*LineSize)
		copy(m, header)
		copy(m[headerSize:], states)
		copy(m[dataOffset(1):], ring)
		l, err := open(m)
		if err != nil {
			if !errors.Is(err, ErrNoLog) && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrGeometry) {
				t.Fatalf("open: %v", err)
			}
			return
		}
		for i := range l.Lanes() {
			r := must.Get(l.Reader(i))(t)
			recs, err := readAll(r)
			if err != nil && !errors.Is(err, ErrCorrupt) || uint64(len(recs)) > l.lines() {
				t.Fatalf("lane %d: %d records, %v", i, len(recs), err)
			}
			for k, rec := range recs {
				if len(rec.Payload) > l.laneSize || k > 0 && rec.Position <= recs[k-1].Position {
					t.Fatalf("lane %d: %d bytes at %d", i, len(rec.Payload), rec.Position)
				}
			}
			if s, err := l.claim(i, 9); err == nil && (s.claimed < s.head || s.claimed-s.head > l.lines()) {
				t.Fatalf("lane %d: a writer would begin at %d, with records from %d", i, s.claimed, s.head)
			}
		}
	})
}

// FuzzRecord is FuzzMedium for the records of a lane whose log is in order: the fuzzer does not find
// checksums, so the harness sets them.
func FuzzRecord(f *testing.F) {
	m, _ := filled(f)
	f.Add([]byte(m[dataOffset(1):]), uint8(0xff))
	f.Fuzz(func(t *testing.T, ring []byte, sealed uint8) {
		m := bytes.Clone(m)
		at := m[dataOffset(1):]
		copy(at, ring)
		l := must.Get(open(image(m)))(t)
		for line := range int(l.lines()) {
			if sealed>>line&1 == 0 {
				continue
			}
			b := at[line*LineSize:]
			n := min(int(b[24])|int(b[25])<<8, len(b)-recordHeader)
			r := record{position: uint64(line), generation: uint64(b[16]), lane: 0, kind: kind(b[30])}
			copy(b, r.encode(nil, l.id, bytes.Clone(b[recordHeader:][:n])))
		}
		recs, err := readAll(must.Get(l.Reader(0))(t))
		if err != nil && !errors.Is(err, ErrCorrupt) || uint64(len(recs)) > l.lines() {
			t.Fatalf("%d records, %v", len(recs), err)
		}
		if s, err := l.claim(0, 9); err == nil && (s.claimed < s.head || s.claimed-s.head > l.lines()) {
			t.Fatalf("a writer would begin at %d, with records from %d", s.claimed, s.head)
		}
	})
}

// Rule: a grant survives its encoding, and a damaged one is refused.
func TestGrantIsChecked(t *testing.T) {
	g := grant{
		lane: 3, log: layout{lanes: 1, laneSize: 4096, id: 9}, state: state{head: 10, claimed: 70, generation: 4},
		windows: windowsOn(4 * LineSize), // 60 lines are kept, from 10 to 6
	}
	b := must.Get(g.append(nil))(t)
	if got := must.Get(parseGranted(b, 3))(t); !reflect.DeepEqual(got, g) {
		t.Errorf("parsed %+v, want %+v", got, g)
	}
	if _, err := parseGranted(b, 2); !errors.Is(err, ErrMessage) {
		t.Errorf("a grant of another lane: %v", err)
	}
	for name, c := range map[string]func(*grant){
		"a ring of 100 bytes":               func(g *grant) { g.log.laneSize, g.windows[0].Length = 100, 100 },
		"a window that is too large":        func(g *grant) { g.windows[0].Length += LineSize },
		"a window too many":                 func(g *grant) { g.windows = windowsOn(4*LineSize, LineSize) },
		"a window that is missing":          func(g *grant) { g.windows = nil },
		"the oldest record behind the last": func(g *grant) { g.state.head = 71 },
		"more records than the ring has":    func(g *grant) { g.state.head = 5 },
		"no such position":                  func(g *grant) { g.state.head, g.state.claimed = maxPosition, maxPosition+1 },
	} {
		bad := g
		bad.windows = slices.Clone(g.windows)
		c(&bad)
		if _, err := parseGranted(must.Get(bad.append(nil))(t), 3); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v, want ErrMessage", name, err)
		}
	}
	for n := range b {
		if _, err := parseGranted(b[:n], 3); err == nil {
			t.Errorf("a grant cut to %d bytes was accepted", n)
		}
	}
	for at, name := range []string{"kind", "version", "reserved byte", "reserved byte"} {
		bad := bytes.Clone(b)
		bad[at]++
		if _, err := parseGranted(bad, 3); !errors.Is(err, ErrMessage) {
			t.Errorf("another %s: %v, want ErrMessage", name, err)
		}
	}
	if _, err := parseGranted(appendHead(nil, msgRefused, uint16(len(reasons)), 0), 3); !errors.Is(err, ErrMessage) {
		t.Errorf("an unknown reason: %v, want ErrMessage", err)
	}
	for i, want := range reasons {
		if want == nil {
			continue
		}
		if _, err := parseGranted(refusal(want), 3); !errors.Is(err, want) {
			t.Errorf("refusal %d says %v, want %v", i, err, want)
		}
	}
}

// windowsOn returns descriptors of windows of some sizes.
func windowsOn(sizes ...int) (all []verbena.Remote) {
	for i, n := range sizes {
		all = append(all, verbena.Remote{Addr: 1 << 40, Length: uint64(n), RKey: uint32(7 + i), Access: verbs.AccessRemoteWrite | verbs.AccessFlushPersistent})
	}
	return all
}

// Rule: an answer to a question for space survives its encoding, and a damaged one is refused.
func TestSpaceIsChecked(t *testing.T) {
	ring := layout{lanes: 1, laneSize: 4096}
	const claimed, number = 100, 3
	for name, c := range map[string]struct {
		space
		want error
	}{
		"the same windows":                   {space{number: number, head: 50}, nil},
		"the same windows, and one":          {space{number: number, head: 50, windows: windowsOn(14 * LineSize)}, ErrMessage},
		"one part":                           {space{number: 4, head: 50, windows: windowsOn(14 * LineSize)}, nil},
		"two parts":                          {space{number: 4, head: 70, windows: windowsOn(28*LineSize, 6*LineSize)}, nil},
		"two parts, and one window":          {space{number: 4, head: 70, windows: windowsOn(28 * LineSize)}, ErrMessage},
		"the whole ring":                     {space{number: 4, head: 100, windows: windowsOn(4096)}, nil},
		"a window that is too large":         {space{number: 4, head: 50, windows: windowsOn(15 * LineSize)}, ErrMessage},
		"a full ring":                        {space{number: 4, head: 36}, nil},
		"more records than a ring has":       {space{number: 4, head: 35, windows: windowsOn(LineSize)}, ErrMessage},
		"more records, and the same windows": {space{number: number, head: 0}, ErrMessage},
	} {
		got, err := parseSpace(must.Get(c.append(nil))(t), ring, claimed, number)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || err == nil && !reflect.DeepEqual(got, c.space) {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, err, c.space, c.want)
		}
	}
}

// Rule: a record that is larger than a lane's largest is none, however right its checksum.
func TestRecordsHaveABound(t *testing.T) {
	l := must.Get(create(make(image, 1<<13), Config{Lanes: 1, LaneSize: 1 << 12}, 7))(t)
	s := must.Get(l.claim(0, 9))(t)
	for n, want := range map[int]bool{l.MaxRecord(): true, l.MaxRecord() + 1: false} {
		rec := record{position: s.claimed, generation: s.generation, lane: 0, kind: kindData}
		copy(l.ringOf(0), rec.encode(nil, l.id, make([]byte, n)))
		c := cursor{log: l.layout, state: s}
		if _, _, ok := c.next(l.ringOf(0), nil); ok != want {
			t.Errorf("that %d bytes are a record is %v, the largest has %d", n, ok, l.MaxRecord())
		}
	}
}

// FuzzMessages: whatever a peer says, parsing it ends, and an accepted grant is within bounds.
func FuzzMessages(f *testing.F) {
	g := grant{log: layout{lanes: 1, laneSize: 4096}, windows: windowsOn(4096)}
	f.Add(must.Get(g.append(nil))(f))
	f.Add(appendHead(nil, msgJoin, 0, 1))
	f.Add(must.Get((&space{number: 1, head: 4, windows: windowsOn(4096)}).append(nil))(f))
	f.Add(refusal(ErrLane))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = parseAsk(b)
		if s, err := parseSpace(b, layout{lanes: 1, laneSize: 4096}, 70, 0); err == nil && len(s.windows) > 2 {
			t.Errorf("accepted %+v", s)
		}
		if g, err := parseGranted(b, 0); err == nil && (!g.log.sound() || g.state.claimed-g.state.head > g.log.lines() || len(g.windows) > 2) {
			t.Errorf("accepted %+v", g)
		}
	})
}
