package rpma

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// quiet is a handler that drops all records.
type quiet struct{ slog.Handler }

func (quiet) Handle(context.Context, slog.Record) error { return nil }

// records is a handler that keeps the messages with their levels.
type records struct {
	quiet
	mu  sync.Mutex
	all map[string]slog.Level
}

func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[rec.Message] = rec.Level
	return nil
}

// Rule: the log function gets the records from the threshold on, and no others. A disabled log has
// none.
func TestLogThreshold(t *testing.T) {
	defer SetLogFunction(quiet{})
	defer SetLogThreshold(LogMain, LevelWarning)
	levels := []slog.Level{LevelDebug, LevelInfo, LevelNotice, LevelWarning, LevelError, LevelFatal, LevelDisabled}
	for i, threshold := range levels {
		r := &records{all: map[string]slog.Level{}}
		SetLogFunction(r)
		must.Do(t, SetLogThreshold(LogMain, threshold))
		if got := must.Get(GetLogThreshold(LogMain))(t); got != threshold {
			t.Errorf("the threshold is %v, want %v", got, threshold)
		}
		for _, aux := range levels { // the second threshold does not matter
			must.Do(t, SetLogThreshold(LogAux, aux))
			for _, l := range levels[:6] {
				logf(l, l.String(), nil)
			}
		}
		must.Do(t, SetLogThreshold(LogAux, LevelDisabled))
		if want := 6 - i; len(r.all) != want {
			t.Errorf("with threshold %v the log function got %v, want the %d highest levels", threshold, r.all, want)
		}
		for _, l := range r.all {
			if l < threshold {
				t.Errorf("with threshold %v the log function got a record of level %v", threshold, l)
			}
		}
	}
}

// Rule: the defaults of the thresholds are a warning, and nothing on standard error.
func TestLogDefaults(t *testing.T) {
	if l := must.Get(GetLogThreshold(LogMain))(t); l != LevelWarning {
		t.Errorf("the main threshold is %v, want %v", l, LevelWarning)
	}
	if l := must.Get(GetLogThreshold(LogAux))(t); l != LevelDisabled {
		t.Errorf("the second threshold is %v, want none", l)
	}
}

// Rule: unknown thresholds and levels are ErrInvalid, and change nothing.
func TestLogMistakes(t *testing.T) {
	for _, th := range []LogThreshold{-1, numThresholds} {
		isCode(t, "setting an unknown threshold", SetLogThreshold(th, LevelError), ErrInvalid)
		_, err := GetLogThreshold(th)
		isCode(t, "an unknown threshold", err, ErrInvalid)
	}
	for _, l := range []slog.Level{LevelDebug - 1, 1, LevelFatal + 1, LevelDisabled - 1} {
		isCode(t, "an unknown level", SetLogThreshold(LogMain, l), ErrInvalid)
	}
	isCode(t, "an unknown threshold and level", SetLogThreshold(numThresholds, LevelFatal+1), ErrInvalid)
	TestLogDefaults(t)
}

// Rule: the default log function writes records from the second threshold on also to standard error, with
// level and text, in each level. A log function of the program's replaces both.
func TestLogStandardError(t *testing.T) {
	var out bytes.Buffer
	old, oldDefault := standard, slog.Default()
	defer func() {
		standard = old
		slog.SetDefault(oldDefault)
		SetLogFunction(quiet{})
		must.Do(t, errors.Join(SetLogThreshold(LogMain, LevelWarning), SetLogThreshold(LogAux, LevelDisabled)))
	}()
	all := &records{quiet: quiet{oldDefault.Handler()}, all: map[string]slog.Level{}}
	slog.SetDefault(slog.New(all))
	standard = slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.Level(math.MinInt32)})
	must.Do(t, SetLogThreshold(LogMain, LevelDebug))
	levels := []slog.Level{LevelDebug, LevelInfo, LevelNotice, LevelWarning, LevelError, LevelFatal, LevelDisabled}
	for i, aux := range levels {
		must.Do(t, SetLogThreshold(LogAux, aux))
		for _, own := range []bool{false, true} {
			out.Reset()
			want := 6 - i
			if SetLogFunction(nil); own {
				SetLogFunction(quiet{})
				want = 0
			}
			for _, l := range levels[:6] {
				logf(l, "text of "+l.String(), nil)
			}
			if got := strings.Count(out.String(), "text of"); got != want {
				t.Errorf("threshold %v, a function of the program's: %t: standard error got %d records, want %d:\n%s", aux, own, got, want, &out)
			}
			for _, l := range levels[i:6] {
				if s := "level=" + l.String(); !own && !strings.Contains(out.String(), s) {
					t.Errorf("threshold %v: standard error got %q, want also a record with %s", aux, &out, s)
				}
			}
		}
	}
	for _, l := range levels[:6] {
		if got, ok := all.all["text of "+l.String()]; ok != (l >= LevelInfo) || ok && got != l { // slog.Default has no debug records
			t.Errorf("slog.Default got %v for %v", got, l)
		}
	}
}

// Rule: without a log function, records go to slog.Default; a nil function brings that back.
func TestLogFunctionDefault(t *testing.T) {
	old := slog.Default()
	defer slog.SetDefault(old)
	defer SetLogFunction(quiet{})
	r := &records{quiet: quiet{old.Handler()}, all: map[string]slog.Level{}}
	slog.SetDefault(slog.New(r))
	SetLogFunction(nil)
	logf(LevelError, "to the default", nil)
	SetLogFunction(quiet{})
	logf(LevelError, "to another", nil)
	if _, ok := r.all["to the default"]; len(r.all) != 1 || !ok {
		t.Errorf("slog.Default got %v, want the one record without a log function", r.all)
	}
}

// Rule: what the provider refuses is logged as an error, with the call.
func TestLogErrors(t *testing.T) {
	defer SetLogFunction(quiet{})
	r := &records{all: map[string]slog.Level{}}
	SetLogFunction(r)
	_ = fail("rpma_read", ErrProvider, nil)
	_ = fail("rpma_write", ErrInvalid, nil)
	if l, ok := r.all["rpma_read"]; !ok || l != LevelError || len(r.all) != 1 {
		t.Errorf("the log has %v, want the failure of the provider alone, as an error", r.all)
	}
}
