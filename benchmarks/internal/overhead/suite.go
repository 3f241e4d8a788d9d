package overhead

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// suite is one run of the command. Its methods are for one goroutine.
type suite struct {
	ops    int
	rounds int
	only   *regexp.Regexp
	json   string // where the rows go besides; empty for nowhere
	list   bool   // the figures' names alone
	// profiles is a folder for profiles of our workers; empty for none.
	profiles string

	libs    nulldev.Paths // once they are built
	dir     string        // for what is compiled, once it is needed
	program string        // the loop in C, once it is compiled
	guest   *guest        // once it is booted
	noGuest error         // why it cannot be: it is tried once
	stderr  io.Writer
}

// trials are all of them, in the order of the table.
func (s *suite) trials() []trial {
	return slices.Concat(s.trialsOnNull(), []trial{s.idlers()}, s.trialsOnSoft(), s.trialsInGuest())
}

// wanted tells whether a figure was asked for.
func (s *suite) wanted(figure string) bool { return s.only == nil || s.only.MatchString(figure) }

// run measures what is wanted and writes the rows. What could not be measured is a row
// and no error.
func (s *suite) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	s.stderr = stderr
	defer func() { err = errors.Join(err, s.cleanUp()) }()
	var all []report.Row
	for _, t := range s.trials() {
		wanted := slices.IndexFunc(t.rows, func(r row) bool { return s.wanted(r.figure) })
		switch {
		case wanted < 0:
			continue
		case s.list:
			for _, r := range t.rows {
				if s.wanted(r.figure) {
					fmt.Fprintln(stdout, r.figure)
				}
			}
			continue
		}
		fmt.Fprintf(stderr, "%s ...\n", t.rows[wanted].figure)
		all = append(all, t.run(ctx, s.rounds, s.wanted)...)
		if ctx.Err() != nil {
			break
		}
	}
	if s.list {
		return nil
	}
	if len(all) == 0 {
		return fmt.Errorf("no figure matches %q (-list prints them)", s.only)
	}
	if s.json != "" {
		err = report.JSONFile(s.json, all)
	}
	return errors.Join(err, report.Table(stdout, all), ctx.Err())
}

// nullDevice builds the null device's libraries, once.
func (s *suite) nullDevice() (nulldev.Paths, error) {
	var err error
	if s.libs == (nulldev.Paths{}) {
		s.libs, err = nulldev.Build()
	}
	return s.libs, err
}

// loopInC compiles the loop in C, once.
func (s *suite) loopInC(ctx context.Context) (string, error) {
	if s.program != "" {
		return s.program, nil
	}
	libs, err := s.nullDevice()
	if err != nil {
		return "", err
	}
	dir, err := s.scratch()
	if err != nil {
		return "", err
	}
	s.program, err = buildLoop(ctx, dir, libs)
	return s.program, err
}

// scratch is a folder of this run's own.
func (s *suite) scratch() (string, error) {
	var err error
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "verbena-overhead-"); err == nil {
			s.dir, err = filepath.Abs(s.dir)
		}
	}
	return s.dir, err
}

// machine boots the guest, once.
func (s *suite) machine(ctx context.Context) (*guest, error) {
	if s.guest == nil && s.noGuest == nil {
		var dir string
		if dir, s.noGuest = s.scratch(); s.noGuest == nil {
			s.guest, s.noGuest = boot(ctx, dir, s.stderr)
		}
	}
	return s.guest, s.noGuest
}

func (s *suite) cleanUp() (err error) {
	if s.guest != nil {
		err = s.guest.Close()
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
