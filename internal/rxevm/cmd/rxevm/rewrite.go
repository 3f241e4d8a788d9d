package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// outFiles are the flags of a test binary that name a file it writes, outDirs those that name a
// folder (go help testflag); outDirVars are environment variables that name one.
var (
	outFiles = []string{"test.coverprofile", "test.cpuprofile", "test.memprofile", "test.blockprofile",
		"test.mutexprofile", "test.trace", "test.testlogfile"}
	outDirs    = []string{"test.outputdir", "test.gocoverdir"}
	outDirVars = []string{"GOCOVERDIR", "VERBENA_CONFORMANCE_OUT"}
)

// passedVars are the variables that are passed in besides VERBENA_*: they configure the program,
// not its system.
var passedVars = []string{"GOMAXPROCS", "GODEBUG", "GOTRACEBACK", "GOGC", "GOMEMLIMIT", "GOCOVERDIR"}

// passed returns the variables for a command in the machine: without those of this command and
// the names of this system's devices.
func passed(environ []string) (env []string) {
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		mine := strings.HasPrefix(name, "VERBENA_RXEVM") || name == "VERBENA_TEST_DEVICES"
		if !mine && (strings.HasPrefix(name, "VERBENA_") || slices.Contains(passedVars, name)) {
			env = append(env, kv)
		}
	}
	return env
}

// rewriter redirects a program's output files to a folder that the machine shares with the host,
// and copies them back afterwards.
type rewriter struct {
	here        string // the working folder, for relative names
	host, guest string // the shared folder, on the host and in the machine
	moves       []move
	err         error // the first
}

// move is an output of the program: from the shared folder to its destination.
type move struct {
	from, to string
	dir      bool
}

// arguments rewrites a test binary's arguments. Its flags end as in package flag: at "--" or at
// the first argument that is not a flag.
func (r *rewriter) arguments(args []string) []string {
	args = slices.Clone(args)
	// Files are relative to the output folder.
	base := r.here
	each(args, func(name, value string) string {
		if name == "test.outputdir" {
			base = r.absolute(r.here, value)
		}
		return value
	})
	return each(args, func(name, value string) string {
		switch {
		case value == "":
		case slices.Contains(outFiles, name):
			return r.file(r.absolute(base, value))
		case slices.Contains(outDirs, name):
			return r.dir(r.absolute(r.here, value))
		}
		return value
	})
}

// each calls f for the relevant flags with a value, in either form (-name=value, -name value),
// and substitutes f's result.
func each(args []string, f func(name, value string) string) []string {
	for i := 0; i < len(args); i++ {
		text, ok := strings.CutPrefix(args[i], "-")
		if !ok || text == "" || text == "-" {
			break
		}
		text = strings.TrimPrefix(text, "-")
		name, value, given := strings.Cut(text, "=")
		switch {
		case !slices.Contains(outFiles, name) && !slices.Contains(outDirs, name):
			// A separate value would look like the end of the flags; go test writes the other
			// form.
		case given:
			args[i] = "-" + name + "=" + f(name, value)
		case i+1 < len(args):
			i++
			args[i] = f(name, args[i])
		}
	}
	return args
}

// environment rewrites the variables that name an output folder.
func (r *rewriter) environment(env []string) []string {
	env = slices.Clone(env)
	for i, kv := range env {
		if name, value, _ := strings.Cut(kv, "="); slices.Contains(outDirVars, name) && value != "" {
			env[i] = name + "=" + r.dir(r.absolute(r.here, value))
		}
	}
	return env
}

func (r *rewriter) absolute(base, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(base, name)
}

// file returns the machine's name for an output file.
func (r *rewriter) file(to string) string {
	name := r.name()
	r.moves = append(r.moves, move{from: filepath.Join(r.host, name), to: to})
	return r.guest + "/" + name
}

// dir returns the machine's name for an output folder, and makes it.
func (r *rewriter) dir(to string) string {
	name := r.name()
	from := filepath.Join(r.host, name)
	if err := os.Mkdir(from, 0o755); err != nil && r.err == nil {
		r.err = err
	}
	r.moves = append(r.moves, move{from: from, to: to, dir: true})
	return r.guest + "/" + name
}

func (r *rewriter) name() string { return "out-" + strconv.Itoa(len(r.moves)) }

// bringBack copies the outputs to their destinations. It ignores a file that was not written.
func (r *rewriter) bringBack() (err error) {
	for _, m := range r.moves {
		if !m.dir {
			if _, serr := os.Stat(m.from); serr == nil {
				err = errors.Join(err, copyFile(m.from, m.to))
			}
			continue
		}
		err = errors.Join(err, filepath.WalkDir(m.from, func(from string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(m.from, from)
			if err != nil {
				return err
			}
			to := filepath.Join(m.to, rel)
			if d.IsDir() {
				return os.MkdirAll(to, 0o755)
			}
			return copyFile(from, to)
		}))
	}
	return err
}

// copyFile copies a file with its mode.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
