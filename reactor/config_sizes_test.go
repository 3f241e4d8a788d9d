package reactor_test

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// extremes are numbers at which conversions and sums overflow, on 32 bits and on 64, or that ask for more memory
// than there is.
var extremes = []int64{
	math.MinInt64, math.MinInt32, -1, math.MaxUint16, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxUint32 + 1,
	math.MaxUint32 + 2, 1 << 40, math.MaxInt64 - 1, math.MaxInt64,
}

// withExtremes calls try for each signed number in the struct *cfg, with each of extremes in its place.
func withExtremes[C any](cfg C, try func(name string, x int64, cfg C)) {
	for i := range reflect.TypeFor[C]().NumField() {
		changed := cfg
		f := reflect.ValueOf(&changed).Elem().Field(i)
		if !f.CanSet() || f.Kind() != reflect.Int && f.Kind() != reflect.Int64 {
			continue
		}
		for _, x := range extremes {
			if !f.OverflowInt(x) {
				f.SetInt(x)
				try(reflect.TypeFor[C]().Field(i).Name, x, changed)
			}
		}
	}
}

// Rule: with any number in any field of Config or QueueConfig, the call fails with ErrConfig, or with the error of the
// device or the system that has no such number, or what it makes can be ended.
func TestExtremeNumbersInConfigs(t *testing.T) {
	onlySoft(t, "an extreme number may be a burden to a device that others use")
	dev := softBed.open(t, 0)
	defer func() { try(t, dev.Close()) }()
	refused := func(name string, x int64, err error) {
		if !errors.Is(err, reactor.ErrConfig) && !errors.Is(err, verbs.ErrInvalid) && !errors.Is(err, mem.ErrNode) {
			t.Errorf("%s %d: %v, want ErrConfig, ErrInvalid or ErrNode", name, x, err)
		}
	}
	withExtremes(reactor.Config{Context: dev}, func(name string, x int64, cfg reactor.Config) {
		r, err := reactor.New(cfg)
		if err != nil {
			refused("Config."+name, x, err)
			return
		}
		try(t, r.Close(t.Context()))
	})
	pd := must.Get(dev.AllocPD())(t)
	defer func() { try(t, pd.Close()) }()
	r := must.Get(reactor.New(reactor.Config{Context: dev}))(t)
	defer func() { try(t, r.Close(t.Context())) }()
	withExtremes(reactor.QueueConfig{PD: pd}, func(name string, x int64, cfg reactor.QueueConfig) {
		q, err := r.Prepare(cfg)
		if err != nil {
			refused("QueueConfig."+name, x, err)
			return
		}
		try(t, q.Discard())
	})
	for _, x := range extremes {
		if n := int(x); int64(n) == x {
			for _, size := range [][2]int{{n, 1}, {1, n}} {
				s, err := r.PrepareShared(pd, size[0], size[1])
				if err != nil {
					refused("PrepareShared", x, err)
					continue
				}
				try(t, s.Discard())
			}
		}
	}
}
