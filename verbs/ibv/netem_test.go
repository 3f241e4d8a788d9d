//go:build linux && cgo && !portable

package ibv

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// netem disturbs the packets that leave the interfaces of two Soft-RoCE devices, with the
// kernel's network emulator (tc-netem(8)). It drops all packets, also those that resolve the
// neighbor's hardware address.
type netem struct {
	t       *testing.T
	out     map[verbs.GID]string // the interface of an address
	spoiled map[string]bool      // the interfaces with an emulator
}

// newNetem returns nil where packets cannot be disturbed: the devices share an interface (then no
// packet leaves it), or tc is missing or not permitted.
func newNetem(t *testing.T, p *verbstest.Pair) verbstest.Faults {
	t.Helper()
	n := &netem{t: t, out: map[verbs.GID]string{}, spoiled: map[string]bool{}}
	names := map[string]bool{}
	for _, e := range []*verbstest.Endpoint{&p.A, &p.B} {
		at := interfacesOf(t, e.Context)
		if len(at) != 1 {
			return nil
		}
		gid := must.Get(verbs.ChooseGID(e.Context, 1))(t)
		n.out[gid.GID] = at[0].Name
		names[at[0].Name] = true
	}
	if len(names) != 2 {
		return nil
	}
	t.Cleanup(n.Heal) // heals the first interface too, if the second fails
	for name := range names {
		if err := tc("replace", name, "netem"); err != nil {
			t.Logf("no faults by tc: %v", err)
			return nil
		}
		n.spoiled[name] = true
	}
	n.Heal()
	return n
}

func tc(action, name string, args ...string) error {
	argv := append([]string{"qdisc", action, "dev", name, "root"}, args...)
	if out, err := exec.Command("tc", argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("tc %s: %w: %s", strings.Join(argv, " "), err, out)
	}
	return nil
}

// holdBack is the delay that netem gives to packets that others overtake.
const holdBack = time.Millisecond

// Set disturbs the packets from an address, to any destination.
func (n *netem) Set(from, _ verbs.GID, f verbstest.Fault) {
	n.t.Helper()
	if len(f.Drop)+len(f.Repeat)+len(f.Late) > 0 {
		n.t.Fatal("netem names no single packets: the case must say onPackets")
	}
	args := []string{"netem", "limit", "10000"}
	percent := func(what string, p float64) {
		if p > 0 {
			args = append(args, what, fmt.Sprintf("%g%%", 100*p))
		}
	}
	delay := f.Delay
	if f.Reorder > 0 && delay == 0 {
		delay = holdBack
	}
	if delay+f.Jitter > 0 {
		args = append(args, "delay", fmt.Sprintf("%dus", delay.Microseconds()), fmt.Sprintf("%dus", f.Jitter.Microseconds()))
	}
	percent("duplicate", f.Dup)
	percent("reorder", f.Reorder)
	if f.Down {
		percent("loss", 1)
	} else {
		percent("loss", f.Loss)
	}
	if err := tc("replace", n.out[from], args...); err != nil {
		n.t.Fatal(err)
	}
	n.spoiled[n.out[from]] = true
}

// Heal removes all disturbances. It runs tc only where there is one: most cases have none, and in
// an emulated machine starting a program takes longer than such a case.
func (n *netem) Heal() {
	n.t.Helper()
	for name := range n.spoiled {
		if err := tc("del", name); err != nil {
			n.t.Error(err)
		}
		delete(n.spoiled, name)
	}
}
