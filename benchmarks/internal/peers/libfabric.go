package peers

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

const (
	fabricProgram = "fi_pingpong"
	fabricPackage = "libfabric-bin"
)

// The providers of libfabric that work over loopback, for reliable endpoints. There is no
// "udp;ofi_rxm": ofi_rxm takes connected endpoints below it, and ofi_rxd is what makes datagrams
// reliable.
const (
	fabricTCP = "tcp"
	fabricUDP = "udp;ofi_rxd"
)

// fabric is libfabric's ping-pong with a provider: n exchanges of 8 bytes.
func (s *session) fabric(provider string, n int) *contender {
	args := []string{"-p", provider, "-e", "rdm", "-S", itoa(bed.Word), "-I", itoa(n)}
	return s.contender("libfabric "+provider, strings.Join(append([]string{fabricProgram}, args...), " "), func(ctx context.Context) (rounds.Values, error) {
		path, err := find(fabricProgram, fabricPackage)
		if err != nil {
			return nil, err
		}
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		with := func(more ...string) []string { return slices.Concat([]string{path}, args, more) }
		return programs{
			server: with("-B", itoa(port)), client: with("-P", itoa(port), "127.0.0.1"), port: port, read: readFabric,
		}.run(ctx)
	})
}

// The output of fi_pingpong of libfabric 1.17 (util/pingpong.c, show_perf): a header and a line for the
// size. A transfer is half an exchange.
const (
	fabricHeader  = "bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec"
	columnPerXfer = 6
)

// readFabric parses the output of fi_pingpong with one size.
func readFabric(printed string) (rounds.Values, error) {
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	if len(lines) != 2 || strings.Join(strings.Fields(lines[0]), " ") != fabricHeader {
		return nil, fmt.Errorf("not understood: %q", printed)
	}
	f := strings.Fields(lines[1])
	if len(f) != len(strings.Fields(fabricHeader)) || f[0] != itoa(bed.Word) {
		return nil, fmt.Errorf("no line for messages of %d bytes: %q", bed.Word, printed)
	}
	v, err := strconv.ParseFloat(f[columnPerXfer], 64)
	if err != nil || v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return nil, fmt.Errorf("no figure in column %d: %q", columnPerXfer+1, printed)
	}
	return rounds.Values{vMean: v * perMicro}, nil
}
