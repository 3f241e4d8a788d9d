//go:build unix

package writeback

import (
	"bytes"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rule: Persist touches the lines of its range, all of them and no others, and changes no byte. The
// page behind the mapping faults when it is touched, and the returned address shows the last line.
func TestPersistTouchesItsLines(t *testing.T) {
	page := os.Getpagesize()
	const size = 2*chunk + 4096
	whole, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(whole) })
	for _, guard := range [][]byte{whole[:page], whole[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	b := whole[page : page+size]
	for i := range b {
		b[i] = byte(i * 7)
	}
	want := bytes.Clone(b)
	base := uintptr(unsafe.Pointer(&b[0]))
	tried := 0
	for i := CLWB; i <= DCCVAP; i++ {
		if !Supported(i) {
			t.Logf("%v: this processor does not have it", i)
			continue
		}
		tried++
		for _, r := range [][2]uintptr{
			{0, 1}, {0, lineSize}, {0, lineSize + 1}, {1, lineSize}, {lineSize - 1, 2}, {63, 200}, {0, size}, {size - 1, 1}, {size - 3*lineSize - 5, 3*lineSize + 5},
			{chunk - 1, 2}, {5, chunk}, {lineSize, 2 * chunk}, {17, 0},
		} {
			off, n := r[0], r[1]
			last := off
			if n > 0 {
				last = (off + n + lineSize - 1) / lineSize * lineSize
			}
			if got := Persist(i, base+off, n) - base; got != last {
				t.Errorf("%v of %d bytes at %d ended at %d, want %d", i, n, off, got, last)
			}
		}
	}
	if !bytes.Equal(b, want) {
		t.Error("the bytes have changed")
	}
	if best := Best(); (best == None) != (tried == 0) || best != None && !Supported(best) {
		t.Errorf("the best instruction is %v, and %d are there", best, tried)
	}
}

// Rule: lines have a plausible length, a power of two: with a longer one Persist would leave lines out.
func TestLineSize(t *testing.T) {
	if lineSize < 16 || lineSize > 256 || lineSize&(lineSize-1) != 0 {
		t.Errorf("a line has %d bytes", lineSize)
	}
}

func BenchmarkPersist(b *testing.B) {
	m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Munmap(m) })
	for i := CLWB; i <= DCCVAP; i++ {
		if !Supported(i) {
			continue
		}
		b.Run(i.String(), func(b *testing.B) {
			for b.Loop() {
				m[64]++
				Persist(i, uintptr(unsafe.Pointer(&m[0])), 256)
			}
		})
	}
}
