package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// record is the result of one step.
type record struct {
	Step    string
	Began   time.Time
	Seconds float64
	// Processor is the processor time of the step's commands in seconds.
	Processor float64
	NotRun    string // the reason why the step was not run; empty if it was
	tally
}

func main() {
	file := flag.String("o", "", "file that records are appended to")
	flag.Parse()
	failed, err := command(*file, flag.Args(), os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

// command executes one command line. failed is the result of table.
func command(file string, args []string, out io.Writer) (failed bool, err error) {
	if file == "" || len(args) == 0 {
		return false, errors.New("usage: testsum -o FILE check|tests|names|fuzz|notrun|table ...; see its doc.go")
	}
	if args[0] == "table" {
		records, err := read(file)
		if err != nil {
			return false, err
		}
		return table(out, records), nil
	}
	if len(args) < 3 {
		return false, fmt.Errorf("%q has too few arguments: want at least a name and one more", args)
	}
	r := record{Step: args[1], Began: time.Now()}
	fmt.Fprintf(out, "\n=== %s\n", r.Step)
	switch rest := args[2:]; args[0] {
	case "check":
		err = check(&r, after(rest), out)
	case "tests", "names":
		err = tests(&r, after(rest), out, args[0] == "names")
	case "fuzz":
		err = fuzz(&r, rest, out)
	case "notrun":
		r.NotRun = rest[0]
		fmt.Fprintf(out, "not run: %s\n", r.NotRun)
	default:
		err = fmt.Errorf("%q is no command", args[0])
	}
	if err != nil {
		return false, err
	}
	r.Seconds, r.Processor = time.Since(r.Began).Seconds(), spent().Seconds()
	return false, write(file, &r)
}

// after removes the dashes before a command.
func after(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}

// childDelay is how long to wait for the output of processes that a command has left behind.
const childDelay = 10 * time.Second

func check(r *record, argv []string, out io.Writer) error {
	if len(argv) == 0 {
		return errors.New("check: no command")
	}
	var said bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout = io.MultiWriter(out, &said)
	cmd.Stderr = cmd.Stdout
	cmd.WaitDelay = childDelay
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		fmt.Fprintf(out, "FAIL: %v: %v\n", argv, err)
		r.fails(name{test: r.Step}, fmt.Sprintf("%s%v: %v\n", &said, argv, err))
		return nil
	}
	r.Passed++
	return nil
}

func tests(r *record, argv []string, out io.Writer, names bool) error {
	if len(argv) == 0 {
		return errors.New("tests: no command")
	}
	var said bytes.Buffer // output beside the events
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = io.MultiWriter(out, &said)
	cmd.WaitDelay = childDelay
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t, err := count(pipe, out, names)
	if err != nil {
		return errors.Join(err, cmd.Wait())
	}
	r.tally = t
	if err := cmd.Wait(); err != nil && r.Failed == 0 {
		fmt.Fprintf(out, "FAIL: %v: %v\n", argv, err)
		r.fails(name{test: r.Step}, fmt.Sprintf("%s%v: %v\n", &said, argv, err))
	}
	return nil
}

func write(file string, r *record) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(r), f.Close())
}

func read(file string) (records []record, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var r record
		if err := d.Decode(&r); err == io.EOF {
			return records, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		records = append(records, r)
	}
}
