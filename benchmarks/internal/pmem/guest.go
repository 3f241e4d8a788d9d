package pmem

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/guest"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/internal/rxevm"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

//go:embed c/append.c
var source []byte

// memory is the persistent memory of the guest.
const memory = "/dev/dax0.0"

// prepare makes the memory and compiles the program in C. librpma binds no source address, and the two devices are in
// one name space: without the route it would use the server's device for both ends.
const prepare = `
ndctl create-namespace -f -e namespace0.0 -m devdax -M mem && test -c ` + memory + ` &&
tcc -Wall -Werror -o append append.c -lrpma &&
ip route add 10.77.0.2 dev r0 src 10.77.0.1 table 103 &&
ip rule add from 0.0.0.0/32 to 10.77.0.2 lookup 103 pref 9`

func newGuest(log io.Writer) guest.Guest {
	return guest.Guest{NVDIMM: rxevm.NVDIMMUnit, Files: map[string][]byte{"append.c": source}, Setup: prepare, Log: log}
}

// librpma returns the programs in C.
func librpma(l load) func(p guest.Place, port int) guest.Pair {
	return func(p guest.Place, port int) guest.Pair {
		program, at := filepath.Join(p.Dir, "append"), strconv.Itoa(port)
		call := []string{program, l.mode, p.Own, p.Addr, at, strconv.FormatInt(l.gap.Microseconds(), 10), strconv.Itoa(l.ops)}
		for _, size := range sizes {
			call = append(call, strconv.Itoa(size))
		}
		return guest.Pair{Server: []string{program, "serve", memory, p.Addr, at}, Call: call, Read: readTimes}
	}
}

// readTimes reads the output of the program in C: a line "SIZE NANOSECONDS" for each append.
func readTimes(printed string) (rounds.Values, error) {
	took := map[int]suite.Samples{}
	for line := range strings.Lines(printed) {
		var size, ns int
		if _, err := fmt.Sscan(line, &size, &ns); err != nil {
			return nil, fmt.Errorf("%q is no time of a size: %w", line, err)
		}
		took[size] = append(took[size], time.Duration(ns))
	}
	found := rounds.Values{}
	for _, size := range sizes {
		if len(took[size]) == 0 {
			return nil, fmt.Errorf("no times of %d bytes", size)
		}
		reportSized(took[size], size, found)
	}
	return found, nil
}

// guestArg selects the worker that is one end in the guest: the first argument after WorkerArg.
const guestArg = "end"

// ours returns this program as both ends.
func ours(name string, l load) func(p guest.Place, port int) guest.Pair {
	return func(p guest.Place, port int) guest.Pair {
		with := func(device string, more ...string) []string {
			return append([]string{p.Self, WorkerArg, guestArg, "-way", name, "-device", "ibv:" + device}, more...)
		}
		at := p.Addr + ":" + strconv.Itoa(port)
		return guest.Pair{
			Server: with(p.There, "-file", memory, "-listen", at), Call: with(p.Here, "-mode", l.mode, "-gap", l.gap.String(), "-ops", strconv.Itoa(l.ops), "-dial", at),
			Read: func(printed string) (rounds.Values, error) { return rounds.Parse(strings.TrimSpace(printed)) },
		}
	}
}

// spinning is the number of empty passes before the reactor sleeps: practically never.
const spinning = 1 << 20

// guestWorker is one end. The end that appends prints its results.
func guestWorker(args []string) int {
	if err := guestEnd(args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func guestEnd(args []string, out io.Writer) (err error) {
	f := flag.NewFlagSet(guestArg, flag.ContinueOnError)
	name := f.String("way", "", byRPMA+", "+byPlog)
	var l load
	f.StringVar(&l.mode, "mode", waiting, polling+", "+waiting)
	f.DurationVar(&l.gap, "gap", 0, "the time between appends")
	f.IntVar(&l.ops, "ops", 1, "operations with each size")
	device := f.String("device", "", "a device, as Config.Device has it")
	file := f.String("file", "", "the memory of the end that listens")
	listen := f.String("listen", "", "an address to listen at")
	dial := f.String("dial", "", "the address of a listener")
	if err := f.Parse(args); err != nil {
		return err
	}
	w, ok := ways[*name]
	if !ok {
		return fmt.Errorf("there is no way %q", *name)
	}
	cfg := verbena.Config{Device: *device, ConnectTimeout: guest.PairTime / 4}
	if l.mode == polling { // with one thread, like the program in C
		goruntime.GOMAXPROCS(1)
		cfg.Spin = spinning
	}
	ctx, cancel := context.WithTimeout(context.Background(), guest.PairTime)
	defer cancel()
	rt, err := verbena.Open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	if *listen != "" {
		return w.serve(ctx, rt, *file, *listen, func(string) { fmt.Fprintln(out, guest.ReadyWord) })
	}
	found := rounds.Values{}
	if err := w.dialAndTime(ctx, rt, *dial, l, found); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, found)
	return err
}
