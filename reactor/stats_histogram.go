package reactor

import (
	"fmt"
	"math/bits"
	"strings"
)

// Buckets is the number of buckets of a [Histogram]. The last bucket begins at 2^22. If a Histogram
// counts durations in microseconds, the last bucket counts the durations from 4 s on. No list is so
// long that it is counted in the last bucket.
const Buckets = 24

// Histogram counts values by powers of two. Bucket 0 counts zeros; bucket i counts the values from
// 2^(i-1) to 2^i-1; the last bucket also counts all larger values. A Histogram can be copied and
// compared.
type Histogram [Buckets]uint64

// note counts the value v >= 0. The values 0 and 1 are the most frequent values if callers wait for
// each operation. Their bucket has the index v, so for these values note computes no logarithm.
func (h *Histogram) note(v int) {
	if uint(v) < 2 {
		h[v]++
		return
	}
	h[bucketOf(uint64(v))]++
}

func bucketOf(v uint64) int { return min(bits.Len64(v), Buckets-1) }

// Count returns the number of values counted.
func (h Histogram) Count() (n uint64) {
	for _, c := range h {
		n += c
	}
	return n
}

// Bounds returns the smallest and the largest value of bucket i. The last bucket ends at the
// largest uint64.
func (h Histogram) Bounds(i int) (from, to uint64) {
	switch i {
	case 0:
		return 0, 0
	case Buckets - 1:
		return 1 << (i - 1), 1<<64 - 1
	}
	return 1 << (i - 1), 1<<i - 1
}

// Add returns the sum of h and o.
func (h Histogram) Add(o Histogram) Histogram {
	for i := range h {
		h[i] += o[i]
	}
	return h
}

// String lists the buckets that are not empty: "1: 7, 4-7: 20".
func (h Histogram) String() string {
	var b strings.Builder
	for i, n := range h {
		if n == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		switch from, to := h.Bounds(i); {
		case i == Buckets-1:
			fmt.Fprintf(&b, "from %d: %d", from, n)
		case from == to:
			fmt.Fprintf(&b, "%d: %d", from, n)
		default:
			fmt.Fprintf(&b, "%d-%d: %d", from, to, n)
		}
	}
	return b.String()
}
