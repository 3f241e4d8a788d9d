//go:build linux && verbena_rxevm

package rxevm

import (
	"strings"
	"testing"
)

// The first connection after boot does not wait for the time limit of its address resolution (see
// the agent's cable): rping's limit is 2 seconds, the library's 5. The test reads the kernel's
// events, not a clock, which a busy host distorts: no neighbor is resolved, so no answer can be
// missed.
func firstConnection(t *testing.T, m *Machine) {
	out, err := m.Shell(t.Context(), `
mount -t tracefs trace /sys/kernel/tracing
cd /sys/kernel/tracing
echo 1 >events/rdma_cma/enable; echo 1 >events/neigh/enable
rping -s -a 10.77.0.2 -C 1 >/dev/null 2>&1 &
until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done
rping -c -a 10.77.0.2 -I 10.77.0.1 -C 1
cat trace`)
	if err != nil || !strings.Contains(out, "ADDR_RESOLVED (0/0)") {
		t.Fatalf("%v:\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "family 2") && (strings.Contains(line, "neigh_create:") || strings.Contains(line, "nud_state incomplete")) {
			t.Errorf("a neighbour had to be resolved: %s", line)
		}
	}
}

// A member that joins a group on one device by CM receives the other's datagrams over the cable,
// and a sender without a source address gets a route. mckey destroys its queue pair without
// waiting for its sends, which the kernel then drops unsent, all of a few on a busy machine: so
// it sends many, and again while the member lives.
func multicast(t *testing.T, m *Machine) {
	out, err := m.Shell(t.Context(), `
heard() { cat /sys/class/net/r1/statistics/rx_packets; }
timeout 240 mckey -m 239.9.9.9 -b 10.77.0.2 -C 3 >/tmp/member &
until grep -q 090909EF /proc/net/igmp; do sleep 0.1; done
before=$(heard)
while kill -0 $! 2>/dev/null; do
  timeout 60 mckey -m 239.9.9.9 -b 10.77.0.1 -s -C 100
done
wait $!
cat /tmp/member
test $(( $(heard) - before )) -ge 3 && echo over the cable
for from in "" "from 10.77.0.1" "from 10.77.0.2"; do ip route get 239.9.9.9 $from; done`)
	if err != nil || !strings.Contains(out, "over the cable") {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, want := range []string{"239.9.9.9 dev r0 src 10.77.0.1", "239.9.9.9 from 10.77.0.1 dev r0", "239.9.9.9 from 10.77.0.2 dev r1"} {
		if !strings.Contains(out, want) {
			t.Errorf("no route %q:\n%s", want, out)
		}
	}
}
