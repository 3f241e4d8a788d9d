package peers

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"

	"github.com/verbena-rdma/verbena/benchmarks/internal/cpu"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// serveArg selects the server: the first argument after WorkerArg.
const serveArg = "serve"

// loopback is the address of all servers.
const loopback = "127.0.0.1"

// service is what a server does, on goroutines of its own, until it is closed.
type service struct {
	port  int
	close func() error
	fault fault
}

// fault is the first failure of a service. Its goroutines set it, and the goroutine that answers the
// parent reads it.
type fault struct {
	mu  sync.Mutex // guards err
	err error
}

// report keeps the first error; nil, and the end of a service that is being closed, are none.
func (f *fault) report(err error) {
	if err == nil || errors.Is(err, net.ErrClosed) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *fault) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// services maps the names with which servers are started to what they do.
var services = map[string]func(h shape) (*service, error){
	"target":   serveTarget,
	"echo":     serveEcho,
	"receive":  serveReceive,
	"accept":   serveAccept,
	"tcp-echo": serveTCPEcho,
	"tcp-sink": serveTCPSink,
	"udp-echo": serveUDPEcho,
}

// serve runs this program as a server, with the arguments after serveArg. It blocks until its input
// ends, and returns the exit code.
func serve(args []string) int {
	if err := serveUntilEnd(args, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", WorkerArg, serveArg, err)
		return 1
	}
	return 0
}

func serveUntilEnd(args []string, in io.Reader, out io.Writer) (err error) {
	var h shape
	f := flag.NewFlagSet(serveArg, flag.ContinueOnError)
	name := f.String("service", "", strings.Join(slices.Sorted(maps.Keys(services)), ", "))
	h.flags(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	begin := services[*name]
	if begin == nil {
		return side.Cannot(out, fmt.Errorf("there is no service %q", *name))
	}
	if err := h.validate(); err != nil {
		return side.Cannot(out, err)
	}
	s, err := begin(h)
	if err != nil {
		return side.Cannot(out, err)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return side.Serve(in, out, func(rounds.Values) (rounds.Values, error) {
		if err := s.fault.get(); err != nil {
			return nil, err
		}
		used, err := cpu.Used()
		if err != nil {
			return nil, err
		}
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return rounds.Values{vPort: float64(s.port), suite.CPU: float64(used), vMallocs: float64(m.Mallocs)}, nil
	})
}
