package soft

import (
	"reflect"
	"testing"
)

// Rule: a queue pair has at most 1,016 bytes. Go's allocator adds a header of 8 bytes and rounds up to a size class, here
// 1,024 bytes. A larger one would cost each end of a connection 128 bytes of heap, and then an idle default connection
// would have more than 16 KiB (benchmarks/internal/scale).
func TestAQueuePairIsSmall(t *testing.T) {
	if n := reflect.TypeFor[queuePair]().Size(); n > 1024-8 {
		t.Errorf("a queue pair has %d bytes, want at most 1016", n)
	}
}
