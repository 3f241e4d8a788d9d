package outage

import (
	"encoding/binary"
	"fmt"
)

// An area is the part of a served region that only one connection uses:
//
//	0        8        slotAt                  bigAt
//	counter  unused   slots for transfers     one big transfer
const (
	slotAt  = 64
	slot    = 8 << 10 // at least two packets at every MTU
	slots   = 3
	bigAt   = slotAt + slots*slot
	bigSize = 256 << 10
	area    = bigAt + bigSize
)

// areas is the number of areas in a served region. A connection that is dialed again takes another
// area, which late packets of the old connection cannot change.
const (
	areas        = 24
	areasPerConn = 6
)

// fill writes the data of transfer n into b. Each word is the word before it plus one, from a start
// that depends on seed and n, so that missing, torn or foreign pieces show.
func fill(b []byte, seed, n uint64) {
	base := mix(seed ^ n)
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], base+uint64(i/8))
	}
	for i := len(b) &^ 7; i < len(b); i++ {
		b[i] = byte(base) + byte(i)
	}
}

// check returns nil if b holds the data that fill writes.
func check(b []byte, seed, n uint64) error {
	base := mix(seed ^ n)
	for i := 0; i+8 <= len(b); i += 8 {
		if got, want := binary.LittleEndian.Uint64(b[i:]), base+uint64(i/8); got != want {
			return fmt.Errorf("transfer %d, word %d of %d: %#x, want %#x", n, i/8, len(b)/8, got, want)
		}
	}
	for i := len(b) &^ 7; i < len(b); i++ {
		if b[i] != byte(base)+byte(i) {
			return fmt.Errorf("transfer %d, byte %d of %d: %#x", n, i, len(b), b[i])
		}
	}
	return nil
}

// mix is the finisher of splitmix64: it decorrelates neighboring inputs.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// messageHead is the size in bytes of the number at the beginning of a message.
const messageHead = 8

// Limits of messageSize, in bytes.
const (
	shortest = messageHead
	longest  = 3000
)

// messageSize returns the length of message n, which both ends compute.
func messageSize(seed, n uint64) int {
	return shortest + int(mix(seed+n)%(longest-shortest))
}

// message writes message n into b, which must have the length of that message.
func message(b []byte, seed, n uint64) {
	binary.LittleEndian.PutUint64(b, n)
	fill(b[messageHead:], seed, n)
}

// checkMessage returns nil if b is message n.
func checkMessage(b []byte, seed, n uint64) error {
	if len(b) != messageSize(seed, n) {
		return fmt.Errorf("message %d has %d bytes, want %d", n, len(b), messageSize(seed, n))
	}
	if got := binary.LittleEndian.Uint64(b); got != n {
		return fmt.Errorf("message %d came where %d should", got, n)
	}
	return check(b[messageHead:], seed, n)
}
