package runtime

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/verbena-rdma/verbena/futures"
)

// extremes are numbers at which conversions and sums overflow, on 32 bits and on 64, or that ask for more memory
// than there is.
var extremes = []int64{
	math.MinInt64, math.MinInt32, -1, math.MaxUint16, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxUint32 + 1,
	math.MaxUint32 + 2, 1 << 40, math.MaxInt64 - 1, math.MaxInt64,
}

// numbers calls do for each field of the struct v that is a signed number of machine size or more, also for those in
// structs within it.
func numbers(v reflect.Value, path string, do func(name string, field reflect.Value)) {
	for i := range v.NumField() {
		f, name := v.Field(i), path+v.Type().Field(i).Name
		switch {
		case !f.CanSet():
		case f.Kind() == reflect.Struct:
			numbers(f, name+".", do)
		case f.Kind() == reflect.Int, f.Kind() == reflect.Int64:
			do(name, f)
		}
	}
}

// Rule: with any number in any field of Config, Open fails with ErrConfig, or the runtime calls handlers and closes.
func TestExtremeNumbersInConfig(t *testing.T) {
	var fields []string
	numbers(reflect.ValueOf(new(Config)).Elem(), "", func(name string, _ reflect.Value) { fields = append(fields, name) })
	for _, name := range fields {
		for _, x := range extremes {
			c := Config{Device: "soft0"}
			fits := true
			numbers(reflect.ValueOf(&c).Elem(), "", func(at string, field reflect.Value) {
				if at == name {
					if fits = !field.OverflowInt(x); fits {
						field.SetInt(x)
					}
				}
			})
			if fits {
				t.Run(name, func(t *testing.T) { tryConfig(t, c, x) })
			}
		}
	}
}

func tryConfig(t *testing.T, c Config, x int64) {
	rt, err := Open(c)
	if err != nil {
		if !errors.Is(err, ErrConfig) {
			t.Errorf("%d: Open fails with %v, want ErrConfig", x, err)
		}
		return
	}
	ctx := testContext(t)
	called := make(chan struct{})
	rt.Handle(futures.Ready(Result{}, nil), func(Result, error) { close(called) })
	select {
	case <-called:
	case <-ctx.Done():
		t.Errorf("%d: a handler is not called", x)
	}
	if err := rt.Close(context.WithoutCancel(ctx)); err != nil {
		t.Errorf("%d: closing: %v", x, err)
	}
}
