package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	if err := command(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "device:", err)
		os.Exit(1)
	}
}

// command executes a command line.
func command(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 1 && args[0] == "mask" {
		return mask(in, out)
	}
	const (
		manyConns = 1000
		partLimit = 2 * time.Minute
	)
	b := &bench{sys: "/", grace: leftBehind, mask: newMasker()}
	var from, asJSON, asText string
	f := flag.NewFlagSet("device", flag.ContinueOnError)
	f.StringVar(&from, "from", "", "file with a report as JSON, in place of a device")
	f.StringVar(&asJSON, "json", "", "file for the report as JSON; -: standard output")
	f.StringVar(&asText, "text", "", "file for the report as text; -: standard output")
	f.StringVar(&b.cases, "conformance", "", "folder of reports of the conformance suite")
	f.IntVar(&b.conns, "conns", manyConns, "connections that are dialed at once")
	f.DurationVar(&b.limit, "limit", partLimit, "longest time of each part")
	f.StringVar(&b.revision, "revision", "", "revision of the repository")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 && from == "" || f.NArg() != 0 && from != "" || b.conns < 1 || b.limit <= 0 {
		return errors.New("usage: device [flags] DEV or DEV,DEV; device -from FILE [flags]; device mask; see go doc")
	}
	r, err := b.get(f.Arg(0), from)
	if err != nil {
		return err
	}
	if asJSON == "" && asText == "" {
		asText = "-"
	}
	return errors.Join(to(asJSON, out, r.writeJSON), to(asText, out, r.write))
}

// get makes the report of the devices, or reads it from a file and adds the deviations.
func (b *bench) get(devices, from string) (r *Report, err error) {
	if from == "" {
		if b.ends, err = targets(devices); err != nil {
			return nil, err
		}
		r = b.report()
	} else if r, err = readReport(from); err != nil {
		return nil, err
	} else if b.cases != "" {
		r.Deviations = deviations(b.cases)
	}
	b.mask.report(r)
	return r, nil
}

// readReport reads a report of this Version.
func readReport(file string) (*Report, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.Version != Version {
		return nil, fmt.Errorf("%s is a report of version %d, this program's is %d", file, r.Version, Version)
	}
	return r, nil
}

func (r *Report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// to calls write with the named file: none if the name is empty, out if it is "-".
func to(name string, out io.Writer, write func(io.Writer) error) error {
	switch name {
	case "":
		return nil
	case "-":
		return write(out)
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// mask copies in to out without secrets.
func mask(in io.Reader, out io.Writer) error {
	m := newMasker()
	const longest = 16 << 20 // of a line
	s := bufio.NewScanner(in)
	s.Buffer(nil, longest)
	for s.Scan() {
		if _, err := fmt.Fprintln(out, m.text(s.Text())); err != nil {
			return err
		}
	}
	return s.Err()
}
