package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: Options.Admit sees the addresses and the private data of each request. Its error reaches the peer,
// with the data of a Refusal, before the listener's device has one more object. An Accept that waits gets the
// next connection that is admitted.
func TestAdmit(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		for name, o := range map[string]Options{"managed": {}, "raw": {Raw: true}, "bare": {Raw: true, Bare: true}} {
			t.Run(name, func(t *testing.T) {
				server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
				asked := make(chan Request, 1)
				answers := make(chan error, 1)
				so, co := o, o
				so.Admit = func(_ context.Context, q Request) error {
					asked <- q
					return <-answers
				}
				ln := must.Get(server.ListenOptions(":0", so))(t)
				seat := must.Get(ln.AcceptAsync())(t)
				co.PrivateData = []byte("who I am")
				dial := func() (*Conn, error) { return client.DialOptions(testContext(t), ln.Addr().String(), co) }

				before := server.dev.Objects()
				for what, c := range map[string]struct {
					err  error
					text string
					data []byte
				}{
					"an error":      {errors.New("not you"), "not you", nil},
					"a refusal":     {&Refusal{"not today", []byte("tomorrow")}, "not today", []byte("tomorrow")},
					"one inside":    {fmt.Errorf("so: %w", &Refusal{Text: "not today"}), "not today", nil},
					"too much data": {&Refusal{Data: make([]byte, verbs.MaxPrivateReject+1)}, "149 bytes", nil},
				} {
					answers <- c.err
					conn, err := dial()
					e, ok := errors.AsType[*RejectError](err)
					if o.Bare && ok { // with the padding of the connection manager
						e.Data = bytes.TrimRight(e.Data, "\x00")
					}
					if !ok || e.Reason != verbs.RejConsumer || !bytes.Equal(e.Data, c.data) {
						t.Fatalf("%s: dialing: %v, %v (%+v)", what, conn, err, e)
					}
					if code := proto.RejectRefused; !o.Bare && (e.Code != code || !strings.Contains(e.Text, c.text)) {
						t.Errorf("%s: code %d and text %q, want %d and %q", what, e.Code, e.Text, code, c.text)
					}
					if e.Retry() != RetryNever {
						t.Errorf("%s: retry %v", what, e.Retry())
					}
					q := <-asked
					if q.Local != ln.Addr() || q.Peer.Port() == 0 {
						t.Errorf("%s: a request from %v to %v", what, q.Peer, q.Local)
					}
					if !bytes.HasPrefix(q.PrivateData, co.PrivateData) || len(bytes.Trim(q.PrivateData[len(co.PrivateData):], "\x00")) > 0 {
						t.Errorf("%s: a request with %q", what, q.PrivateData)
					}
				}
				if now := server.dev.Objects(); now.QP != before.QP || now.MR != before.MR {
					t.Errorf("refused requests took objects: %v, before %v", now, before)
				}
				answers <- nil
				c := must.Get(dial())(t)
				<-asked
				s := must.Get(seat.Await(testContext(t)))(t)
				must.Do(t, c.Close(testContext(t)))
				must.Do(t, s.Close(testContext(t)))
			})
		}
	})
}

// Rule: the context of Options.Admit ends when the listener or the runtime is closed; Runtime.Close waits for
// Admit. What Admit then returns does not matter: the request is refused.
func TestAdmitWhileItsListenerCloses(t *testing.T) {
	client := mustOpen(t, Config{Device: first.name})
	for name, closes := range map[string]func(*Runtime, *Listener) error{
		"listener": func(_ *Runtime, l *Listener) error { return l.Close(context.Background()) },
		"runtime":  func(rt *Runtime, _ *Listener) error { return rt.Close(context.Background()) },
	} {
		for _, answer := range []error{nil, errors.New("no")} {
			server := mustOpen(t, Config{Device: second.name})
			asked := make(chan struct{})
			returned := false
			ln := must.Get(server.ListenOptions(":0", Options{Admit: func(ctx context.Context, _ Request) error {
				close(asked)
				<-ctx.Done()
				returned = true
				return answer
			}}))(t)
			dialed := make(chan error, 1)
			go func() {
				_, err := client.Dial(testContext(t), ln.Addr().String())
				dialed <- err
			}()
			<-asked
			must.Do(t, closes(server, ln))
			if name == "runtime" && !returned {
				t.Errorf("the runtime was closed before Admit returned")
			}
			if e, ok := errors.AsType[*RejectError](<-dialed); !ok || e.Reason != verbs.RejConsumer {
				t.Errorf("%s, answer %v: dialing: %v", name, answer, e)
			}
		}
	}
}

// Rule: if Options.Admit panics or ends its goroutine, the request is refused, and the listener goes on. So
// it does for an error that is a nil *Refusal.
func TestRudeAdmit(t *testing.T) {
	panics := make(chan *PanicError, 1)
	server := mustOpen(t, Config{Device: second.name, OnPanic: func(e *PanicError) { panics <- e }})
	client := mustOpen(t, Config{Device: first.name})
	next := make(chan func() error, 1)
	ln := must.Get(server.ListenOptions(":0", Options{Admit: func(context.Context, Request) error { return (<-next)() }}))(t)
	for name, rude := range map[string]func() error{
		"panic":     func() error { panic("rude") },
		"Goexit":    func() error { runtime.Goexit(); return nil },
		"typed nil": func() error { var r *Refusal; return r },
	} {
		for range 2 * maxPreparing { // each of them must give its place back
			next <- rude
			_, err := client.Dial(testContext(t), ln.Addr().String())
			rejected(t, err, proto.RejectRefused)
			if name == "panic" {
				if e := <-panics; e.Value != "rude" {
					t.Errorf("OnPanic got %v", e.Value)
				}
			}
		}
	}
	next <- func() error { return nil }
	c := must.Get(client.Dial(testContext(t), ln.Addr().String()))(t)
	must.Do(t, c.Close(testContext(t)))
}
