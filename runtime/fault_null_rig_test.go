//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// badDay is the null device, its control, and two runtimes on it.
type badDay struct {
	t              *testing.T
	null           *nulldev.Control
	cfg            Config // with the provider
	server, client *Runtime
	ln             *Listener
}

// nullDevice is the provider over the null device, with its control. When the
// test is over nothing may be left in the library: no object, no event that was
// taken and not acknowledged.
func nullDevice(t *testing.T) (*ibv.Provider, *nulldev.Control) {
	t.Helper()
	notOnDevice(t, "the null device has its own run")
	paths, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	null, err := nulldev.Open(paths)
	if err != nil {
		t.Fatal(err)
	}
	before := null.Stats()
	t.Cleanup(func() {
		after := null.Stats()
		if after.Objects != before.Objects || after.Contexts != before.Contexts || after.Unacked != before.Unacked {
			t.Errorf("left in the library: %v, %d contexts, %d events; before the test: %v, %d, %d",
				after.Objects, after.Contexts, after.Unacked, before.Objects, before.Contexts, before.Unacked)
		}
		null.Close()
	})
	p, err := ibv.New(ibv.Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM})
	if err != nil {
		t.Fatal(err)
	}
	return p, null
}

func newBadDay(t *testing.T, cfg Config) *badDay {
	t.Helper()
	d := &badDay{t: t, cfg: cfg}
	d.cfg.Conn.KeepAlive = -1 // a fault is for what the test posts, not for a question after the peer
	d.cfg.Provider, d.null = nullDevice(t)
	d.cfg.Device = "null1"
	d.server = mustOpen(t, d.cfg)
	d.cfg.Device = "null0"
	d.client = mustOpen(t, d.cfg)
	t.Cleanup(d.null.Clear) // closing is not part of it, unless a test closes
	var err error
	if d.ln, err = d.server.Listen("127.0.0.2:0"); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *badDay) connect() (a, b *Conn) {
	d.t.Helper()
	ctx := testContext(d.t)
	seat, err := d.ln.AcceptAsync()
	if err != nil {
		d.t.Fatal(err)
	}
	if a, err = d.client.Dial(ctx, d.ln.Addr().String()); err != nil {
		d.t.Fatal(err)
	}
	if b, err = seat.Await(ctx); err != nil {
		d.t.Fatal(err)
	}
	return a, b
}

func (d *badDay) fault(f nulldev.Fault) int {
	d.t.Helper()
	n, err := d.null.Add(f)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// target is memory of the server that its peers may do anything with.
func (d *badDay) target(n int) (*Region, Remote) {
	d.t.Helper()
	region, err := d.server.NewRegion(n, allAccess)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := region.Close(); err != nil {
			d.t.Errorf("closing the region: %v", err)
		}
	})
	remote, err := region.Remote(0, n)
	if err != nil {
		d.t.Fatal(err)
	}
	return region, remote
}

// batch starts n additions to remote so that one turn posts them as one list.
func (d *badDay) batch(c *Conn, remote Remote, n int) (fs []Future) {
	d.t.Helper()
	ctx := testContext(d.t)
	var err error
	if e := c.sh.r.Do(ctx, func() {
		for range n {
			var f Future
			if f, err = c.Start(ctx, new(FetchAndAddOp(remote, 1))); err != nil {
				return
			}
			fs = append(fs, f)
		}
	}); e != nil || err != nil {
		d.t.Fatal(e, err)
	}
	return fs
}

// adds checks that the connection works: it adds n times, and every addition
// finds what those before it made.
func (d *badDay) adds(c *Conn, remote Remote, from, n int) {
	d.t.Helper()
	for i := range n {
		f, err := c.Start(testContext(d.t), new(FetchAndAddOp(remote, 1)))
		if r := done(d.t, f, err); r.Value != uint64(from+i) {
			d.t.Fatalf("addition %d found %d", from+i, r.Value)
		}
	}
}

// ends waits for a future that must fail.
func (d *badDay) ends(what string, f Future, want ...error) {
	d.t.Helper()
	_, err := f.Await(testContext(d.t))
	d.isAll(what, err, want...)
}

// isAll checks that an error is all of the wanted.
func (d *badDay) isAll(what string, err error, want ...error) {
	d.t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			d.t.Errorf("%s: %v, want %v", what, err, w)
		}
	}
}
