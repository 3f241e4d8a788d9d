package turn

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
)

// TestMain fails the run if the tests leave goroutines, file descriptors or memory mappings behind.
func TestMain(m *testing.M) { leak.Main(m) }
