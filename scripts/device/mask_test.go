package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: a report has no host name, user, home folder, hardware address, GUID or IP address.
func TestReportHasNoSecrets(t *testing.T) {
	secrets := []string{"gpu-17.cluster.example.com", "gpu-17", "alice", "/home/alice", "/srv/src/verbena", "192.0.2.77", "10.9.8.7", "2001:db8::5:1",
		"fe80::5054:ff:fe12:3456", "52:54:00:12:34:56", "00:00:10:87:fe:80:00:00:00:00:00:00:52:54:00:03:00:12:34:56", "5254:00ff:fe12:3456",
		"525400123456", "525400fffe123456", "fe80:0000:0000:0000:5254:00ff:fe12:3456"}
	all := strings.Join(secrets, " and ")
	r := &Report{Version: Version, Devices: []string{"rocex525400fffe123456", "mlx5_0"}}
	r.Place.Machine.Product = known(all)
	r.Place.System.Kernel = unknown[string]("%s", "open /home/alice/x: permission denied on gpu-17")
	r.Place.System.Kernel.Unknown = "" // a version is not masked
	r.Place.Process.Variables = []string{all}
	r.Place.Devices = []DevicePlace{{Name: "rocex525400fffe123456", GIDs: known([]GIDPlace{{NetDev: "enx525400123456", Address: all}})}}
	r.Place.Devices[0].Board = known(strings.Repeat("é", longest) + all)
	r.Timed.Calls = []Times{{Call: "ibv_reg_mr", Unknown: "at 10.9.8.7:4791, [2001:db8::5:1]:18515, fe80::5054:ff:fe12:3456%eth0: " + all}}
	r.Deviations.Cases = known([]Case{{Case: "x", Reason: all}})
	maskerOf("gpu-17.cluster.example.com", "alice", "/home/alice", "/srv/src/verbena").report(r)
	var j, text bytes.Buffer
	must.Do(t, r.writeJSON(&j))
	must.Do(t, r.write(&text))
	for _, s := range secrets {
		for form, b := range map[string]string{"JSON": j.String(), "text": text.String()} {
			if strings.Contains(strings.ToLower(b), s) {
				t.Errorf("the %s has %q", form, s)
			}
		}
	}
	if board := *r.Place.Devices[0].Board.Value; len(board) > longest+len(" ... and 00000 bytes more") || !strings.Contains(board, "bytes more") {
		t.Errorf("a long text has %d bytes, want %d and the number of the others", len(board), longest)
	}
	if !json.Valid(j.Bytes()) {
		t.Error("the JSON is not valid")
	}
}

// Rule: masking keeps text without secrets, and gives equal addresses equal names.
func TestMaskKeepsTheRest(t *testing.T) {
	m := maskerOf("gpu", "bob", "/root", "/srv/src/verbena")
	for in, want := range map[string]string{
		"libibverbs.so.1.14.50.0":                  "libibverbs.so.1.14.50.0",
		"firmware 20.31.1014, kernel 6.12.117":     "firmware 20.31.1014, kernel 6.12.117",
		"0000:08:00.0":                             "0000:08:00.0",
		"max_mr_size 0xffffffffffffffff":           "max_mr_size 0xffffffffffffffff",
		"12:34:56 took 1.5s":                       "12:34:56 took 1.5s",
		"the gpu of bob":                           "the gpu of bob", // names that are too short to be looked for
		"127.0.0.1, ::1, 0.0.0.0":                  "127.0.0.1, ::1, 0.0.0.0",
		"mlx5_0 rocep8s0f0 ens1f0np0":              "mlx5_0 rocep8s0f0 ens1f0np0",
		"5d2bf5e0a1b2c3d4e5f60718293a4b5c6d7e8f90": "5d2bf5e0a1b2c3d4e5f60718293a4b5c6d7e8f90",
		"std::string::npos":                        "std::string::npos",
		"/srv/src/verbena/runtime/conn.go:7":       "./runtime/conn.go:7",
	} {
		if got := m.text(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	const want = "IPv4 private #1:4791, IPv6 global #2, IPv4 private #1, IPv6 link-local #3"
	if got := m.text("10.0.0.1:4791, 2001:db8::1, ::ffff:10.0.0.1, fe80::1"); got != want {
		t.Errorf("addresses become %q, want %q", got, want)
	}
	var out bytes.Buffer
	must.Do(t, mask(strings.NewReader("a 10.0.0.1\nb 52:54:00:12:34:56\n"), &out))
	if got := out.String(); got != "a IPv4 private #1\nb HARDWARE-ADDRESS\n" {
		t.Errorf("the filter's output is %q", got)
	}
}
