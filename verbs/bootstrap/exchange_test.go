package bootstrap

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// pipe returns both ends of a TCP connection.
func pipe(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	a = must.Get(net.Dial("tcp", ln.Addr().String()))(t)
	b = must.Get(ln.Accept())(t)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// sayAll writes what and closes the connection.
func sayAll(nc net.Conn, what string) {
	_, _ = io.WriteString(nc, what) // the peer may have closed it already
	_ = nc.(*net.TCPConn).CloseWrite()
}

// dests returns n different addresses.
func dests(n int, psn uint32) []Dest {
	all := make([]Dest, n)
	for i := range all {
		all[i] = exampleDest
		all[i].QPN += uint32(i)
		all[i].PSN = psn
	}
	return all
}

// Rule: each side receives the other's addresses, in order; the server is ready before the client
// knows its addresses, and the client before it sends "done".
func TestExchange(t *testing.T) {
	for _, n := range []int{1, SRQPairs} {
		a, b := pipe(t)
		ours, theirs := dests(n, 1), dests(n, 2)
		theirs[n-1] = Dest{} // ibv_srq_pingpong pads with such lines
		if n == 1 {
			theirs[0] = dests(1, 3)[0]
		}
		var order []string // written by one side at a time, which the test checks
		served := make(chan error, 1)
		go func() {
			err := Server(t.Context(), b, theirs, func(peers []Dest) error {
				if !slices.Equal(peers, ours) {
					t.Errorf("the server learnt %v", peers)
				}
				order = append(order, "server")
				return nil
			})
			order = append(order, "told")
			served <- err
		}()
		if err := Client(t.Context(), a, ours, func(peers []Dest) error {
			if !slices.Equal(peers, theirs) {
				t.Errorf("the client learnt %v", peers)
			}
			order = append(order, "client")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		if want := []string{"server", "client", "told"}; !slices.Equal(order, want) {
			t.Errorf("the order was %v, want %v", order, want)
		}
		// The deadlines of the conversation do not outlast it.
		if _, err := a.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
			t.Error(err)
		}
	}
}

// Rule: whatever a hostile or dying peer sends, the conversation ends with ErrMalformed or
// ErrDest, and ready is not called.
func TestExchangeWithAHostilePeer(t *testing.T) {
	own := dests(1, 7)
	zero := exampleDest
	zero.QPN = 1
	reserved, _ := zero.AppendText(nil)
	for name, c := range map[string]struct {
		say     string
		want    error
		connect bool // the input is valid up to here
	}{
		"nothing":           {"", ErrMalformed, false},
		"half a line":       {example[:20], ErrMalformed, false},
		"HTTP":              {"GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: somebody\r\n\r\n", ErrMalformed, false},
		"QP 1":              {string(reserved), ErrDest, false},
		"not done":          {example, ErrMalformed, true},
		"something else":    {example + "DONE\x00", ErrMalformed, true},
		"no NUL after done": {example + "done", ErrMalformed, true},
	} {
		a, b := pipe(t)
		go sayAll(a, c.say)
		connected := false
		err := Server(t.Context(), b, own, func([]Dest) error { connected = true; return nil })
		if !errors.Is(err, c.want) || connected != c.connect {
			t.Errorf("%s: the server answers %v, connected %v; want %v, %v", name, err, connected, c.want, c.connect)
		}
		if c.connect {
			continue
		}
		a, b = pipe(t)
		go sayAll(b, c.say)
		if err := Client(t.Context(), a, own, func([]Dest) error { t.Errorf("%s: connected", name); return nil }); !errors.Is(err, c.want) {
			t.Errorf("%s: the client answers %v, want %v", name, err, c.want)
		}
	}
}

// Rule: a side that cannot connect sends nothing more and returns that error.
func TestExchangeThatCannotConnect(t *testing.T) {
	boom := errors.New("boom")
	fail := func([]Dest) error { return boom }
	a, b := pipe(t)
	go sayAll(a, example)
	if err := Server(t.Context(), b, dests(1, 1), fail); !errors.Is(err, boom) {
		t.Errorf("the server answers %v, want the failure", err)
	}
	b.Close()
	if n, err := io.Copy(io.Discard, a); n != 0 || err != nil {
		t.Errorf("the server that failed said %d bytes, %v", n, err)
	}
	a, b = pipe(t)
	go sayAll(b, example)
	if err := Client(t.Context(), a, dests(1, 1), fail); !errors.Is(err, boom) {
		t.Errorf("the client answers %v, want the failure", err)
	}
	a.Close()
	if n, err := io.Copy(io.Discard, b); n != TextLen || err != nil {
		t.Errorf("the client that failed said %d bytes, %v; want one line and no done", n, err)
	}
}

// Rule: a silent peer blocks a side no longer than its context, whether that is canceled or has a
// deadline; a context that has ended before sends nothing.
func TestExchangeWithASilentPeer(t *testing.T) {
	for name, side := range map[string]func(context.Context, net.Conn) error{
		"client": func(ctx context.Context, nc net.Conn) error { return Client(ctx, nc, dests(1, 1), nil) },
		"server": func(ctx context.Context, nc net.Conn) error { return Server(ctx, nc, dests(1, 1), nil) },
	} {
		a, _ := pipe(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := side(ctx, a)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s with a deadline: %v, want context.DeadlineExceeded", name, err)
		}
		cancel()

		a, b := pipe(t)
		ctx, cancel = context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- side(ctx, a) }()
		if name == "client" { // the conversation has started
			if _, err := io.ReadFull(b, make([]byte, TextLen)); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled: %v, want context.Canceled", name, err)
		}

		a, b = pipe(t)
		if err := side(ctx, a); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that has ended: %v, want context.Canceled", name, err)
		}
		a.Close()
		if n, err := io.Copy(io.Discard, b); n != 0 || err != nil {
			t.Errorf("%s with a context that has ended said %d bytes, %v", name, n, err)
		}
	}
}

// lateContext has a deadline, and a timer for it that fires later than any other.
type lateContext struct {
	context.Context
	at time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.at, true }

// Rule: an expired context is context.DeadlineExceeded, also when the connection times out first;
// other timeouts are not.
func TestExchangeWhoseDeadlineTheConnectionSeesFirst(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"soon": 20 * time.Millisecond, "long past": -time.Minute} {
		a, _ := pipe(t)
		ctx := lateContext{t.Context(), time.Now().Add(ahead)}
		if err := Server(ctx, a, dests(1, 1), nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v, want context.DeadlineExceeded and the connection's", name, err)
		}
	}
	a, b := pipe(t)
	go sayAll(b, example)
	ctx := lateContext{t.Context(), time.Now().Add(time.Hour)}
	late := func([]Dest) error { return os.ErrDeadlineExceeded } // another timeout
	if err := Client(ctx, a, dests(1, 1), late); !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an hour before the deadline: %v, want the failure and no more", err)
	}
}

// Rule: a nil context is refused before any byte is sent.
func TestANilContextIsRefused(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for name, talk := range map[string]func(context.Context, net.Conn, []Dest, func([]Dest) error) error{"client": Client, "server": Server} {
		if err := talk(nil, a, dests(1, 1), nil); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want %v", name, err, verbs.ErrInvalid)
		}
	}
}
