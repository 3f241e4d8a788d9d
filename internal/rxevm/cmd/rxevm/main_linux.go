package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/rxevm"
)

func main() {
	code, err := command(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "rxevm:", err)
		if code == 0 {
			code = 1
		}
	}
	os.Exit(code)
}

// say prints to standard error: standard output belongs to the command.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "rxevm: "+format+"\n", args...) }

// command executes a command line and returns the exit code.
func command(args []string) (code int, err error) {
	if len(args) == 0 {
		return 2, errors.New("usage: rxevm check|prepare|emulator|run|with|exec ...; see go doc")
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	switch name, rest := args[0], args[1:]; name {
	case "check":
		return verdict(rxevm.Missing()), nil
	case "prepare":
		err := rxevm.Install(ctx, say)
		if err == nil {
			_, err = rxevm.Prepare(ctx, say)
		}
		return verdict(err), nil
	case "emulator":
		program, err := rxevm.Emulator(ctx)
		if err == nil {
			fmt.Println(program)
		}
		return verdict(err), nil
	case "run", "with":
		c, argv, err := flags(name, rest)
		if err != nil {
			return 2, err
		}
		if name == "run" {
			return run(ctx, c, argv)
		}
		return with(ctx, c, argv)
	case "exec":
		cancel() // signals go to the program
		return execute(rest)
	}
	return 2, fmt.Errorf("%q is no command: check, prepare, emulator, run, with, exec", args[0])
}

// impossible is the exit code of check, prepare and emulator where the machine or emulator is not
// available.
const impossible = 3

// verdict prints the reason why there is no machine on standard output, in one line, for scripts,
// and returns the exit code.
func verdict(err error) int {
	if err == nil {
		return 0
	}
	fmt.Println(strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, rxevm.ErrNotHere) {
		return impossible
	}
	return 1
}

// flags reads the flags of run and with; the rest is the command.
func flags(name string, args []string) (c rxevm.Config, argv []string, err error) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.IntVar(&c.CPUs, "cpus", 0, "processors of the machine")
	f.IntVar(&c.MemoryMB, "memory", 0, "memory of the machine in MB")
	f.IntVar(&c.NUMANodes, "numa", 0, "NUMA nodes of the machine")
	f.StringVar(&c.NVDIMM, "nvdimm", "", "file that the machine has as persistent memory, a multiple of 128 MiB")
	f.Func("share", "folder of this host that the machine sees, read-only", func(dir string) error {
		c.Shares = append(c.Shares, rxevm.Share{Path: dir})
		return nil
	})
	c.Log = os.Stderr
	if err := f.Parse(args); err != nil {
		return c, nil, err
	}
	if f.NArg() == 0 {
		return c, nil, fmt.Errorf("%s: no command", name)
	}
	return c, f.Args(), nil
}

// run runs a shell command in a new machine.
func run(ctx context.Context, c rxevm.Config, argv []string) (code int, err error) {
	here, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	c.Shares = append(c.Shares, rxevm.Share{Path: here, Writable: true})
	m, err := rxevm.Boot(ctx, c)
	if err != nil {
		return 1, err
	}
	err = m.Run(ctx, rxevm.Cmd{Argv: []string{"sh", "-c", strings.Join(argv, " ")}, Dir: here,
		Env: passed(os.Environ()), Stdout: os.Stdout, Stderr: os.Stderr})
	var exit *rxevm.ExitError
	if errors.As(err, &exit) {
		if code = exit.Code; err == error(exit) { //nolint:errorlint // joined with another it has more to say
			err = nil // the code is sufficient
		}
	}
	return code, errors.Join(err, closed(m))
}

// with runs a command of this host beside a new machine.
func with(ctx context.Context, c rxevm.Config, argv []string) (code int, err error) {
	if c.Shares, err = own(c.Shares); err != nil {
		return 1, err
	}
	m, err := rxevm.Boot(ctx, c)
	if err != nil {
		return 1, err
	}
	socket, stop, err := m.Serve()
	if err != nil {
		return 1, errors.Join(err, m.Close())
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), rxevm.SocketVar+"="+socket)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		stop()
		return 127, errors.Join(err, m.Close())
	}
	// The command receives a terminal's interrupt itself; a signal to this process alone is
	// passed on. In either case this process waits for the command.
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	err = cmd.Wait()
	stop()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code, err = exit.ExitCode(), nil
		if code < 0 {
			code = 1 // a signal
		}
	}
	return code, errors.Join(err, closed(m))
}

// closed closes the machine and prints the kernel's log if a kernel fault caused the error.
func closed(m *rxevm.Machine) error {
	err := m.Close()
	var kernel *rxevm.KernelError
	if errors.As(err, &kernel) {
		fmt.Fprintf(os.Stderr, "rxevm: the log of the machine's kernel:\n%s", kernel.Log)
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "rxevm: the log of the machine's kernel:\n%s", m.Log())
	}
	return err
}

// own adds the repository and the working folder, once each, to the machine's shares.
func own(shares []rxevm.Share) ([]rxevm.Share, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	root, err := rxevm.ModuleRoot()
	if err != nil {
		return nil, err
	}
	shares = append(shares, rxevm.Share{Path: root})
	if rel, err := filepath.Rel(root, here); err != nil || !filepath.IsLocal(rel) {
		shares = append(shares, rxevm.Share{Path: here})
	}
	return shares, nil
}
