package ends

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

func TestMain(m *testing.M) { leak.Main(m) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Rule: the command line selects the ends; only the client takes further arguments, if it takes
// any.
func TestCommandLines(t *testing.T) {
	for _, c := range []struct {
		line, takes, mode, addr string
		rest                    int // -1: the command line is refused
	}{
		{"", "", "", ":0", 0},
		{"a b", "[text ...]", "", ":0", 2},
		{"server", "", "", "", -1},
		{"serve", "", "serve", ":7471", 0},
		{"serve host:1", "", "serve", "host:1", 0},
		{"serve host:1 a", "[text ...]", "", "", -1},
		{"dial", "[text ...]", "", "", -1},
		{"dial host:1", "", "dial", "host:1", 0},
		{"dial host:1 a", "", "", "", -1},
		{"dial host:1 a b", "[text ...]", "dial", "host:1", 2},
	} {
		mode, addr, rest, err := Example{Args: c.takes}.parse(strings.Fields(c.line))
		if c.rest < 0 {
			if err == nil || !strings.HasPrefix(err.Error(), "usage: ") || !strings.HasSuffix(err.Error(), "address] "+c.takes) && c.takes != "" {
				t.Errorf("%q: %v, want the usage", c.line, err)
			}
			continue
		}
		if err != nil || mode != c.mode || addr != c.addr || len(rest) != c.rest {
			t.Errorf("%q: %q, %q, %q, %v", c.line, mode, addr, rest, err)
		}
	}
}

// Rule: the server prints the error of a connection and closes it. Then it serves the next one.
func TestServerGoesOn(t *testing.T) {
	refused := errors.New("refused by this test")
	served := 0
	x := Example{
		Serve: func(ctx context.Context, _ io.Writer, _ *verbena.Runtime, conn *verbena.Conn) error {
			if served++; served == 1 {
				return refused
			}
			sent, err := conn.SendBytes(ctx, []byte("welcome"))
			sent.Discard()
			return err
		},
		Dial: func(ctx context.Context, _ io.Writer, rt *verbena.Runtime, addr string, _ []string) error {
			for i, want := range []error{verbena.ErrPeerClosed, nil, nil} {
				conn, err := rt.Dial(ctx, addr)
				if err != nil {
					return err
				}
				msg, err := conn.RecvWait(ctx)
				if !errors.Is(err, want) {
					t.Errorf("connection %d: received %q, %v, want %v", i, msg.Data, err, want)
				}
				if err == nil {
					err = msg.Release()
				}
				if cerr := conn.Close(ctx); cerr != nil {
					return errors.Join(err, cerr)
				}
			}
			return nil
		},
	}
	var out bytes.Buffer
	err := x.Run(testContext(t), &out)
	from, ok := strings.CutSuffix(out.String(), ": "+refused.Error()+"\n")
	from, is := strings.CutPrefix(from, "connection from ")
	if _, perr := netip.ParseAddrPort(from); err != nil || !ok || !is || perr != nil {
		t.Errorf("%v, printed %q, want one error and its address", err, &out)
	}
}

// Rule: each end has the configuration; the server's listener is made by Listen.
func TestConfigAndListen(t *testing.T) {
	var atServer, atClient int
	x := Example{
		Config: verbena.Config{Conn: verbena.Options{MessageSize: 1000, MaxMessage: -1}},
		Listen: func(rt *verbena.Runtime, addr string) (*verbena.Listener, error) {
			return rt.ListenOptions(addr, verbena.Options{PrivateData: []byte("private")})
		},
		Serve: func(ctx context.Context, _ io.Writer, _ *verbena.Runtime, conn *verbena.Conn) error {
			atServer = conn.MaxMessage()
			return conn.Close(ctx) // the client waits for it
		},
		Dial: func(ctx context.Context, _ io.Writer, rt *verbena.Runtime, addr string, _ []string) error {
			conn, err := rt.Dial(ctx, addr)
			if err != nil {
				return err
			}
			<-conn.Done()
			atClient = conn.MaxMessage()
			if string(conn.PrivateData()) != "private" {
				t.Errorf("private data %q", conn.PrivateData())
			}
			return conn.Close(ctx)
		},
	}
	if err := x.Run(testContext(t), io.Discard); err != nil || atServer != 1000 || atClient != 1000 {
		t.Errorf("%v, messages of up to %d and %d bytes, want 1000", err, atServer, atClient)
	}
}

// Rule: a listener that cannot be made is an error.
func TestNoListener(t *testing.T) {
	if err := (Example{}).Run(testContext(t), io.Discard, "serve", "nowhere"); !errors.Is(err, verbena.ErrAddress) {
		t.Errorf("serve nowhere: %v, want ErrAddress", err)
	}
}
