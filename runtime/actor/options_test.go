package actor

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// extremes are numbers at which conversions and sums overflow, on 32 bits and on 64, or that ask for more memory
// than there is.
var extremes = []int64{
	math.MinInt64, math.MinInt32, -1, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxUint32 + 1,
	math.MaxUint32 + 2, 1 << 40, math.MaxInt64 - 1, math.MaxInt64,
}

// numbers calls do for each signed number in the struct v, also for those in structs within it.
func numbers(v reflect.Value, do func(name string, field reflect.Value)) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case !f.CanSet():
		case f.Kind() == reflect.Struct:
			numbers(f, do)
		case f.Kind() == reflect.Int, f.Kind() == reflect.Int64:
			do(v.Type().Field(i).Name, f)
		}
	}
}

// eachExtreme calls try with the zero C, but one number in it is one of extremes.
func eachExtreme[C any](try func(name string, x int64, c C)) {
	var names []string
	numbers(reflect.ValueOf(new(C)).Elem(), func(name string, _ reflect.Value) { names = append(names, name) })
	for _, name := range names {
		for _, x := range extremes {
			c, fits := new(C), false
			numbers(reflect.ValueOf(c).Elem(), func(at string, f reflect.Value) {
				if at == name && !f.OverflowInt(x) {
					f.SetInt(x)
					fits = true
				}
			})
			if fits {
				try(name, x, *c)
			}
		}
	}
}

// Rule: with any number in any field of Config or Options, the call fails with ErrConfig, or the actor handles a message.
func TestExtremeNumbersInConfigs(t *testing.T) {
	use := func(name string, x int64, c Config, o Options) {
		s, err := New(c)
		if err == nil {
			defer func() {
				if err := s.Close(testContext(t)); err != nil {
					t.Errorf("%s %d: closing: %v", name, x, err)
				}
			}()
			done := make(chan struct{})
			var r Ref[int]
			r, err = Spawn(s, o, func() Handler[int] { return Func[int](func(*Context[int], int) { close(done) }) })
			if err == nil {
				if err := r.Tell(t.Context(), 1); err != nil {
					t.Errorf("%s %d: telling: %v", name, x, err)
				}
				<-done
			}
		}
		if err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%s %d: %v, want ErrConfig", name, x, err)
		}
	}
	eachExtreme(func(name string, x int64, c Config) { use(name, x, c, Options{}) })
	eachExtreme(func(name string, x int64, o Options) { use(name, x, Config{}, o) })
}

// Rule: a mailbox whose memory is more than a program can have is refused.
func TestAMailboxOfTooManyBytesIsRefused(t *testing.T) {
	w := newWorld(t, Config{})
	type large [1 << 20]byte
	_, err := Spawn(w.System, Options{Mailbox: maxMailbox}, func() Handler[large] { return Func[large](func(*Context[large], large) {}) })
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "Mailbox") {
		t.Errorf("a mailbox of 16 TiB: %v, want ErrConfig about Mailbox", err)
	}
}

// Rule: the messages of a connection that may be queued are bounded: each is requested when the actor owns the
// connection.
func TestTooManyReceivesAreRefused(t *testing.T) {
	w := newWorld(t, Config{})
	for _, n := range []int{maxReceives + 1, math.MaxInt} {
		if _, err := Spawn(w.System, Options{Receives: n}, func() Handler[int] { return newGate() }); !errors.Is(err, ErrConfig) {
			t.Errorf("%d receives: %v, want ErrConfig", n, err)
		}
	}
}
