package peers

import (
	"context"
	"os"
	"regexp"
)

// session is the state shared by the trials of one run of the command. One goroutine uses it.
type session struct {
	ops  int
	with *regexp.Regexp // selects contenders

	dir   string // for compiled programs, made when needed
	gso   string // the floor of bandwidth, once compiled
	noGSO error  // why it cannot be compiled: tried once
}

// part returns a divisor's share of the operations of a round, at least one.
func (s *session) part(by int) int { return max(1, s.ops/by) }

// gsoProgram compiles the floor of bandwidth, once.
func (s *session) gsoProgram(ctx context.Context) (string, error) {
	if s.gso == "" && s.noGSO == nil {
		if s.dir == "" {
			s.dir, s.noGSO = os.MkdirTemp("", "verbena-peers-")
		}
		if s.noGSO == nil {
			s.gso, s.noGSO = buildGSO(ctx, s.dir)
		}
	}
	return s.gso, s.noGSO
}

func (s *session) cleanUp() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}
