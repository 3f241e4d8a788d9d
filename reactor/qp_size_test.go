package reactor

import (
	"reflect"
	"testing"
)

// Rule: a Queue has at most 568 bytes. Go's allocator adds a header of 8 bytes and rounds up to a size class, here 576
// bytes. A larger one would cost each end of a connection 64 bytes of heap, and then an idle default connection would
// have more than 16 KiB (benchmarks/internal/scale).
func TestAQueueIsSmall(t *testing.T) {
	if n := reflect.TypeFor[Queue]().Size(); n > 576-8 {
		t.Errorf("a Queue has %d bytes, want at most 568", n)
	}
}
