package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// softBench is a run on two devices of the software RNIC, with few connections.
func softBench(t *testing.T) *bench {
	t.Helper()
	p := must.Get(soft.New(soft.Config{}))(t)
	devices := must.Get(p.Devices())(t)
	return &bench{sys: "/", ends: [2]target{{p, devices[0].Name}, {p, devices[1].Name}}, conns: 20, limit: time.Minute, grace: leftBehind, mask: newMasker()}
}

// blanks checks that each item of a report is known or has a reason.
func blanks(t *testing.T, r *Report) {
	t.Helper()
	each(reflect.ValueOf(r), "", func(v reflect.Value, _ string) {
		if b, ok := v.Addr().Interface().(blank); ok {
			if value, why := b.read(); value == nil && why == "" {
				t.Errorf("an item of type %v is neither known nor has a reason", v.Type())
			}
		}
	})
}

// complete checks that a report lacks nothing, on a device that has all: an item is known or has a reason, and
// what was measured on the device is known.
func complete(t *testing.T, r *Report) {
	t.Helper()
	blanks(t, r)
	for what, i := range map[string]blank{
		"ports": &r.Place.Devices[0].Ports, "GIDs": &r.Place.Devices[0].GIDs, "limits": &r.Granted.Device, "resize": &r.Granted.Resize,
		"memory of connections": &r.Granted.Connections, "ends": &r.Agreed.Ends, "time to RETRY_EXC": &r.Agreed.RetryExc,
		"dials at once": &r.Timed.AtOnce, "events": &r.Counted.Events, "kernel": &r.Place.System.Kernel, "memlock": &r.Place.Process.Memlock,
	} {
		if value, why := i.read(); value == nil {
			t.Errorf("%s: unknown: %s", what, why)
		}
	}
	for what, rows := range map[string][]Times{"control calls": r.Timed.Calls, "registrations": r.Timed.Registrations, "dials": r.Timed.Dials,
		"messages": r.Timed.Messages, "data path": r.Timed.DataPath} {
		if len(rows) == 0 {
			t.Errorf("there are no times of %s", what)
		}
		for _, x := range rows {
			if x.Call == eventToGoroutine {
				continue // unknown while other work keeps the processors busy
			}
			if x.Unknown != "" || x.N == 0 {
				t.Errorf("%s, %s: %d times, unknown: %q", what, x.Call, x.N, x.Unknown)
			}
		}
	}
	if r.Timed.AtOnce.Value != nil && r.Timed.AtOnce.Value.Connected != 20 {
		t.Errorf("of 20 dials at once %+v", *r.Timed.AtOnce.Value)
	}
	if len(r.Granted.Limits) == 0 || r.Granted.Limits[0].SendDepth == 0 || len(r.Granted.CQs) == 0 || len(r.Granted.Pinned) == 0 {
		t.Errorf("granted lacks limits, queues or pinned memory: %+v", r.Granted)
	}
	for _, s := range r.Counted.Stats {
		if s.Stats.Value == nil || s.Stats.Value.Completions == 0 {
			t.Errorf("the stats of the %s end count no completion", s.End)
		}
	}
	for _, p := range r.Parts {
		if p.Cut != "" {
			t.Errorf("part %s: %s", p.Name, p.Cut)
		}
	}
}

// Rule: a run on the software RNIC has every section, and its JSON reads back as the same report.
func TestReportOfTheSoftwareRNIC(t *testing.T) {
	b := softBench(t)
	r := b.report()
	b.mask.report(r)
	complete(t, r)
	if end := (*r.Agreed.Ends.Value)[0]; end.Retry != 7 || end.MTU == 0 {
		t.Errorf("the dialing end has %+v", end)
	}
	if s := r.Agreed.RetryExc.Value; s.Status != "RETRY_EXC_ERR" || s.Took < s.Shortest {
		t.Errorf("the device gave up a lost peer with %+v", *s)
	}
	var j, text bytes.Buffer
	must.Do(t, r.writeJSON(&j))
	var again Report
	must.Do(t, json.Unmarshal(j.Bytes(), &again))
	if !reflect.DeepEqual(&again, r) {
		t.Errorf("the JSON reads back as\n%+v, want\n%+v", again, *r)
	}
	must.Do(t, r.write(&text))
	for _, section := range []string{"place", "granted", "agreed", "timed", "counted", "deviations", "parts"} {
		if !strings.Contains(text.String(), "\n== "+section+"\n") {
			t.Errorf("the text has no section %s", section)
		}
	}
}

// Rule: a part whose call does not return is left behind at its limit. Its items say so, and the report is
// made without it.
func TestPartThatDoesNotReturnIsLeftBehind(t *testing.T) {
	b := &bench{limit: time.Millisecond, grace: time.Millisecond}
	release, ended := make(chan struct{}), make(chan struct{})
	if _, ok := part(b, "stuck", func(context.Context) Granted { defer close(ended); <-release; return Granted{} }); ok {
		t.Error("the part returned")
	}
	close(release)
	<-ended
	if len(b.parts) != 1 || !strings.Contains(b.parts[0].Cut, "did not return") {
		t.Errorf("the parts are %+v, want one that was left behind", b.parts)
	}
	var g Granted
	explainAll(&g, "left behind")
	if g.Caps.Unknown != "left behind" {
		t.Errorf("the capabilities are %+v, want the reason why they are unknown", g.Caps)
	}
}

