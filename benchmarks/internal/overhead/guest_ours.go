package overhead

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/benchmarks/internal/guest"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// guestArg selects the worker that is one end of a conversation: the first argument after
// WorkerArg.
const guestArg = "talk"

// guestWorker is one end of a conversation, on a device of libibverbs. The dialing end prints its
// results.
func guestWorker(args []string) int {
	if err := talk(args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, strings.Join(strings.Fields(err.Error()), " "))
		return 1
	}
	return 0
}

func talk(args []string, out io.Writer) (err error) {
	f := flag.NewFlagSet(guestArg, flag.ContinueOnError)
	what := f.String("what", "", strings.Join(slices.Sorted(maps.Keys(conversations)), ", "))
	device := f.String("device", "ibv:", "a device, as Config.Device has it")
	listen := f.String("listen", "", "an address to listen at")
	dial := f.String("dial", "", "the address of a listener")
	n := f.Int("ops", 1, "operations")
	if err := f.Parse(args); err != nil {
		return err
	}
	v, ok := conversations[*what]
	if !ok {
		return fmt.Errorf("there is no conversation %q", *what)
	}
	// One thread that polls, like the C programs: with two processors for each of two processes,
	// each goroutine that yields would wake a thread.
	goruntime.GOMAXPROCS(1)
	ctx, cancel := context.WithTimeout(context.Background(), guest.PairTime)
	defer cancel()
	rt, err := verbena.Open(verbena.Config{Device: *device, Spin: spinning, ConnectTimeout: guest.PairTime / 4})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	if *listen != "" {
		return v.listen(ctx, rt, *listen, *n, func(string) { fmt.Fprintln(out, guest.ReadyWord) })
	}
	found, err := v.dial(ctx, rt, *dial, *n)
	if err == nil {
		_, err = fmt.Fprintln(out, found)
	}
	return err
}
