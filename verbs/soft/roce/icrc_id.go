package roce

import (
	"hash/crc32"
	"sync"
)

// The CRC is linear: two messages that differ only in the identification have CRCs whose difference
// depends on that difference and on the number of bytes behind it alone. So the difference between
// the ICRC of a datagram and the one computed with identification 0 gives the identification, or
// shows that no identification fits.
//
// A CRC register of 32 bits is a polynomial over GF(2), the coefficient of x^0 in its highest bit. A
// zero byte multiplies it by x^8, and the two bytes of an identification begin in the lowest 16 bits.

// one is the polynomial 1.
const one = 1 << 31

// maxShift is the largest number of bytes behind the first byte of the identification of a datagram
// that idOf knows: an IP packet is at most 64 KiB.
const maxShift = 1 << 16

// shifts holds x^(-8n) at n.
var shifts = sync.OnceValue(func() *[maxShift]uint32 {
	var index [256]byte // of the table's entry, by its highest byte
	for i, v := range crc32.IEEETable {
		index[v>>24] = byte(i)
	}
	t := new([maxShift]uint32)
	t[0] = one
	for n := 1; n < maxShift; n++ {
		i := index[t[n-1]>>24]
		t[n] = (t[n-1]^crc32.IEEETable[i])<<8 | uint32(i)
	}
	return t
})

// times returns the product of two polynomials, modulo the CRC's.
func times(a, b uint32) (p uint32) {
	for m := uint32(one); m != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
		}
		b = b>>1 ^ -(b&1)&crc32.IEEE
	}
	return p
}

// idOf returns the identification of an IPv4 packet: diff is its ICRC, xor the one computed with
// identification 0, and behind the number of bytes between the identification and the ICRC. ok is
// false if there is none.
func idOf(diff uint32, behind int) (id uint16, ok bool) {
	const idLen = 2
	if behind+idLen >= maxShift {
		return 0, false
	}
	v := times(diff, shifts()[behind+idLen])
	return uint16(v<<8 | v>>8&0xff), v < 1<<16
}
