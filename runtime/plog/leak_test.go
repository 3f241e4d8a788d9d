package plog

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
)

// TestMain fails the run when goroutines, descriptors or mappings are left
// behind.
func TestMain(m *testing.M) { leak.Main(m) }
