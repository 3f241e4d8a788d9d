package peers

import (
	"maps"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// Output of ucx_perftest of UCX 1.13.1, as Debian 12 has it, with UCX_TLS=tcp over loopback.
const (
	printedMedian  = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n 500,4.213,4.192,4.192,1.82,1.82,238557,238557\n"
	printedP99     = "iterations,99.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n 500,4715.588,476.311,476.311,0.02,0.02,2099,2099\n"
	printedPut     = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n5000,0.531,2.125,2.125,3.59,3.59,470636,470636\n"
	printedTag     = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n 300,2.885,67.333,67.333,928.22,928.22,14851,14851\n"
	printedRefused = "[1795425574.272800] [vm:27468:0]        perftest.c:405  UCX  ERROR client failed. connect() failed: Connection refused\n"
	printedNoLane  = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n" +
		"[1795424672.114274] [vm:17758:0]     ucp_context.c:1014 UCX  WARN  transport 'nonsense' is not available, please use one or more of: cma, mm, posix, self, shm, sm, sysv, tcp\n"
)

// Rule: the figures are those of the whole run, in our units, and the percentile that was asked for.
func TestReadUCX(t *testing.T) {
	for _, c := range []struct {
		printed, rank, name string
		want                rounds.Values
	}{
		{printedMedian, "50.0", suite.P50, rounds.Values{suite.P50: 4213, vMean: 4192, vRate: 238557, vBytes: 1.82 * mebibyte}},
		{printedP99, "99.0", suite.P99, rounds.Values{suite.P99: 4715588, vMean: 476311, vRate: 2099, vBytes: 0.02 * mebibyte}},
		{printedPut, "", "", rounds.Values{vMean: 2125, vRate: 470636, vBytes: 3.59 * mebibyte}},
		{printedTag, "", "", rounds.Values{vMean: 67333, vRate: 14851, vBytes: 928.22 * mebibyte}},
	} {
		if got, err := readUCX(c.printed, c.rank, c.name); err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%q: %v, %v; want %v", c.printed, got, err, c.want)
		}
	}
}

// Rule: output that is not understood is an error that has the text.
func TestReadUCXRefuses(t *testing.T) {
	for _, printed := range []string{
		"", printedRefused, printedNoLane,
		printedMedian + printedRefused, printedRefused + printedMedian,
		strings.Replace(printedMedian, "avg_bw", "bw", 1),
		strings.Replace(printedMedian, "4.192", "nan", 1),
		strings.Replace(printedMedian, "4.192", "-4.192", 1),
		strings.Replace(printedMedian, "4.213", "", 1),
		strings.Replace(printedMedian, ",238557\n", "\n", 1),
		strings.ReplaceAll(printedMedian, "238557", "0"),
	} {
		got, err := readUCX(printed, "50.0", suite.P50)
		if err == nil {
			t.Errorf("%q gave %v", printed, got)
		} else if first, _, _ := strings.Cut(printed, "\n"); !strings.Contains(err.Error(), first) {
			t.Errorf("%q: the error lacks the text: %v", printed, err)
		}
	}
	if got, err := readUCX(printedMedian, "99.0", suite.P99); err == nil {
		t.Errorf("a median for a p99: %v", got)
	}
}
