package peers

import (
	"maps"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

// Output of fi_pingpong of libfabric 1.17, as Debian 12 has it.
const (
	printedFabricTCP = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n8       2k      =2k      31k         3.19s      0.01     796.36       0.00\n"
	printedFabricUDP = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n8       500     =500     7.8k        0.04s      0.21      38.28       0.03\n"
	printedNoFabric  = "fi_getinfo(): util/pingpong.c:1489, ret=-61 (No data available)\n"
)

// Rule: a transfer's time is read in nanoseconds.
func TestReadFabric(t *testing.T) {
	for printed, want := range map[string]float64{printedFabricTCP: 796360, printedFabricUDP: 38280} {
		if got, err := readFabric(printed); err != nil || !maps.Equal(got, rounds.Values{vMean: want}) {
			t.Errorf("%q: %v, %v; want %v", printed, got, err, want)
		}
	}
}

// Rule: output that is not understood is an error that has the text.
func TestReadFabricRefuses(t *testing.T) {
	for _, printed := range []string{
		"", printedNoFabric, printedNoFabric + printedFabricTCP,
		strings.Replace(printedFabricTCP, "usec/xfer", "nsec/xfer", 1),
		strings.Replace(printedFabricTCP, "796.36", "inf", 1),
		strings.Replace(printedFabricTCP, "796.36", "0", 1),
		strings.Replace(printedFabricTCP, "796.36", "", 1),
		strings.Replace(printedFabricTCP, "\n8 ", "\n64 ", 1),
	} {
		got, err := readFabric(printed)
		if err == nil {
			t.Errorf("%q gave %v", printed, got)
		} else if first, _, _ := strings.Cut(printed, "\n"); !strings.Contains(err.Error(), first) {
			t.Errorf("%q: the error lacks the text: %v", printed, err)
		}
	}
}
