package overhead

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/guest"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// The columns of the output, from 0.
const (
	columnMsgRate = 4 // perftest's bandwidth: "#bytes #iterations BW peak BW average MsgRate"
	columnTypical = 4 // perftest's latency: "#bytes #iterations t_min t_max t_typical ..."
	columnPerXfer = 6 // fi_pingpong: "bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec"
)

// perftest returns a program of the perftest family. The columns are those of perftest 25.01
// (src/perftest_parameters.h: RESULT_FMT, RESULT_FMT_LAT).
func perftest(p guest.Place, port int, program string, column int, value string, unit float64, args ...string) guest.Pair {
	with := func(device, gid string) []string {
		return append([]string{program, "-d", device, "-x", gid, "-p", itoa(port), "-s", itoa(bed.Word), "-F"}, args...)
	}
	return guest.Pair{Port: port, Server: with(p.There, p.GIDThere), Call: append(with(p.Here, p.GIDHere), p.Addr), Read: func(printed string) (rounds.Values, error) {
		return figureIn(printed, column, value, unit)
	}}
}

// fabric returns libfabric's ping-pong over verbs.
func fabric(p guest.Place, port, n int) guest.Pair {
	with := func(device, source string) []string { // a source: there is more than one device
		return []string{"fi_pingpong", "-p", "verbs", "-e", "msg", "-d", device, "-s", source, "-S", itoa(bed.Word), "-I", itoa(n)}
	}
	return guest.Pair{Port: port, Server: append(with(p.There, p.Addr), "-B", itoa(port)), Call: append(with(p.Here, p.Own), "-P", itoa(port), p.Addr),
		Read: func(printed string) (rounds.Values, error) { return figureIn(printed, columnPerXfer, vMean, perMicro) }}
}

// errClock means that a perftest program could not determine its processor's speed: it compares
// cycles with the clock, sometimes takes them for noise under emulation, and divides by zero.
// Three of some 280 runs had.
var errClock = fmt.Errorf("the program could not calibrate its clock: %w", guest.ErrAgain)

// figureIn finds the line of a table whose first column is the size of a message here, and
// returns another column of it, in our unit.
func figureIn(printed string, column int, value string, unit float64) (rounds.Values, error) {
	for line := range strings.Lines(printed) {
		f := strings.Fields(line)
		if len(f) <= column || f[0] != itoa(bed.Word) {
			continue
		}
		v, err := strconv.ParseFloat(f[column], 64)
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), errClock)
		}
		if err != nil || v <= 0 {
			return nil, fmt.Errorf("%q has no figure in column %d", strings.TrimSpace(line), column+1)
		}
		return rounds.Values{value: v * unit}, nil
	}
	return nil, fmt.Errorf("no line for messages of %d bytes in %q", bed.Word, printed)
}

func itoa(n int) string { return strconv.Itoa(n) }

// self runs this program twice, as the two ends of a conversation.
func self(p guest.Place, port int, what string, n int) guest.Pair {
	with := func(device string, more ...string) []string {
		return append([]string{p.Self, WorkerArg, guestArg, "-what", what, "-device", "ibv:" + device, "-ops", itoa(n)}, more...)
	}
	at := p.Addr + ":" + itoa(port)
	return guest.Pair{Server: with(p.There, "-listen", at), Call: with(p.Here, "-dial", at), Read: func(printed string) (rounds.Values, error) {
		v, err := rounds.Parse(strings.TrimSpace(printed))
		if err != nil {
			return nil, err
		}
		v[vMean] = v[suite.Wall] / max(v[suite.Ops], 1)
		v[vRate] = v[suite.Ops] / max(v[suite.Wall], 1) * 1e3
		return v, nil
	}}
}

// The names of the results of programs in the guest, besides the percentiles: the mean, and
// operations a second in millions.
const (
	vMean = "mean_ns"
	vRate = "mops"
)
