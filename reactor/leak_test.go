package reactor_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// TestMain fails the run when goroutines, descriptors, mappings or objects of
// the providers are left behind.
func TestMain(m *testing.M) {
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: soft.Live},
		leak.Gauge{Name: "objects of libibverbs", Read: ibv.Live})
}
