package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// arrivals is a Sink and an ArrivalSink.
type arrivals chan Arrival

func (a arrivals) Complete(_ SinkContext, r Result, err error) { a.Arrived(Arrival{Result: r}, err) }

func (a arrivals) Arrived(r Arrival, err error) {
	if err == nil {
		a <- r
	}
}

// Rule: PrepareAcceptOptions accepts with its own options. The Pending shows the private data of the
// request, and ConnectData sends private data that was chosen after that. Receives of a Pending and of a
// SharedRecv may have sinks, which get the tags.
func TestPrepareAcceptOptions(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
		ctx := testContext(t)
		ln := must.Get(server.ListenOptions(":0", Options{Raw: true, Bare: true, SendDepth: 7}))(t)
		shared := must.Get(server.NewSharedRecv(4, 1))(t)
		buf := bufferOf(t, server, make([]byte, 8))
		got := make(arrivals, 2)
		must.Do(t, shared.PostRecvTo(got, 41, buf.Slice()))
		if err := shared.PostRecvTo(nil, 0, buf.Slice()); !errors.Is(err, ErrInvalid) {
			t.Errorf("a shared receive with a nil sink returned %v, want ErrInvalid", err)
		}
		for i, o := range []Options{{Shared: shared, SendDepth: 3}, {}} {
			p := must.Get(client.PrepareDial(ctx, ln.Addr().String(), Options{Bare: true}))(t)
			if p.PrivateData() != nil || p.QPNum() == 0 {
				t.Errorf("before the dial the private data is %q and the queue pair has number %d, want none and a number", p.PrivateData(), p.QPNum())
			}
			end := make(chan connectEnd, 1)
			go func() {
				c, err := p.ConnectData(ctx, []byte("request"))
				end <- connectEnd{c, err}
			}()
			ps := must.Get(ln.PrepareAcceptOptions(ctx, o))(t)
			if got := string(ps.PrivateData()[:7]); got != "request" {
				t.Errorf("the private data of the request is %q, want %q", got, "request")
			}
			if i == 1 {
				must.Do(t, ps.PostRecvTo(got, 42, buf.Slice()))
			}
			if _, err := ps.ConnectData(ctx, make([]byte, verbs.MaxPrivateAccept+1)); !errors.Is(err, ErrConfig) {
				t.Errorf("ConnectData of too much data returned %v, want ErrConfig", err)
			}
			s := must.Get(ps.ConnectData(ctx, []byte("answer")))(t)
			d := <-end
			if d.err != nil {
				t.Fatal(d.err)
			}
			if got := string(d.c.PrivateData()[:6]); got != "answer" {
				t.Errorf("the private data of the answer is %q, want %q", got, "answer")
			}
			if want := []int{3, DefaultSendDepth}[i]; s.opts.SendDepth != want || s.opts.Shared != o.Shared {
				t.Errorf("the connection has SendDepth %d and shared receives %v, want %d and %v", s.opts.SendDepth, s.opts.Shared, want, o.Shared)
			}
			f, err := d.c.SendBytes(ctx, []byte("hello"))
			done(t, f, err)
			a := <-got
			if a.Tag != uint64(41+i) || a.Bytes != 5 || a.QPNum != s.QPNum() || (a.Conn == s) != (i == 0) {
				t.Errorf("message %d came with tag %d and %d bytes to queue pair %d, want tag %d, 5 bytes, queue pair %d", i, a.Tag, a.Bytes, a.QPNum, 41+i, s.QPNum())
			}
			must.Do(t, d.c.Close(ctx))
			must.Do(t, s.Close(ctx))
		}
	})
}

// Rule: TryPrepareAccept returns ErrNoRequest if no request is waiting, and otherwise prepares a
// connection. The function of OnRequest is called for each request.
func TestTryPrepareAccept(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
		ctx := testContext(t)
		ln := listenRaw(t, server)
		asked := make(chan struct{}, 8)
		must.Do(t, ln.OnRequest(func() { asked <- struct{}{} }))
		none := func(when string) {
			t.Helper()
			if _, err := ln.TryPrepareAccept(ctx, Options{}); !errors.Is(err, ErrNoRequest) || !Retryable(err) {
				t.Errorf("TryPrepareAccept %s returned %v, want ErrNoRequest", when, err)
			}
		}
		none("without a request")
		for range 3 {
			end := asking(ctx, client, ln)
			<-asked
			p := must.Get(ln.TryPrepareAccept(ctx, Options{}))(t)
			none("after the request was taken")
			s := must.Get(p.Connect(ctx))(t)
			d := <-end
			if d.err != nil {
				t.Fatal(d.err)
			}
			must.Do(t, d.c.Close(ctx))
			must.Do(t, s.Close(ctx))
		}
		end := asking(ctx, client, ln)
		<-asked
		p := must.Get(ln.TryPrepareAccept(ctx, Options{}))(t)
		must.Do(t, p.Close(ctx))
		d := <-end
		if _, rejected := errors.AsType[*RejectError](d.err); !rejected {
			t.Errorf("the dial returned %v after its request was closed, want a *RejectError", d.err)
		}
		none("after the refusal")
		if _, err := ln.TryPrepareAccept(ctx, Options{ReadDepth: 256}); !errors.Is(err, ErrConfig) {
			t.Errorf("TryPrepareAccept with a bad option returned %v, want ErrConfig", err)
		}
		must.Do(t, ln.Close(ctx))
		if _, err := ln.TryPrepareAccept(ctx, Options{}); !errors.Is(err, ErrClosed) {
			t.Errorf("TryPrepareAccept of a closed listener returned %v, want ErrClosed", err)
		}
	})
}

// Rule: calls of PrepareAccept that wait at the same time get one request each, with their own options,
// in the order of the calls.
func TestPrepareAcceptOptionsStayWithTheirCalls(t *testing.T) {
	server, client := mainBed.open(t, Config{}, 1), mainBed.open(t, Config{}, 0)
	ctx := testContext(t)
	ln := listenRaw(t, server)
	const n = 4
	type prepared struct {
		p   *Pending
		err error
	}
	var calls [n]chan prepared
	for i := range calls {
		calls[i] = make(chan prepared, 1)
		go func() {
			p, err := ln.PrepareAcceptOptions(ctx, Options{SendDepth: 10 + i})
			calls[i] <- prepared{p, err}
		}()
	}
	ends := make([]<-chan connectEnd, n)
	for i := range ends {
		ends[i] = asking(ctx, client, ln)
	}
	for i, call := range calls {
		r := <-call
		if r.err != nil {
			t.Fatal(r.err)
		}
		if got := r.p.c.opts.SendDepth; got != 10+i {
			t.Errorf("call %d got a connection with SendDepth %d, want %d", i, got, 10+i)
		}
		must.Do(t, r.p.Close(ctx))
	}
	for _, end := range ends {
		if d := <-end; d.err == nil {
			t.Error("a dial whose request was closed succeeded")
		}
	}
}
