package peers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// The names of results besides those of package suite.
const (
	vPort        = "port"         // of a server
	vMallocs     = suite.Mallocs  // of a server: since it began
	vPeerCPU     = "peer_cpu_ns"  // of the server in a round
	vPeerMallocs = "peer_mallocs" // likewise
	vMean        = "mean_ns"      // of latencies
	vRate        = "per_s"
	vBytes       = "bytes_per_s"
)

// pair is two processes that speak the protocol of package side. Every answer of the server has its
// port, and its CPU time and allocations since it began; the client runs a load.
type pair struct {
	name   string
	server func() (*exec.Cmd, error)
	client func(port int) (*exec.Cmd, error)
	// warm is the number of operations before those that are measured, and ops of those.
	warm, ops int
}

// run runs both processes for one round. It blocks until both have ended.
func (p pair) run(ctx context.Context) (found rounds.Values, err error) {
	server, err := start(ctx, p.name+", the server", p.server)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	at, err := server.Round(ctx, nil)
	if err != nil {
		return nil, err
	}
	client, err := start(ctx, p.name+", the client", func() (*exec.Cmd, error) { return p.client(int(at[vPort])) })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if _, err := client.Round(ctx, rounds.Values{suite.Ops: float64(p.warm)}); err != nil {
		return nil, errors.Join(err, p.ask(ctx, server))
	}
	// To answer costs the server something: asking twice tells how much.
	var told [3]rounds.Values
	for i := range told {
		if i == len(told)-1 {
			if found, err = client.Round(ctx, rounds.Values{suite.Ops: float64(p.ops)}); err != nil {
				return nil, errors.Join(err, p.ask(ctx, server))
			}
		}
		if told[i], err = server.Round(ctx, nil); err != nil {
			return nil, err
		}
	}
	in := func(name string) float64 {
		answer, both := told[1][name]-told[0][name], told[2][name]-told[1][name]
		return max(both-answer, 0)
	}
	found[vPeerCPU], found[vPeerMallocs] = in(suite.CPU), in(vMallocs)
	return found, nil
}

// ask returns what the server reports when the client has failed: its own failure, or nothing.
func (pair) ask(ctx context.Context, server *side.Child) error {
	_, err := server.Round(ctx, nil)
	return err
}

// start starts one process, and waits until it is ready.
func start(ctx context.Context, name string, command func() (*exec.Cmd, error)) (*side.Child, error) {
	cmd, err := command()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	return side.Start(ctx, name, cmd)
}

// self returns a command that starts this program as a client or server; env is added to the
// environment.
func self(env []string, args ...string) (*exec.Cmd, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(own, append([]string{WorkerArg}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	return cmd, nil
}

func itoa(n int) string { return strconv.Itoa(n) }
