package rpma

import (
	"errors"
	"math"
	"reflect"
	"testing"
)

// extremes are numbers at which conversions and sums overflow, on 32 bits and on 64, or that ask for more memory
// than there is.
var extremes = []int64{
	math.MinInt64, math.MinInt32, -1, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxUint32 + 1,
	math.MaxUint32 + 2, 1 << 40, math.MaxInt64 - 1, math.MaxInt64,
}

// eachExtreme calls try with the zero C, but one number in it is one of extremes.
func eachExtreme[C any](try func(name string, x int64, c *C)) {
	for i := range reflect.TypeFor[C]().NumField() {
		for _, x := range extremes {
			c := new(C)
			if f := reflect.ValueOf(c).Elem().Field(i); (f.Kind() == reflect.Int || f.Kind() == reflect.Int64) && !f.OverflowInt(x) {
				f.SetInt(x)
				try(reflect.TypeFor[C]().Field(i).Name, x, c)
			}
		}
	}
}

// Rule: with any number in any field of a configuration, or as the size of memory, the call fails with ErrInvalid or
// ErrProvider, or what it makes can be closed.
func TestExtremeSizes(t *testing.T) {
	r := newRig(t)
	_, port := r.listen()
	refused := func(name string, x int64, err error) {
		if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrProvider) && !errors.Is(err, ErrNotSupported) {
			t.Errorf("%s %d: %v, want ErrInvalid or ErrProvider", name, x, err)
		}
	}
	eachExtreme(func(name string, x int64, c *ConnConfig) {
		q, err := r.peer[0].NewConnReq(r.ctx, r.addr[1], port, c)
		if err != nil {
			refused("ConnConfig."+name, x, err)
			return
		}
		r.ok(q.Close(r.ctx))
	})
	eachExtreme(func(name string, x int64, c *SRQConfig) {
		s, err := r.peer[0].NewSRQ(c)
		if err != nil {
			refused("SRQConfig."+name, x, err)
			return
		}
		r.ok(s.Close())
	})
	m := r.mr(0, 4096, ReadSrc|ReadDst)
	for _, x := range extremes {
		n := int(x)
		if int64(n) != x {
			continue
		}
		if x < 0 || x > 1<<40 { // other sizes may be mapped
			if m, err := r.peer[0].NewMR(n, ReadSrc); err != nil {
				refused("NewMR", x, err)
			} else {
				t.Errorf("NewMR of %d bytes has mapped %v", x, m)
			}
		}
		for _, y := range extremes {
			if off := int(y); int64(off) == y {
				_, err := piece("piece", m, off, n)
				refused("a piece", x, err)
			}
		}
	}
}
