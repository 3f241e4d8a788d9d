package overhead

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/verbena-rdma/verbena/benchmarks/internal/guest"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// session is the state shared by the trials of one run of the command. One goroutine uses it.
type session struct {
	ops int
	// profiles is a folder for profiles of our workers; empty for none.
	profiles string

	dir     string // for compiled programs, made when needed
	program string // the loop in C, once compiled
	guest   guest.Guest
}

// loopInC compiles the loop in C, once.
func (s *session) loopInC(ctx context.Context) (string, error) {
	if s.program != "" {
		return s.program, nil
	}
	libs, err := nulldev.Build()
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

// scratch returns a folder of this run.
func (s *session) scratch() (string, error) {
	var err error
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "verbena-overhead-"); err == nil {
			s.dir, err = filepath.Abs(s.dir)
		}
	}
	return s.dir, err
}

func (s *session) cleanUp() error {
	err := s.guest.Close()
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
