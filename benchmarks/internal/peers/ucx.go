package peers

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

const (
	ucxProgram = "ucx_perftest"
	ucxPackage = "ucx-utils"
)

// ucxEnv makes UCX use TCP over loopback, and nothing else.
var ucxEnv = []string{"UCX_TLS=tcp", "UCX_NET_DEVICES=lo"}

// ucx is UCX with a test of ucx_perftest, n operations of size bytes on one connection. Latencies
// take two runs: the program prints one percentile.
func (s *session) ucx(test string, size, n int) *contender {
	latency := strings.HasSuffix(test, "_lat")
	args := []string{"-t", test, "-s", itoa(size), "-n", itoa(n), "-w", itoa(warmUp(n)), "-f", "-v"}
	percentiles := map[string]string{"": ""}
	note := strings.Join(append(append(ucxEnv[:len(ucxEnv):len(ucxEnv)], ucxProgram), args...), " ")
	if latency {
		percentiles = map[string]string{"50.0": suite.P50, "99.0": suite.P99}
		note += ", with -R 50 and with -R 99"
	}
	return s.contender("UCX "+test, note, func(ctx context.Context) (rounds.Values, error) {
		path, err := find(ucxProgram, ucxPackage)
		if err != nil {
			return nil, err
		}
		all := rounds.Values{}
		for rank, name := range percentiles {
			port, err := freePort()
			if err != nil {
				return nil, err
			}
			call := append([]string{path, "-p", itoa(port)}, args...)
			if latency {
				call = append(call, "-R", rank)
			}
			found, err := programs{
				server: []string{path, "-p", itoa(port)}, client: append(call, "127.0.0.1"), env: ucxEnv, port: port,
				read: func(printed string) (rounds.Values, error) { return readUCX(printed, rank, name) },
			}.run(ctx)
			if err != nil {
				return nil, err
			}
			for k, v := range found {
				all[k] = v
			}
		}
		return all, nil
	})
}

// The columns of ucx_perftest's CSV output (-v -f), from 0, of UCX 1.13 (src/tools/perf/perftest.c).
// The overall values are those of the whole run: latencies in microseconds, bandwidth in MiB/s, messages
// a second.
const (
	ucxRank         = 1
	ucxOverallTime  = 3
	ucxOverallBytes = 5
	ucxOverallRate  = 7
	ucxColumns      = 8
	ucxHeader       = "iterations,%s_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr"
	ucxDefaultRank  = "50.0"
	perMicro        = 1e3
	mebibyte        = 1 << 20
)

// readUCX parses the output of ucx_perftest: a header and one line. The percentile is named name; it is
// left out if name is empty. rank is its rank as the program prints it, empty for the default.
func readUCX(printed, rank, name string) (rounds.Values, error) {
	if rank == "" {
		rank = ucxDefaultRank
	}
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	if len(lines) != 2 || strings.TrimSpace(lines[0]) != fmt.Sprintf(ucxHeader, rank) {
		return nil, fmt.Errorf("not understood: %q", printed)
	}
	cells := strings.Split(lines[1], ",")
	if len(cells) != ucxColumns {
		return nil, fmt.Errorf("%d columns, want %d: %q", len(cells), ucxColumns, printed)
	}
	var v [ucxColumns]float64
	for i, cell := range cells {
		var err error
		if v[i], err = strconv.ParseFloat(strings.TrimSpace(cell), 64); err != nil || v[i] < 0 || math.IsInf(v[i], 0) || math.IsNaN(v[i]) {
			return nil, fmt.Errorf("no figure in column %d: %q", i+1, printed)
		}
	}
	if v[ucxOverallTime] == 0 || v[ucxOverallRate] == 0 {
		return nil, fmt.Errorf("nothing was measured: %q", printed)
	}
	found := rounds.Values{vMean: v[ucxOverallTime] * perMicro, vRate: v[ucxOverallRate], vBytes: v[ucxOverallBytes] * mebibyte}
	if name != "" {
		found[name] = v[ucxRank] * perMicro
	}
	return found, nil
}
