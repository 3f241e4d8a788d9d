package wire

// PSN is a packet sequence number: 24 bits, counted modulo 2^24. MSNs count the same way. The
// methods never produce values outside 24 bits; [NewPSN] converts an arbitrary number.
type PSN uint32

const (
	psnBits = 24
	psnMask = 1<<psnBits - 1
	// PSNWindow is half of the PSN space: two PSNs can be ordered only when they are less than this
	// apart, so a requester never has more outstanding.
	PSNWindow = 1 << (psnBits - 1)
)

// NewPSN returns the low 24 bits of v.
func NewPSN(v uint32) PSN { return PSN(v & psnMask) }

// Add returns the PSN n packets after p.
func (p PSN) Add(n uint32) PSN { return PSN((uint32(p) + n) & psnMask) }

// Sub returns the PSN n packets before p.
func (p PSN) Sub(n uint32) PSN { return PSN((uint32(p) - n) & psnMask) }

// Next returns the PSN after p.
func (p PSN) Next() PSN { return p.Add(1) }

// Diff returns how many packets p is after q, negative if it is before. The result lies in [-2^23,
// 2^23).
func (p PSN) Diff(q PSN) int32 {
	// Shifted up, the 24-bit difference wraps with the sign of an int32.
	const up = 32 - psnBits
	return int32((uint32(p)-uint32(q))<<up) >> up
}

// Less reports whether p is before q.
func (p PSN) Less(q PSN) bool { return p.Diff(q) < 0 }

// In reports whether p is one of the n packets that start with first.
func (p PSN) In(first PSN, n uint32) bool { return uint32(p.Sub(uint32(first))) < n }
