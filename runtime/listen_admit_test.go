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

// Rule: the listener calls Options.Admit with the addresses and the private data of each request. If Admit
// returns an error, the listener rejects the request before it creates a queue pair or a memory region. The
// rejection carries the text of the error and, if the error is a *Refusal, its data. (The rejection of a bare
// listener carries only the data.) A waiting Accept gets the next connection that is admitted.
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
					"an error":                     {errors.New("not you"), "not you", nil},
					"a Refusal":                    {&Refusal{"not today", []byte("tomorrow")}, "not today", []byte("tomorrow")},
					"a wrapped Refusal":            {fmt.Errorf("so: %w", &Refusal{Text: "not today"}), "not today", nil},
					"a Refusal with too much data": {&Refusal{Data: make([]byte, verbs.MaxPrivateReject+1)}, "149 bytes", nil},
				} {
					answers <- c.err
					conn, err := dial()
					e, ok := errors.AsType[*RejectError](err)
					if o.Bare && ok { // the data of a bare connection arrives with the padding of the connection manager
						e.Data = bytes.TrimRight(e.Data, "\x00")
					}
					if !ok || e.Reason != verbs.RejConsumer || !bytes.Equal(e.Data, c.data) {
						t.Fatalf("Admit returned %s: dialing returned %v, %v (%+v); want a RejectError with reason %d and data %q",
							what, conn, err, e, verbs.RejConsumer, c.data)
					}
					if code := proto.RejectRefused; !o.Bare && (e.Code != code || !strings.Contains(e.Text, c.text)) {
						t.Errorf("Admit returned %s: the RejectError has code %d and text %q, want %d and a text with %q", what, e.Code, e.Text, code, c.text)
					}
					if e.Retry() != RetryNever {
						t.Errorf("Admit returned %s: Retry of the RejectError returns %v, want %v", what, e.Retry(), RetryNever)
					}
					q := <-asked
					if q.Local != ln.Addr() || q.Peer.Port() == 0 {
						t.Errorf("Admit got a request from %v to %v, want one to %v, from a port other than 0", q.Peer, q.Local, ln.Addr())
					}
					if !bytes.HasPrefix(q.PrivateData, co.PrivateData) || len(bytes.Trim(q.PrivateData[len(co.PrivateData):], "\x00")) > 0 {
						t.Errorf("Admit got the private data %q, want %q, followed by zeros only", q.PrivateData, co.PrivateData)
					}
				}
				if now := server.dev.Objects(); now.QP != before.QP || now.MR != before.MR {
					t.Errorf("after the refused requests the device has the objects %v, want as many queue pairs and memory regions as before the requests: %v", now, before)
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

// Rule: if the listener or the runtime is closed while Options.Admit runs, the context of Admit ends, and the
// request is refused, whatever Admit returns. Runtime.Close waits until Admit has returned.
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
				t.Errorf("Runtime.Close returned before Admit had returned")
			}
			if e, ok := errors.AsType[*RejectError](<-dialed); !ok || e.Reason != verbs.RejConsumer {
				t.Errorf("the %s was closed, and then Admit returned %v: dialing ended with the RejectError %v, want one with reason %d", name, answer, e, verbs.RejConsumer)
			}
		}
	}
}

// Rule: if Options.Admit panics, calls runtime.Goexit, or returns a nil *Refusal as its error, the request is
// refused, and the listener can accept later requests.
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
		// The listener calls Admit for at most maxPreparing requests at a time. If refused requests kept
		// their places, the requests after the first maxPreparing ones would not be answered.
		for range 2 * maxPreparing {
			next <- rude
			_, err := client.Dial(testContext(t), ln.Addr().String())
			rejected(t, err, proto.RejectRefused)
			if name == "panic" {
				if e := <-panics; e.Value != "rude" {
					t.Errorf("OnPanic got the panic value %v, want \"rude\"", e.Value)
				}
			}
		}
	}
	next <- func() error { return nil }
	c := must.Get(client.Dial(testContext(t), ln.Addr().String()))(t)
	must.Do(t, c.Close(testContext(t)))
}
