package overhead

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// pairing is a pair of programs that measure something between the two devices of the guest: the
// same program twice, first the server.
type pairing struct {
	// port is the TCP port on which the programs meet, which listening checks; 0 where the server
	// prints that it is ready.
	port         int
	server, call []string
	// read parses the figure from the client's output.
	read func(printed string) (rounds.Values, error)
}

// place describes the guest for the programs.
type place struct {
	here, there       string // devices: of the client and of the server
	own, addr         string // addresses: of here and of there
	gidHere, gidThere string // indices of the devices' addresses
	self              string // this program
}

// The columns of the output, from 0.
const (
	columnMsgRate = 4 // perftest's bandwidth: "#bytes #iterations BW peak BW average MsgRate"
	columnTypical = 4 // perftest's latency: "#bytes #iterations t_min t_max t_typical ..."
	columnPerXfer = 6 // fi_pingpong: "bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec"
)

// perftest returns a program of the perftest family. The columns are those of perftest 25.01
// (src/perftest_parameters.h: RESULT_FMT, RESULT_FMT_LAT).
func perftest(p place, port int, program string, column int, value string, unit float64, args ...string) pairing {
	with := func(device, gid string) []string {
		return append([]string{program, "-d", device, "-x", gid, "-p", itoa(port), "-s", itoa(bed.Word), "-F"}, args...)
	}
	return pairing{port, with(p.there, p.gidThere), append(with(p.here, p.gidHere), p.addr), func(printed string) (rounds.Values, error) {
		return figureIn(printed, column, value, unit)
	}}
}

// fabric returns libfabric's ping-pong over verbs.
func fabric(p place, port, n int) pairing {
	with := func(device, source string) []string { // a source: there is more than one device
		return []string{"fi_pingpong", "-p", "verbs", "-e", "msg", "-d", device, "-s", source, "-S", itoa(bed.Word), "-I", itoa(n)}
	}
	return pairing{port, append(with(p.there, p.addr), "-B", itoa(port)), append(with(p.here, p.own), "-P", itoa(port), p.addr),
		func(printed string) (rounds.Values, error) { return figureIn(printed, columnPerXfer, vMean, perMicro) }}
}

// errClock means that a perftest program could not determine its processor's speed: it compares
// cycles with the clock, sometimes takes them for noise under emulation, and divides by zero.
var errClock = errors.New("the program could not calibrate its clock")

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
func self(p place, port int, what string, n int) pairing {
	with := func(device string, more ...string) []string {
		return append([]string{p.self, WorkerArg, guestArg, "-what", what, "-device", "ibv:" + device, "-ops", itoa(n)}, more...)
	}
	at := p.addr + ":" + itoa(port)
	return pairing{0, with(p.there, "-listen", at), with(p.here, "-dial", at), func(printed string) (rounds.Values, error) {
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
