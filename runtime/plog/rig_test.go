package plog

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// hang is the time after which a test counts as hung.
const hang = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

func openRuntime(t testing.TB) *verbena.Runtime {
	t.Helper()
	return openWith(t, verbena.Config{})
}

func openWith(t testing.TB, cfg verbena.Config) *verbena.Runtime {
	t.Helper()
	rt := must.Get(verbena.Open(cfg))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Errorf("closing the runtime: %v", err)
		}
	})
	return rt
}

// fileRegion maps a file for a log. Where files cannot be mapped it skips the test.
func fileRegion(t testing.TB, rt *verbena.Runtime, path string, size int) *verbena.Region {
	t.Helper()
	r, err := rt.NewFileRegion(path, size, Access)
	if !mem.FileSupported && errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this build cannot map files; that it says so was checked")
	}
	must.Do(t, err)
	return r
}

// server serves a log.
type server struct {
	rt   *verbena.Runtime
	log  *Log
	addr string
	stop func() // ends all connections, and waits until they are not served any more

	mu     sync.Mutex
	served []error // of Serve, in the order of the ends
}

// newServer makes a log in a file of its own and serves it.
func newServer(t testing.TB, g Config) *server {
	t.Helper()
	l := must.Get(g.validate(1 << 20))(t)
	rt := openRuntime(t)
	r := fileRegion(t, rt, filepath.Join(t.TempDir(), "log"), int(l.size()))
	return serve(t, rt, must.Get(Create(r, g))(t))
}

func serve(t testing.TB, rt *verbena.Runtime, l *Log) *server {
	t.Helper()
	s := &server{rt: rt, log: l}
	ln := must.Get(rt.Listen(":0"))(t)
	s.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			all.Go(func() {
				err := l.Serve(ctx, c)
				s.mu.Lock()
				defer s.mu.Unlock()
				s.served = append(s.served, errors.Join(err, c.Close(context.Background())))
			})
		}
	})
	s.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(s.stop)
	return s
}

// ended waits until n connections are not served any more, and returns the errors of Serve.
func (s *server) ended(t testing.TB, n int) []error {
	t.Helper()
	for end := time.Now().Add(hang); ; <-time.After(time.Millisecond) {
		s.mu.Lock()
		served := s.served
		s.mu.Unlock()
		if len(served) >= n {
			return served
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections have ended, want %d", len(served), n)
		}
	}
}

// dial connects to a server.
func dial(t testing.TB, rt *verbena.Runtime, s *server) *verbena.Conn {
	t.Helper()
	c := must.Get(rt.Dial(testContext(t), s.addr))(t)
	t.Cleanup(c.Abort)
	return c
}

// joined is a writer of a lane, on a connection of its own.
func joined(t testing.TB, rt *verbena.Runtime, s *server, lane int) *Writer {
	t.Helper()
	return must.Get(Join(testContext(t), rt, dial(t, rt, s), lane))(t)
}

// all returns the payloads of the records of a lane that its reader has not seen.
func all(t testing.TB, r *Reader) (payloads []string) {
	t.Helper()
	for _, rec := range must.Get(readAll(r))(t) {
		payloads = append(payloads, string(rec.Payload))
	}
	return payloads
}
