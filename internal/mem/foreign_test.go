package mem

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Adopt refuses memory that Go may move or collect (invariant 9).
func TestAdoptRefusesGoHeap(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("32-bit: heap and mappings are not told apart without /proc/self/maps")
	}
	small, large := make([]byte, 64), make([]byte, 64<<20)
	for name, b := range map[string][]byte{"small": small, "large": large, "middle of large": large[40<<20:]} {
		if a, err := Adopt(b); !errors.Is(err, ErrGoHeap) {
			t.Errorf("%s: Adopt = %v, %v; want ErrGoHeap", name, a, err)
		}
	}
	if _, err := Adopt(nil); !errors.Is(err, ErrSize) {
		t.Errorf("empty: %v, want ErrSize", err)
	}
}

func TestAdoptTakesMappings(t *testing.T) {
	m := mustMap(t, 1<<16, Options{})
	arenas, _ := Live()
	a := must.Get(Adopt(m.Bytes()[100:300]))(t)
	if a.Addr() != m.Addr()+100 || a.Len() != 200 {
		t.Errorf("adopted %d bytes at %#x", a.Len(), a.Addr())
	}
	if err := a.Unmap(); err != nil {
		t.Fatal(err)
	}
	m.Bytes()[150] = 1 // still there: Unmap only unregistered it
	if n, _ := Live(); n != arenas {
		t.Errorf("%d arenas stay, want %d", n, arenas)
	}
}

const mapsText = `00400000-004ab000 r-xp 00000000 fe:00 9977985                            /tmp/a program
0058e000-00599000 rw-p 0018e000 fe:00 9977985                            /tmp/a program
00599000-005cf000 rw-p 00000000 00:00 0 
005cf000-005d0000 r--p 00000000 00:00 0 
01000000-01001000 rw-p 00000000 00:00 0                                  [heap]
240544000000-240546800000 ---p 00000000 00:00 0 
240546800000-240547000000 rw-p 00000000 00:00 0 
240547000000-240548000000 ---p 00000000 00:00 0 
7f0000000000-7f0000001000 rw-p 00000000 00:00 0                          [anon: Go: gc bits]
7f0000001000-7f0000003000 rw-p 00000000 00:00 0 
7f0000003000-7f0000004000 r--s 00000000 fe:00 12                         /dev/shm/x
7f0000004000-7f0000005000 ---p 00000000 00:00 0 
7f0000006000-7f0000007000 rw-p 00000000 00:00 0 
7f0000008000-7f0000009000 rw-p 00000000 00:00 0 
`

func TestJudge(t *testing.T) {
	vmas := must.Get(parseMaps([]byte(mapsText)))(t)
	if len(vmas) != 14 || vmas[0].name != "/tmp/a program" || vmas[7].name != "" || !vmas[8].readable || vmas[7].readable {
		t.Fatalf("parsed %+v", vmas)
	}
	for _, c := range []struct {
		what    string
		addr, n uint64
		want    error
	}{
		{"text", 0x400000, 8, ErrGoHeap},
		{"data", 0x58e000, 8, ErrGoHeap},
		{"bss", 0x5a0000, 8, ErrGoHeap},
		{"second part of bss", 0x5cf000, 8, ErrGoHeap},
		{"over a hole between readable ones", 0x7f0000006000, 0x3000, ErrNotMapped},
		{"C heap", 0x1000000, 0x1000, nil},
		{"heap", 0x240546900000, 8, ErrGoHeap},
		{"heap, reserved below", 0x240544000000, 8, ErrGoHeap},
		{"heap, reserved above", 0x240547ffffff, 1, ErrGoHeap},
		{"named by the runtime", 0x7f0000000100, 8, ErrGoHeap},
		{"begins in the runtime's", 0x7f0000000ff8, 16, ErrGoHeap},
		{"anonymous", 0x7f0000001000, 0x2000, nil},
		{"two mappings", 0x7f0000002000, 0x2000, nil},
		{"not readable", 0x7f0000003000, 0x2000, ErrNotMapped},
		{"runs into a hole", 0x7f0000006000, 0x1001, ErrNotMapped},
		{"in a hole", 0x7f0000005000, 8, ErrNotMapped},
		{"over a hole", 0x7f0000003000, 0x4000, ErrNotMapped},
		{"behind all", 0x7fff00000000, 8, ErrNotMapped},
	} {
		if err := judge(vmas, c.addr, c.n, 0x240546c00000, 0x590000); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}

// Rule: if a mapping grows while the file is read, its second line counts for the addresses behind the first one. (The
// bug: RegMR of memory that this package has not mapped failed when the Go heap grew at that moment.)
func TestAMappingMayGrowWhileTheFileIsRead(t *testing.T) {
	vmas := must.Get(parseMaps([]byte("1000-3000 rw-p 0 0:0 0 \n1000-5000 rw-p 0 0:0 0 \n")))(t)
	if len(vmas) != 2 || vmas[0].end != 0x3000 || vmas[1].start != 0x3000 || vmas[1].end != 0x5000 {
		t.Errorf("parsed %+v", vmas)
	}
	if _, err := parseMaps([]byte("1000-3000 rw-p 0 0:0 0 \n1000-3000 rw-p 0 0:0 0 \n")); err == nil {
		t.Error("the same line twice was accepted")
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte(mapsText))
	f.Add([]byte("0-1 r\n"))
	f.Add([]byte("2-1 r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		vmas, err := parseMaps(text)
		if err != nil {
			return
		}
		if lines := strings.Count(string(text), "\n"); len(vmas) > lines+1 {
			t.Fatalf("%d ranges from %d lines", len(vmas), lines)
		}
		for i, v := range vmas {
			if v.start >= v.end || (i > 0 && v.start < vmas[i-1].end) {
				t.Fatalf("range %d of %+v is empty or out of order", i, vmas)
			}
		}
		_ = judge(vmas, 0x1000, 0x1000, 0x240546c00000, 0x590000)
	})
}

// Go memory outside of the heap is recognized by the mappings alone.
func TestProgramDataIsNotAdopted(t *testing.T) {
	if _, ok := MemlockLimit(); !ok {
		// This detects the Linux build: elsewhere only the heap's range is known.
		return
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&poisonPage)), len(poisonPage))
	if _, err := Adopt(b); !errors.Is(err, ErrGoHeap) {
		t.Errorf("the program's own variable: %v, want ErrGoHeap", err)
	}
}
