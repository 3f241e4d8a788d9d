package mem

import "bytes"

// PoisonByte fills memory that must not be read: a buffer whose lease has ended, a piece returned
// to its pool.
const PoisonByte = 0xDB

// poisonPage is the reference for comparisons; its size is a page so that the comparison runs at
// memory speed.
var poisonPage = func() (p [4096]byte) {
	for i := range p {
		p[i] = PoisonByte
	}
	return p
}()

// Poison fills b with [PoisonByte]. It does not block or allocate; the caller
// owns b.
func Poison(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, poisonPage[:]):]
	}
}

// Poisoned returns the first offset in b that is not poison, or -1 if all of b is. It does not
// block or allocate.
func Poisoned(b []byte) int {
	for off := 0; off < len(b); off += len(poisonPage) {
		part := b[off:min(off+len(poisonPage), len(b))]
		if bytes.Equal(part, poisonPage[:len(part)]) {
			continue
		}
		for i, c := range part {
			if c != PoisonByte {
				return off + i
			}
		}
	}
	return -1
}
