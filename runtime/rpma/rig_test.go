package rpma

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/altered"
)

// devicesVariable is the name of an environment variable. Its value names two devices of libibverbs
// that reach each other, such as "rxe0,rxe1". If it is set, the tests run on these devices instead of
// the software RNIC and the null device.
const devicesVariable = "VERBENA_TEST_DEVICES"

func onDevice() bool { return os.Getenv(devicesVariable) != "" }

// bed is a provider with two devices that reach each other.
type bed struct {
	name     string
	provider func(t testing.TB) verbs.Provider
	devices  [2]string
}

// mainBed has the devices to test.
func mainBed(t testing.TB) bed {
	t.Helper()
	list := os.Getenv(devicesVariable)
	if list == "" {
		return bed{"soft", func(testing.TB) verbs.Provider { return soft.Default() }, [2]string{"soft0", "soft1"}}
	}
	a, b, two := strings.Cut(list, ",")
	if !two {
		t.Fatalf("%s is %q, want the names of two devices, separated by a comma", devicesVariable, list)
	}
	return bed{"device", func(testing.TB) verbs.Provider { return ibv.Default() }, [2]string{a, b}}
}

// plainBed has the devices to test, without FLUSH and ATOMIC_WRITE.
func plainBed(t testing.TB) bed {
	b := mainBed(t)
	real := b.provider
	b.name = "without extensions"
	b.provider = func(t testing.TB) verbs.Provider {
		return altered.Provider{Provider: real(t), Change: altered.WithoutExtensions}
	}
	return b
}

// onBeds runs a test on each bed, also without the extensions of the device.
func onBeds(t *testing.T, test func(t *testing.T, r *rig)) {
	beds := []bed{mainBed(t), plainBed(t)}
	if !onDevice() {
		beds = append(beds, nullBeds...)
	}
	for _, b := range beds {
		t.Run(b.name, func(t *testing.T) { test(t, b.rig(t)) })
	}
}

// patience bounds what a test waits for.
const patience = 30 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// rig has two peers, which stand for two processes.
type rig struct {
	t    testing.TB
	ctx  context.Context
	rt   [2]*runtime.Runtime
	peer [2]*Peer
	addr [2]string
	mrs  []*MR // closed after the connections
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return mainBed(t).rig(t)
}

func (b bed) rig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, ctx: testContext(t)}
	provider := b.provider(t)
	defer t.Cleanup(func() {
		for _, m := range r.mrs {
			if err := m.Close(); err != nil {
				t.Errorf("closing an MR: %v", err)
			}
		}
	})
	for i, name := range b.devices {
		rt := must.Get(runtime.Open(runtime.Config{Provider: provider, Device: name}))(t)
		r.rt[i], r.addr[i] = rt, rt.Device().Addr[0].String()
		r.peer[i] = must.Get(NewPeer(rt))(t)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := errors.Join(r.peer[i].Close(), rt.Close(ctx)); err != nil {
				t.Error(err)
			}
		})
	}
	return r
}

// closes closes an object at the end of the test.
func (r *rig) closes(what interface{ Close(context.Context) error }) {
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := what.Close(ctx); err != nil {
			r.t.Errorf("closing a %T: %v", what, err)
		}
	})
}

// listen makes an endpoint at device 1, and returns its port.
func (r *rig) listen() (*Endpoint, string) {
	r.t.Helper()
	ep := must.Get(r.peer[1].Listen(r.ctx, r.addr[1], "0"))(r.t)
	r.closes(ep)
	_, port, _ := strings.Cut(ep.Addr().String(), ":")
	return ep, port
}

// requests returns the two ends of a connection that is not requested yet at the client, and requested at
// the server after connect was called.
func (r *rig) request(ep *Endpoint, port string, cfg *ConnConfig) *ConnReq {
	r.t.Helper()
	q := must.Get(r.peer[0].NewConnReq(r.ctx, r.addr[1], port, cfg))(r.t)
	r.closes(q)
	return q
}

