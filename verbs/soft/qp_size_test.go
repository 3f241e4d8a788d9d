package soft

import (
	"reflect"
	"testing"
)

// Rule: a queue pair fits Go's size class of 1,024 bytes, of which 8 are the allocator's. With one word more, each end of a
// connection takes 128 bytes more of heap, and an idle default connection more than 16 KiB (benchmarks/internal/scale).
func TestAQueuePairIsSmall(t *testing.T) {
	if n := reflect.TypeFor[queuePair]().Size(); n > 1024-8 {
		t.Errorf("a queue pair has %d bytes, want at most 1016", n)
	}
}
