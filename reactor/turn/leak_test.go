package turn

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
)

// TestMain fails the run if tests leak goroutines, descriptors or mappings.
func TestMain(m *testing.M) { leak.Main(m) }
