package reactor

import (
	"reflect"
	"testing"
)

// Rule: a Queue fits Go's size class of 576 bytes, of which 8 are the allocator's. With one word more, each end of a
// connection takes 64 bytes more of heap, and an idle default connection more than 16 KiB (benchmarks/internal/scale).
func TestAQueueIsSmall(t *testing.T) {
	if n := reflect.TypeFor[Queue]().Size(); n > 576-8 {
		t.Errorf("a Queue has %d bytes, want at most 568", n)
	}
}
