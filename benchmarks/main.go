// Command benchmarks measures this library beside others, in one run on one machine:
//
//	go run ./benchmarks overhead        the cost of the way to the doorbell and back
//	go run ./benchmarks scale           the cost of ten thousand connections in one process
//	go run ./benchmarks messages        the cost of a message between goroutines and to an actor
//	go run ./benchmarks peers           two processes over loopback, beside TCP, UCX and libfabric
//	go run ./benchmarks pmem            appending to persistent memory, beside librpma and local writes
//	go run ./benchmarks overhead -h     the flags of a suite
//
// Each suite prints one table, and optionally writes its rows as JSON. The tests of this folder
// contain Go benchmarks of the stages of an operation. See README.md.
package main

import (
	"fmt"
	"os"

	"github.com/verbena-rdma/verbena/benchmarks/internal/messages"
	"github.com/verbena-rdma/verbena/benchmarks/internal/overhead"
	"github.com/verbena-rdma/verbena/benchmarks/internal/peers"
	"github.com/verbena-rdma/verbena/benchmarks/internal/pmem"
	"github.com/verbena-rdma/verbena/benchmarks/internal/scale"
)

const usage = `usage: benchmarks SUITE [flags]

  overhead   the cost of the way from a caller to the doorbell and back
  scale      what ten thousand connections in one process cost
  messages   what a message costs between two goroutines, and to an actor
  peers      two processes over loopback, beside TCP, UCX and libfabric
  pmem       appending to persistent memory, beside librpma and local writes

benchmarks SUITE -h prints the flags of a suite.
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	switch args := os.Args[2:]; os.Args[1] {
	case "overhead":
		os.Exit(overhead.Main(args, os.Stdout, os.Stderr))
	case overhead.WorkerArg:
		os.Exit(overhead.Worker(args))
	case "scale":
		os.Exit(scale.Main(args, os.Stdout, os.Stderr))
	case scale.WorkerArg:
		os.Exit(scale.Worker(args))
	case "messages":
		os.Exit(messages.Main(args, os.Stdout, os.Stderr))
	case messages.WorkerArg:
		os.Exit(messages.Worker(args))
	case "peers":
		os.Exit(peers.Main(args, os.Stdout, os.Stderr))
	case peers.WorkerArg:
		os.Exit(peers.Worker(args))
	case "pmem":
		os.Exit(pmem.Main(args, os.Stdout, os.Stderr))
	case pmem.WorkerArg:
		os.Exit(pmem.Worker(args))
	case "-h", "-help", "--help", "help":
		fmt.Print(usage)
	default:
		fmt.Fprintf(os.Stderr, "benchmarks: %q is no suite\n\n%s", os.Args[1], usage)
		os.Exit(2)
	}
}