// Rule: with no time each measurement says that it was cut, and no part waits.
func TestMeasurementsEndWithTheirPart(t *testing.T) {
	b := softBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rows := append(b.registrations(ctx), b.dataPath(ctx)...)
	if lost := b.lostPeer(ctx, defaultEnd); lost.Value != nil && lost.Value.Status == "" {
		t.Errorf("the time of a lost peer is %+v, want that of a completion or a reason", *lost.Value)
	}
	for _, x := range rows {
		if x.N > 1 || x.Unknown == "" && x.N == 0 {
			t.Errorf("%s: %d times without a reason (%q), want none and a reason", x.Call, x.N, x.Unknown)
		}
	}
}

// Rule: the 99th percentile is that by nearest rank; fewer than 100 calls have none.
func TestPercentileOfCalls(t *testing.T) {
	var took []time.Duration
	for i := range 201 {
		if i == forP99-1 && timesOf("", took).P99 != 0 {
			t.Errorf("%d calls have the 99th percentile %v, want none", i, timesOf("", took).P99)
		}
		took = append(took, time.Duration(i+1))
	}
	for n, want := range map[int]time.Duration{100: 99, 101: 100, 200: 198, 201: 199} {
		if got := timesOf("", took[:n]).P99; got != want {
			t.Errorf("of %d calls that take 1, 2, 3, ... the 99th percentile is %d, want %d", n, got, want)
		}
	}
}

var update = flag.Bool("update", false, "write testdata/report.txt")

// Rule: the text of a report has its fields in the order of the structs, and the reason of what is unknown.
// After a change of the form: go test ./scripts/device -run Text -update.
func TestTextOfAReport(t *testing.T) {
	const golden = "report.txt"
	r := &Report{Version: Version, Date: "2026-11-26", Devices: []string{"mlx5_0", "mlx5_1"}}
	r.Place.Machine.Product, r.Place.Machine.Processors = known("Example R1"), 64
	r.Place.Devices = []DevicePlace{{Name: "mlx5_0", Function: known("VF, a virtual function"), NUMANode: 1,
		GIDs:  known([]GIDPlace{{Port: 1, Type: "ROCE_V2", NetDev: "eth0", Address: "IPv4 private #1", Chosen: "yes"}}),
		Ports: unknown[[]PortPlace]("ibv_query_port: no such device")}}
	r.Granted.QueuePairs = []QPGrant{{For: "a connection", Type: "RC", Asked: "256 sends", Granted: "341 sends"}, {For: "datagrams", Type: "UD", Asked: "256 sends", Unknown: "refused"}}
	r.Granted.CQs = []CQGrant{{Asked: 8191, Granted: 8191}, {Asked: 1 << 22, Unknown: "cannot allocate memory"}}
	r.Agreed.RetryExc = known(RetryExc{Timeout: "16 (268ms)", Retry: 7, Shortest: 2147483648, Took: 4 * time.Second, Status: "RETRY_EXC_ERR"})
	r.Timed.Calls = []Times{{Call: "ibv_create_qp, RC", N: 300, Median: 1234567, P99: 2 * time.Millisecond, Max: 3 * time.Second}, {Call: "ibv_alloc_mw, type 2", Unknown: "not supported"}}
	r.Counted.Counters = known([]Counter{{Device: "mlx5_0", Name: "ports/1/hw_counters/local_ack_timeout_err", Before: 1, During: 7}})
	r.Deviations = Deviations{Runs: known([]Run{{Pair: "mlx5_0_mlx5_1", MTU: 4096, Passed: 250, Failed: 1}}), Cases: known([]Case{{State: "new", Case: "sends_before_rts_are_refused", Pairs: []string{"mlx5_0_mlx5_1"}, Reason: "accepted"}})}
	r.Parts = []Part{{Name: "granted", Took: time.Second, Limit: time.Minute}}
	explainAll(r, "not measured here")
	var got bytes.Buffer
	must.Do(t, r.write(&got))
	file := filepath.Join("testdata", golden)
	if *update {
		must.Do(t, os.WriteFile(file, got.Bytes(), 0o644))
	}
	if want := string(must.Get(os.ReadFile(file))(t)); got.String() != want {
		t.Errorf("the text is\n%s\nwant\n%s", got.String(), want)
	}
}

// Rule: bisection finds the largest value that is granted, and the reason why the next one is not.
func TestLargestIsFound(t *testing.T) {
	for _, limit := range []int{0, 1, 7, 96, 100, 127, 128} {
		n, refusal := largest(128, func(n int) error {
			if n > limit {
				return os.ErrInvalid
			}
			return nil
		})
		if n != limit || (refusal == nil) != (limit == 128) {
			t.Errorf("the largest of %d is %d (%v)", limit, n, refusal)
		}
	}
}
