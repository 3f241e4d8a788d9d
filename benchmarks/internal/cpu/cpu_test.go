package cpu

import (
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
)

func TestMain(m *testing.M) { leak.Main(m) }

// Rule: busy time is counted, and time asleep is not.
func TestBurntTimeIsCounted(t *testing.T) {
	before, err := Used()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("not on this system: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	const burn = 30 * time.Millisecond
	// Measure with the clock of the process itself: other processes may have the processor.
	for limit := time.Now().Add(time.Minute); ; {
		now := must.Get(Used())(t)
		if now-before >= burn {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("a loop of a minute used %v", now-before)
		}
	}
	before = must.Get(Used())(t)
	<-time.After(5 * burn)
	after := must.Get(Used())(t)
	if used := after - before; used > 2*burn {
		t.Errorf("a wait of %v used %v of a processor", 5*burn, used)
	}
}
