package peers

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"slices"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/reactor"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// WorkerArg is the first argument of this program where it is one of two processes: for main, which
// passes the rest to Worker.
const WorkerArg = "peers-worker"

// Worker runs this program as a client, or as a server, with the arguments after WorkerArg. It blocks
// until its input ends, and returns the exit code. One goroutine may call it.
func Worker(args []string) int {
	if len(args) > 0 && args[0] == serveArg {
		return serve(args[1:])
	}
	return client().Main(args)
}

// shape is what both processes of a pair are told.
type shape struct {
	runtime string // a name of configs, for ours
	// size is that of an operation in bytes, list the number started together, and depth the number
	// outstanding.
	size, list, depth int
}

// The names of configs.
const (
	zeroConfig    = "default"
	latencyConfig = "latency"
	pollingConfig = "polling"
	quietConfig   = "quiet"
)

// spinning is the number of empty passes before a reactor sleeps: practically never.
const spinning = 1 << 20

// configs are the configurations of ours.
var configs = map[string]verbena.Config{
	zeroConfig:    {},
	latencyConfig: {Policy: reactor.PolicyLatency},
	// With one processor for Go, each process polls with one thread.
	pollingConfig: {Spin: spinning},
	quietConfig:   {NoCallerDriving: true, Spin: -1},
	smallConfig:   {Conn: verbena.Options{SendDepth: 16, RecvCredits: 4, MessageSize: 256}},
}

// environments are added to the environment of both processes.
var environments = map[string][]string{
	// The loop takes a processor; with one there would be no such policy.
	latencyConfig: {"GOMAXPROCS=2"},
	pollingConfig: {"GOMAXPROCS=1"},
}

func (h *shape) flags(f *flag.FlagSet) {
	f.StringVar(&h.runtime, "runtime", zeroConfig, "a configuration of ours")
	f.IntVar(&h.size, "size", 1, "bytes of an operation")
	f.IntVar(&h.list, "list", 1, "operations started together")
	f.IntVar(&h.depth, "depth", 1, "outstanding operations")
}

// args returns the arguments from which flags reads h.
func (h shape) args() []string {
	return []string{"-runtime", h.runtime, "-size", itoa(h.size), "-list", itoa(h.list), "-depth", itoa(h.depth)}
}

func (h shape) validate() error {
	if _, ok := configs[h.runtime]; !ok || h.size < 1 || h.list < 1 || h.depth < h.list || h.depth%h.list != 0 {
		return fmt.Errorf("not possible: %q", h.args())
	}
	return nil
}

// config returns the configuration of ours: the device that needs no installation, whatever the
// environment selects.
func (h shape) config() verbena.Config {
	c := configs[h.runtime]
	c.Device = "soft:soft0"
	return c
}

// loads maps the names with which clients are started to the loads. to is the server's address.
var loads = map[string]func(to string, h shape) (suite.Load, error){
	"writes":      newWrites,
	"messages":    newMessages,
	"stream":      newStream,
	"sends":       newSends,
	"connect":     newConnecting,
	"tcp-pings":   newTCPPings,
	"tcp-stream":  newTCPStream,
	"udp-polling": newUDPPolling,
}

func client() suite.Worker {
	to, h := "", shape{}
	return suite.Worker{
		Arg: WorkerArg, Loads: slices.Sorted(maps.Keys(loads)),
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&to, "to", "", "the server's address")
			h.flags(f)
		},
		New: func(name string) (suite.Load, error) {
			begin := loads[name]
			if begin == nil {
				return nil, fmt.Errorf("there is no load %q", name)
			}
			if err := h.validate(); err != nil {
				return nil, err
			}
			return begin(to, h)
		},
	}
}

// own is a contender whose processes are both this program: a load beside a service, n operations in a
// round.
func (s *session) own(name, load, service string, h shape, n int) *contender {
	h.size, h.list, h.depth = max(h.size, 1), max(h.list, 1), max(h.depth, h.list, 1)
	if h.runtime == "" {
		h.runtime = zeroConfig
	}
	env := environments[h.runtime]
	return s.contender(name, "", func(ctx context.Context) (rounds.Values, error) {
		return pair{
			name: name, warm: warmUp(n), ops: n,
			server: func() (*exec.Cmd, error) {
				return self(env, append([]string{serveArg, "-service", service}, h.args()...)...)
			},
			client: func(port int) (*exec.Cmd, error) {
				return self(env, append([]string{"-load", load, "-to", fmt.Sprintf("%s:%d", loopback, port)}, h.args()...)...)
			},
		}.run(ctx)
	})
}
