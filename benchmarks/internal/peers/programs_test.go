package peers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
	"github.com/verbena-rdma/verbena/internal/must"
)

// foreignArg is the first argument of this test binary as a foreign program: a server, or a client.
const foreignArg = "peers-foreign"

// foreign is a server that accepts one client and waits for its end ("serve"), one that ends at once
// ("quit"), a client that prints a figure ("call"), or one that fails ("fail").
func foreign(what, port string) int {
	switch what {
	case "serve":
		ln, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			return 1
		}
		c, err := ln.Accept()
		if err != nil {
			return 1
		}
		_, err = io.Copy(io.Discard, c)
		if err != nil {
			return 1
		}
	case "call":
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return 1
		}
		fmt.Println("7 figures")
		if c.Close() != nil {
			return 1
		}
	case "fail":
		fmt.Println("there is no such test")
		return 3
	}
	return 0
}

// Rule: two programs meet, the client's output is parsed, and both have ended. If one fails, the error
// has what was printed, and the other has ended too.
func TestForeignPrograms(t *testing.T) {
	if _, err := os.Stat("/proc/net/tcp"); err != nil {
		t.Skipf("listeners are not visible here: %v", err)
	}
	own := must.Get(os.Executable())(t)
	for _, c := range []struct{ server, client, says string }{
		{"serve", "call", ""},
		{"serve", "fail", `it printed "there is no such test\n"`},
		{"quit", "call", "it ended before it listened"},
		{"serve", "mumble", "not understood"},
	} {
		port := must.Get(freePort())(t)
		what := c.client
		if what == "mumble" {
			what = "call"
		}
		found, err := programs{
			server: []string{own, foreignArg, c.server, itoa(port)}, client: []string{own, foreignArg, what, itoa(port)}, port: port,
			read: func(printed string) (rounds.Values, error) {
				if printed != "7 figures\n" || c.client == "mumble" {
					return nil, fmt.Errorf("not understood: %q", printed)
				}
				return rounds.Values{vRate: 7}, nil
			},
		}.run(t.Context())
		switch {
		case c.says == "" && (err != nil || found[vRate] != 7):
			t.Errorf("%s and %s: %v, %v", c.server, c.client, found, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s and %s: %v, %v; want %q", c.server, c.client, found, err, c.says)
		}
	}
}

// Rule: a missing program is an error that names its package.
func TestMissingProgram(t *testing.T) {
	if path, err := find("verbena-no-such-program", "its-package"); err == nil || !strings.Contains(err.Error(), "its-package") {
		t.Errorf("%q, %v", path, err)
	}
}

// Rule: only a socket in state LISTEN listens.
func TestListensAt(t *testing.T) {
	// Of Linux 6.18.
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1680 1 00000000688649ec 100 0 0 10 0
   1: 0100007F:D498 0100007F:8CA9 06 00000000:00000000 03:000016C6 00000000     0        0 0 3 00000000d1d0f673
`
	for port, want := range map[int]bool{0x07E8: true, 0xD498: false, 0x8CA9: false, 0x7E8 + 1: false, 0: false} {
		if got := listensAt(table, port); got != want {
			t.Errorf("port %d: %v", port, got)
		}
	}
}

// Rule: a server that cannot begin says why, and a failure of a service is the answer to the next
// question.
func TestServerReports(t *testing.T) {
	_, err := start(t.Context(), "it", func() (*exec.Cmd, error) { return self(nil, serveArg, "-service", "nonsense") })
	var cannot *side.CannotError
	if !errors.As(err, &cannot) || !strings.Contains(cannot.Why, `no service "nonsense"`) {
		t.Errorf("nonsense: %v", err)
	}
	var out strings.Builder
	was := services["tcp-echo"]
	defer func() { services["tcp-echo"] = was }()
	services["tcp-echo"] = func(shape) (*service, error) {
		s := &service{close: func() error { return nil }}
		s.fault.report(net.ErrClosed)
		s.fault.report(nil)
		s.fault.report(errors.New("it broke"))
		s.fault.report(errors.New("later"))
		return s, nil
	}
	if err := serveUntilEnd([]string{"-service", "tcp-echo"}, strings.NewReader("round \n"), &out); err != nil || out.String() != "ready\ncannot it broke\n" {
		t.Errorf("it printed %q, %v", out.String(), err)
	}
}
