//go:build linux && verbena_rxevm

package rxevm

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// bootTwo boots two machines on one cable.
func bootTwo(t *testing.T) (c *Cable, a, b *Machine) {
	t.Helper()
	c = NewCable()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing the cable: %v", err)
		}
	})
	var ms [2]*Machine
	var errs [2]error
	var wg sync.WaitGroup
	for i := range ms {
		wg.Go(func() { ms[i], errs[i] = Boot(t.Context(), Config{Cable: c}) })
	}
	wg.Wait()
	for i, m := range ms {
		if errs[i] != nil {
			t.Error(errs[i])
			continue
		}
		closeAfter(t, m)
	}
	if t.Failed() {
		t.FailNow()
	}
	return c, ms[0], ms[1]
}

// Two machines on a cable reach each other by RDMA. While the cable is cut they do not, but see a
// carrier; without a carrier they see none.
func TestTwoMachinesAndTheirCable(t *testing.T) {
	cable, a, b := bootTwo(t)
	ctx := t.Context()
	if a.CableAddr() == b.CableAddr() {
		t.Fatalf("both have %s", a.CableAddr())
	}
	server, err := b.Start(ctx, Cmd{Argv: []string{"rping", "-s", "-P", "-v", "-a", b.CableAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	client := "rping -c -v -C 3 -a " + b.CableAddr() + " -I " + a.CableAddr()
	// The server may not listen yet.
	limit := time.Now().Add(patience)
	out, err := a.Shell(ctx, "timeout 30 "+client)
	for err != nil && time.Now().Before(limit) {
		out, err = a.Shell(ctx, "timeout 30 "+client)
	}
	if err != nil || !strings.Contains(out, "ping data") {
		t.Fatalf("over the whole cable: %v:\n%s", err, out)
	}
	if carried, lost := cable.Counts(); carried == 0 || lost != 0 {
		t.Errorf("the cable carried %d frames and lost %d", carried, lost)
	}

	carrier := "cat /sys/class/net/" + CableNIC + "/carrier"
	cable.Cut()
	if out, err := a.Shell(ctx, "timeout 5 ping -c 1 -W 2 "+b.CableAddr()+" 2>&1 || timeout 10 "+client+" && echo through || "+carrier); err != nil ||
		strings.Contains(out, "through") || !strings.HasSuffix(out, "1\n") {
		t.Errorf("over the cut cable: %v:\n%s", err, out)
	}
	if _, lost := cable.Counts(); lost == 0 {
		t.Error("the cut cable lost nothing")
	}
	cable.Restore()
	if out, err := a.Shell(ctx, "timeout 60 "+client); err != nil || !strings.Contains(out, "ping data") {
		t.Errorf("over the restored cable: %v:\n%s", err, out)
	}

	for _, up := range []bool{false, true} {
		if err := a.SetCarrier(ctx, up); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{false: "0", true: "1"}[up]
		if out, err := a.Shell(ctx, "for i in $(seq 100); do test $("+carrier+") = "+want+" && exit 0; sleep 0.1; done; exit 1"); err != nil {
			t.Errorf("carrier %v: not seen within 10 s: %v %s", up, err, out)
		}
	}
	// Loss by the kernel's netem.
	if out, err := a.Shell(ctx, "tc qdisc add dev "+CableNIC+" root netem loss 1% duplicate 1% && tc qdisc show dev "+CableNIC); err != nil ||
		!strings.Contains(out, "netem") {
		t.Errorf("netem: %v:\n%s", err, out)
	}
	if err := server.Kill(); err != nil {
		t.Error(err)
	}
	if err := server.Wait(); err == nil {
		t.Error("a server that was killed ended well")
	}
}
