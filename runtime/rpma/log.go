package rpma

import (
	"context"
	"log/slog"
	"math"
	"os"
	"sync/atomic"
	"time"
)

// The levels of the log: those of librpma, in the scale of log/slog.
const (
	LevelDebug    = slog.LevelDebug
	LevelInfo     = slog.LevelInfo
	LevelNotice   = slog.Level(2)
	LevelWarning  = slog.LevelWarn
	LevelError    = slog.LevelError
	LevelFatal    = slog.Level(12)
	LevelDisabled = slog.Level(math.MaxInt32) // a threshold that no record reaches
)

// LogThreshold selects a threshold of the log.
type LogThreshold int

// The thresholds of the log.
const (
	// LogMain is the lowest level of records that the log function gets. Default LevelWarning.
	LogMain LogThreshold = iota
	// LogAux is the lowest level of records that the default log function also writes to standard error.
	// Default LevelDisabled.
	LogAux
	numThresholds
)

// The log of the process, as librpma has one. Any goroutine reads and writes these.
var (
	thresholds [numThresholds]atomic.Int64  // slog.Level
	handler    atomic.Pointer[slog.Handler] // nil: the default
	standard   = slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(math.MinInt32)})
)

func init() {
	thresholds[LogMain].Store(int64(LevelWarning))
	thresholds[LogAux].Store(int64(LevelDisabled))
}

// SetLogThreshold sets a threshold. It does not block, and may be called from any goroutine.
//
// Errors: ErrInvalid for an unknown threshold or a level that is none of the Level constants.
//
// Implements: rpma_log_set_threshold.
func SetLogThreshold(t LogThreshold, level slog.Level) error {
	const op = "rpma_log_set_threshold"
	switch level {
	case LevelDebug, LevelInfo, LevelNotice, LevelWarning, LevelError, LevelFatal, LevelDisabled:
	default:
		return invalid(op, "the level %v", level)
	}
	if t < 0 || t >= numThresholds {
		return invalid(op, "the threshold %d", t)
	}
	thresholds[t].Store(int64(level))
	return nil
}

// GetLogThreshold returns a threshold.
//
// Errors: ErrInvalid for an unknown threshold.
//
// Implements: rpma_log_get_threshold.
func GetLogThreshold(t LogThreshold) (slog.Level, error) {
	if t < 0 || t >= numThresholds {
		return LevelDisabled, invalid("rpma_log_get_threshold", "the threshold %d", t)
	}
	return slog.Level(thresholds[t].Load()), nil
}

// SetLogFunction has h get the records of the log, in place of the default. The default, which nil
// selects, is the handler of slog.Default, and from LogAux on also standard error. The goroutines of a
// reactor call h, so h must not block for long, and must not call this package.
//
// Implements: rpma_log_set_function.
func SetLogFunction(h slog.Handler) {
	if h == nil {
		handler.Store(nil)
		return
	}
	handler.Store(&h)
}

// logf writes a record, if its level reaches the threshold.
func logf(level slog.Level, message string, err error, attrs ...slog.Attr) {
	if int64(level) < thresholds[LogMain].Load() {
		return
	}
	r := slog.NewRecord(time.Now(), level, message, 0)
	if err != nil {
		r.AddAttrs(slog.Any("error", err))
	}
	r.AddAttrs(attrs...)
	ctx := context.Background()
	if h := handler.Load(); h != nil {
		_ = (*h).Handle(ctx, r) // there is nobody to tell
		return
	}
	if h := slog.Default().Handler(); h.Enabled(ctx, level) {
		_ = h.Handle(ctx, r)
	}
	if int64(level) >= thresholds[LogAux].Load() {
		_ = standard.Handle(ctx, r)
	}
}
