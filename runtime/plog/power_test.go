package plog

import (
	"encoding/binary"
	"fmt"
	"maps"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
)

const wordSize = 8 // the largest store that is never torn

// power is the memory of a machine that loses power. Stores reach caches first. Until a line is made
// persistent, each of its words may have any value that it had since: it was written back in between,
// or not. So a loss keeps any subset of the lines, and tears everything that is larger than a word.
type power struct {
	now   []byte           // what processors and devices see
	seen  []byte           // now, when it was looked at last
	dirty map[int][]uint64 // by word: its values since it was persistent, that one first

	// crash is called before and after each step, at which the machine may lose power.
	crash func()

	// taken says what a mutant does to a flush or fence of the given place; nil keeps all. Places are
	// collected in places.
	taken  func(place string) loss
	places map[string]bool
	begun  map[int][]uint64 // by word: values whose write-back was begun, and not waited for
}

// loss is what a mutant takes out of a place.
type loss int

const (
	nothing loss = iota
	theFlush
	theFence // the write-back is begun, and nobody waits for it
)

func newPower(size int) *power {
	return &power{now: make([]byte, size), seen: make([]byte, size), dirty: map[int][]uint64{}, crash: func() {}, places: map[string]bool{}, begun: map[int][]uint64{}}
}

// Bytes implements medium.
func (p *power) Bytes() []byte { return p.now }

// look notes which words were changed since the last look.
func (p *power) look() {
	for w := 0; w < len(p.now); w += wordSize {
		a, b := binary.NativeEndian.Uint64(p.seen[w:]), binary.NativeEndian.Uint64(p.now[w:])
		if a == b {
			continue
		}
		if p.dirty[w] == nil {
			p.dirty[w] = []uint64{a}
		}
		if !slices.Contains(p.dirty[w], b) {
			p.dirty[w] = append(p.dirty[w], b)
		}
	}
	copy(p.seen, p.now)
}

// Sync implements medium for the server's processor.
func (p *power) Sync(off, n int) error {
	p.flush(callers(), off, n)
	return nil
}

// flush makes the lines of a range persistent, unless a mutant took that out.
func (p *power) flush(place string, off, n int) {
	p.look()
	p.crash()
	p.places[place] = true
	what := nothing
	if p.taken != nil {
		what = p.taken(place)
	}
	from, to := off/LineSize*LineSize, (off+n+LineSize-1)/LineSize*LineSize
	if what != theFlush {
		for w := from; w < to; w += wordSize {
			if d := p.dirty[w]; d != nil {
				p.begun[w] = append(p.begun[w], binary.NativeEndian.Uint64(p.now[w:]))
			}
		}
	}
	if what == nothing { // the fence waits for all that was begun
		for w, vs := range p.begun {
			last := vs[len(vs)-1]
			if binary.NativeEndian.Uint64(p.now[w:]) == last {
				delete(p.dirty, w)
			} else {
				p.dirty[w] = slices.Compact([]uint64{last, binary.NativeEndian.Uint64(p.now[w:])})
			}
		}
		clear(p.begun)
	}
	p.crash()
}

// store is a WRITE of a device.
func (p *power) store(off int, b []byte) {
	copy(p.now[off:], b)
	p.look()
	p.crash()
}

// words returns the words that a loss of power may leave with several values, and how many contents
// the memory may have, at most limit.
func (p *power) words(limit int) (words []int, contents int) {
	words = slices.Sorted(maps.Keys(p.dirty))
	contents = 1
	for _, w := range words {
		if contents *= len(p.dirty[w]); contents > limit {
			return words, limit
		}
	}
	return words, contents
}

// lose returns the machine after a loss of power, in which word i of words has the value pick(i, n) of n.
func (p *power) lose(into []byte, words []int, pick func(i, n int) int) {
	copy(into, p.now)
	for i, w := range words {
		vs := p.dirty[w]
		binary.NativeEndian.PutUint64(into[w:], vs[pick(i, len(vs))])
	}
}

// callers returns the place of a Sync: the functions and lines of this package on the stack, without
// its tests.
func callers() string {
	var pcs [16]uintptr
	frames := goruntime.CallersFrames(pcs[:goruntime.Callers(3, pcs[:])])
	var place []string
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.File, "_test.go") || !strings.Contains(f.File, "plog") {
			return strings.Join(place, " < ")
		}
		name := f.Function[strings.LastIndex(f.Function, "plog.")+len("plog."):]
		place = append(place, fmt.Sprintf("%s (%s:%d)", name, filepath.Base(f.File), f.Line))
		if !more {
			return strings.Join(place, " < ")
		}
	}
}

// image is the memory of a machine that has power.
type image []byte

func (m image) Bytes() []byte       { return m }
func (m image) Sync(int, int) error { return nil }