// connect connects, with private data of both ends. It calls each of accepting with the server's request.
func (r *rig) connect(client, server *ConnConfig, accepting ...func(*ConnReq)) (c, s *Conn) {
	r.t.Helper()
	ep, port := r.listen()
	return r.connectTo(ep, port, client, server, accepting...)
}

func (r *rig) connectTo(ep *Endpoint, port string, client, server *ConnConfig, accepting ...func(*ConnReq)) (c, s *Conn) {
	r.t.Helper()
	c = must.Get(r.request(ep, port, client).Connect([]byte("client")))(r.t)
	r.closes(c)
	q := must.Get(ep.NextConnReq(r.ctx, server))(r.t)
	for _, do := range accepting {
		do(q)
	}
	s = must.Get(q.Connect([]byte("server")))(r.t)
	r.closes(s)
	r.event(s, Established)
	r.event(c, Established)
	return c, s
}

// event takes the next event, which must be the given one.
func (r *rig) event(c *Conn, want Event) {
	r.t.Helper()
	if e, err := c.NextEvent(r.ctx); err != nil || e != want {
		r.t.Fatalf("the next event is %v (%v, the connection: %v), want %v", e, err, c.Err(), want)
	}
}

// mr makes a memory region of n bytes at peer i.
func (r *rig) mr(i, n int, usage Usage) *MR {
	r.t.Helper()
	m := must.Get(r.peer[i].NewMR(n, usage))(r.t)
	r.mrs = append(r.mrs, m)
	return m
}

// remote passes the descriptor of m on.
func (r *rig) remote(m *MR) *RemoteMR {
	r.t.Helper()
	desc := must.Get(m.Descriptor())(r.t)
	return must.Get(ParseRemoteMR(desc[:]))(r.t)
}

// next takes the next completion of a CQ.
func (r *rig) next(cq *CQ) WC {
	r.t.Helper()
	var wc [1]WC
	for {
		if _, err := cq.GetWC(wc[:]); err == nil {
			return wc[0]
		} else if !errors.Is(err, ErrNoCompletion) {
			r.t.Fatal(err)
		}
		if err := cq.bell.await(r.ctx); err != nil {
			r.t.Fatalf("waiting for a completion: %v", err)
		}
	}
}

// await waits for any CQ of a completion channel, whether or not it is shared.
func (b *bell) await(ctx context.Context) error {
	_, err := b.wait(ctx)
	return err
}

// done takes the next completion, which must be that of the given word with success.
func (r *rig) done(cq *CQ, word uint64) WC {
	r.t.Helper()
	wc := r.next(cq)
	if wc.Context != word || wc.Err() != nil {
		r.t.Fatalf("the completion is of %d with %v, want %d with success", wc.Context, wc.Status, word)
	}
	return wc
}

// ok ends the test at an error.
func (r *rig) ok(err error) {
	r.t.Helper()
	must.Do(r.t, err)
}

// none checks that a CQ is empty.
func (r *rig) none(cq *CQ, when string) {
	r.t.Helper()
	var wc [1]WC
	if n, err := cq.GetWC(wc[:]); !errors.Is(err, ErrNoCompletion) || n != 0 {
		r.t.Errorf("%s: GetWC returned %d completions (%+v) and %v, want ErrNoCompletion", when, n, wc[0], err)
	}
}

// isCode checks an error.
func isCode(t *testing.T, what string, err error, want Code) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != want || !errors.Is(err, want) {
		t.Errorf("%s: the error is %v, want %v", what, err, want)
	}
}

func TestMain(m *testing.M) {
	SetLogFunction(quiet{})
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: soft.Live}, leak.Gauge{Name: "objects of libibverbs", Read: ibv.Live})
}

// contextEnded returns a context that has ended.
func contextEnded() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx, cancel
}

// fileRegion maps a new file of a page. It skips the test in a build that cannot map files.
func fileRegion(t *testing.T, rt *runtime.Runtime, usage Usage) (*runtime.Region, error) {
	t.Helper()
	region, err := rt.NewFileRegion(filepath.Join(t.TempDir(), "file"), 4096, usage.access(false))
	if sys.Portable && errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this build cannot map files; that it says so was checked")
	}
	return region, err
}
