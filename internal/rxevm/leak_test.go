package rxevm

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
