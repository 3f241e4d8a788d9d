package main

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

func TestMain(m *testing.M) {
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: soft.Live}, leak.Gauge{Name: "objects of libibverbs", Read: ibv.Live})
}
