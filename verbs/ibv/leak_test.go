package ibv

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
)

// TestMain fails the run when goroutines, descriptors, mappings or objects of
// the provider are left behind.
func TestMain(m *testing.M) {
	leak.Main(m, leak.Gauge{Name: "objects of ibv", Read: Live})
}
