package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

const (
	// ReadyWord is the line that a server without a TCP port prints when it is ready.
	ReadyWord = "ready"
	// PairTime bounds a pair of programs, including their start: under emulation a program takes a second to begin.
	PairTime = 2 * time.Minute
)

// ErrAgain means that a program has failed for a reason that is known, and may be run again. Read returns it.
var ErrAgain = errors.New("to be run again")

// tries is how often a pair is run, the first time included, if it fails with ErrAgain.
const tries = 3

// Guest is the machine with Soft-RoCE: booted once, for all measurements. The fields are set before the first use. One
// goroutine uses it.
type Guest struct {
	// NVDIMM is the size in bytes of the persistent memory, a multiple of rxevm.NVDIMMUnit; 0 for none.
	NVDIMM int64
	// Files are files of the folder of programs, by their names.
	Files map[string][]byte
	// Setup is a shell script that runs in the folder of programs after the boot; empty for none.
	Setup string
	// Log receives the messages of a boot.
	Log io.Writer

	dir    string // of the host, shared with the machine
	m      *machine
	failed error // why it cannot be booted: tried once
}

// Place describes the machine for programs.
type Place struct {
	Here, There       string // devices: of the client and of the server
	Own, Addr         string // addresses: of Here and of There
	GIDHere, GIDThere string // indices of the devices' addresses
	Dir               string // the folder of programs
	Self              string // this program
}

// Pair is a pair of programs that measure something between the two devices: first the server.
type Pair struct {
	// Port is the TCP port on which the programs meet: it is open when the server is ready. 0 where the server prints ReadyWord.
	Port         int
	Server, Call []string
	// Read parses the results from the output of Call.
	Read func(printed string) (rounds.Values, error)
}

// Side returns a pair of programs as a side of a trial, which starts them again in each round, as their users do. It does not
// block; the side boots the machine when it starts. Each pair has a port of its own, because an old one may linger.
func (g *Guest) Side(name string, programs func(p Place, port int) Pair) suite.Contender {
	return suite.Contender{
		Name:  name,
		Start: func(ctx context.Context) (suite.Runner, error) { return side{g, programs}, g.boot(ctx) },
		Args:  func(rounds.Round) rounds.Values { return nil },
	}
}

// Close powers the machine off, if it was booted. It blocks until then.
func (g *Guest) Close() (err error) {
	if g.m != nil {
		err = g.m.Close()
	}
	if g.dir != "" {
		err = errors.Join(err, os.RemoveAll(g.dir))
	}
	return err
}

// boot boots the machine, once.
func (g *Guest) boot(ctx context.Context) error {
	if g.m == nil && g.failed == nil {
		if g.dir, g.failed = os.MkdirTemp("", "verbena-guest-"); g.failed == nil {
			g.m, g.failed = boot(ctx, g)
		}
	}
	return g.failed
}

// side is a pair of programs as a side.
type side struct {
	g        *Guest
	programs func(p Place, port int) Pair
}

// Round implements suite.Runner.
func (s side) Round(ctx context.Context, _ rounds.Values) (found rounds.Values, err error) {
	m := s.g.m
	for range tries {
		m.port++
		if found, err = m.run(ctx, s.programs(m.place, m.port)); !errors.Is(err, ErrAgain) {
			break
		}
	}
	return found, err
}

// Close implements suite.Runner: the machine stays.
func (side) Close() error { return nil }
