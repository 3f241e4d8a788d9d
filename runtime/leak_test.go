package runtime

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// TestMain fails the run when goroutines, descriptors, mappings or objects of
// the providers are left behind.
func TestMain(m *testing.M) {
	if err := takePlaces(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: soft.Live}, leak.Gauge{Name: "objects of libibverbs", Read: ibv.Live})
}

// closing bounds the end of a runtime.
func closing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}
