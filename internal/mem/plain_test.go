package mem

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func TestPointerFree(t *testing.T) {
	type plain struct {
		A uint64
		B [3]struct{ C float32 }
		D uintptr
	}
	for name, ok := range map[string]bool{
		"struct": PointerFree[plain](), "array": PointerFree[[4]uint16](), "no pointers": PointerFree[[0]*int](), "twice": PointerFree[plain](),
	} {
		if !ok {
			t.Errorf("%s: has no pointers, called not free of them", name)
		}
	}
	for name, ok := range map[string]bool{
		"pointer": PointerFree[*int](), "string": PointerFree[string](), "slice": PointerFree[[]byte](), "unsafe": PointerFree[unsafe.Pointer](),
		"nested": PointerFree[struct{ A [2]struct{ M map[int]int } }](), "func": PointerFree[func()](), "interface": PointerFree[any](), "chan": PointerFree[chan int](),
	} {
		if ok {
			t.Errorf("%s: holds pointers, called free of them", name)
		}
	}
}

// Pieces of a bump allocator are aligned, inside, and never overlap.
func TestBump(t *testing.T) {
	a := mustMap(t, 4096, Options{})
	rapid.Check(t, func(t *rapid.T) {
		b := NewBump(a)
		end := a.Addr()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.IntRange(0, 15).Draw(t, "what") == 0 {
				b.Reset()
				end = a.Addr()
			}
			size := rapid.IntRange(0, 700).Draw(t, "size")
			align := 1 << rapid.IntRange(0, 9).Draw(t, "align")
			want := (end + uint64(align) - 1) &^ (uint64(align) - 1)
			fits := want+uint64(size) <= a.Addr()+4096
			addr, ok := b.Alloc(size, align)
			if ok != fits || (ok && addr != want) {
				t.Fatalf("Alloc(%d, %d) = %#x, %v; want %#x, %v", size, align, addr, ok, want, fits)
			}
			if ok {
				end = addr + uint64(size)
			}
			if b.Used() != int(end-a.Addr()) || b.Free() != 4096-b.Used() {
				t.Fatalf("used %d, free %d, want %d used", b.Used(), b.Free(), end-a.Addr())
			}
		}
	})
	for _, c := range [][2]int{{-1, 8}, {8, 0}, {8, 3}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Alloc(%d, %d) must panic", c[0], c[1])
				}
			}()
			NewBump(a).Alloc(c[0], c[1])
		}()
	}
}

// Poisoned finds the first byte that is not poison, at any offset.
func TestPoison(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := make([]byte, rapid.IntRange(0, 10000).Draw(t, "len"))
		Poison(b)
		if off := Poisoned(b); off != -1 {
			t.Fatalf("fresh poison of %d bytes is touched at %d", len(b), off)
		}
		if len(b) == 0 {
			return
		}
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] ^= 1
		b[len(b)-1] ^= 2
		if off := Poisoned(b); off != at {
			t.Fatalf("first touched byte of %d is %d, want %d", len(b), off, at)
		}
	})
}
