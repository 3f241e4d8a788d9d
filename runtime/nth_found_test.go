package runtime

import (
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// failing is a configuration on a provider of which one call fails.
func failing(t *testing.T, op string, n int) (Config, *nth.Plan) {
	t.Helper()
	notOnDevice(t, "the n-th call fails")
	p, err := soft.New(soft.Config{})
	if err != nil {
		t.Fatal(err)
	}
	plan := &nth.Plan{Op: op, N: n}
	return Config{Provider: nth.Wrap(p, plan), Spin: -1, NoCallerDriving: true}, plan
}

// Rule: connection events that could not be taken are asked for again: the
// channel announces each once.
func TestConnectingSurvivesAFailedGetEvent(t *testing.T) {
	notOnDevice(t, "the n-th call fails")
	struck := 0
	for n := 1; n <= 12; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			cfg, plan := failing(t, "rdma_get_cm_event", n)
			cfg.ConnectTimeout = 15 * time.Second
			a, b := connected(t, cfg) // fails if it does not come about
			echo(t, a, b)
			if _, ok := plan.Struck(); ok {
				struck++
			}
		})
	}
	if struck < 4 {
		t.Errorf("only %d calls were made to fail", struck)
	}
}

// echo sends one message from a to b.
func echo(t *testing.T, a, b *Conn) {
	t.Helper()
	ctx := testContext(t)
	f, err := a.SendBytes(ctx, []byte("hello"))
	done(t, f, err)
	m, err := b.RecvWait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Data) != "hello" {
		t.Fatalf("received %q", m.Data)
	}
	m.Release()
}
