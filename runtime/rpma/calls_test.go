package rpma

import (
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// devices is a provider that knows the contexts that were opened.
type devices struct {
	verbs.Provider
	mu  sync.Mutex
	all []verbs.Context
}

func (d *devices) Open(name string) (verbs.Context, error) {
	ctx, err := d.Provider.Open(name)
	if err == nil {
		d.mu.Lock()
		d.all = append(d.all, ctx)
		d.mu.Unlock()
	}
	return ctx, err
}

// live returns the number of objects of all contexts, and of the connection manager.
func (d *devices) live() int {
	n := soft.Live()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ctx := range d.all {
		c := ctx.Objects()
		n += c.PD + c.TD + c.MR + c.MW + c.AH + c.CQ + c.CompChannel + c.QP + c.SRQ + c.XRCD
	}
	return n
}

// world has two peers on a software RNIC whose calls can be made to fail, an endpoint at the second, and
// what the steps of a test make.
type world struct {
	*rig
	plan *nth.Plan
	dev  *devices
	ep   *Endpoint
	port string

	own   *runtime.Runtime
	m     *MR
	srq   *SRQ
	extra *Endpoint
	q, at *ConnReq // of the dialing and of the accepting end
	c, s  *Conn

	timeout time.Duration
}

// quickly is the runtime's ConnectTimeout in tests in which one end gives up.
const quickly = time.Second

func (w *world) config(device string) runtime.Config {
	return runtime.Config{Provider: w.dev, Device: device, CQEntries: 256, Spin: -1, ConnectTimeout: w.timeout}
}

// newWorld makes a world with a ConnectTimeout.
func newWorld(t *testing.T, timeout time.Duration) *world {
	t.Helper()
	w := &world{timeout: timeout, rig: &rig{t: t, ctx: testContext(t)}, plan: &nth.Plan{}}
	w.dev = &devices{Provider: nth.Wrap(must.Get(alone())(t), w.plan)}
	for i, name := range []string{"soft0", "soft1"} {
		rt := must.Get(runtime.Open(w.config(name)))(t)
		w.rt[i], w.addr[i], w.peer[i] = rt, rt.Device().Addr[0].String(), must.Get(NewPeer(rt))(t)
		t.Cleanup(func() { must.Do(t, w.peer[i].Close()); must.Do(t, rt.Close(w.ctx)) })
	}
	w.ep, w.port = w.listen()
	return w
}

// The steps. Each makes an object and keeps it in w.

func (w *world) open() (err error) { w.own, err = runtime.Open(w.config("soft0")); return err }
func (w *world) reg() (err error)  { w.m, err = w.peer[1].NewMR(64, RecvBuf); return err }
func (w *world) share() (err error) {
	w.srq, err = w.peer[1].NewSRQ(&SRQConfig{RQSize: 4})
	return err
}

func (w *world) listens() (err error) {
	w.extra, err = w.peer[1].Listen(w.ctx, w.addr[1], "0")
	return err
}

func (w *world) asks() (err error) {
	w.q, err = w.peer[0].NewConnReq(w.ctx, w.addr[1], w.port, &ConnConfig{RCQSize: 4})
	return err
}

func (w *world) dials() (err error) {
	if err = w.asks(); err == nil {
		w.c, err = w.q.Connect(nil)
	}
	return err
}

func (w *world) takes() (err error) {
	w.at, err = w.ep.NextConnReq(w.ctx, &ConnConfig{RCQSize: 4, SharedChannel: true})
	return err
}

// calls dials and takes the request.
func (w *world) calls() error { return errors.Join(w.dials(), w.takes()) }

func (w *world) accepts() (err error) {
	if err = w.calls(); err == nil {
		w.s, err = w.at.Connect(nil)
	}
	return err
}

// serves accepts the request of w.c.
func (w *world) serves() (err error) {
	if err = w.takes(); err == nil {
		w.s, err = w.at.Connect(nil)
	}
	w.event(w.c, Established)
	w.event(w.s, Established)
	return err
}

func (w *world) connects() error {
	err := w.accepts()
	w.event(w.c, Established)
	w.event(w.s, Established)
	return err
}

// end closes what the steps have made, except what a test has closed.
func (w *world) end() {
	w.t.Helper()
	var all []func() error
	for _, c := range []*Conn{w.c, w.s} {
		if c != nil {
			all = append(all, func() error { return c.Close(w.ctx) })
		}
	}
	for _, q := range []*ConnReq{w.q, w.at} {
		if q != nil {
			all = append(all, func() error { return q.Close(w.ctx) })
		}
	}
	if w.extra != nil {
		all = append(all, func() error { return w.extra.Close(w.ctx) })
	}
	if w.srq != nil {
		all = append(all, w.srq.Close)
	}
	for _, m := range append(w.mrs, w.m) {
		if m != nil {
			all = append(all, m.Close)
		}
	}
	if w.own != nil {
		all = append(all, func() error { return w.own.Close(w.ctx) })
	}
	for _, fn := range all {
		must.Do(w.t, fn())
	}
}

// outcome returns why a connection has ended, whose next event must be the given one.
func (w *world) outcome(c *Conn, want Event) error {
	w.t.Helper()
	w.event(c, want)
	return c.Err()
}

// always is how often an identifier's end must fail until the runtime gives up: it tries 100 times.
const always = 100

// call is a C call that fails.
type call struct {
	op    string
	errno syscall.Errno
	n     int
}

// Rule: if a call fails, the step that makes it returns an error that names the call, with the errno: ErrProvider
// from a function of this package, the error of the device from one of package runtime. If two calls fail, the
// errno is that of the first. Nothing is left behind: no object of the device, no descriptor, no
// goroutine, and the peer can be closed.
func TestEachCallFails(t *testing.T) {
	if onDevice() {
		t.Skip("the test has the calls of the software RNIC fail")
	}
	const first, second = syscall.EPERM, syscall.ENOSPC
	one := func(op string) []call { return []call{{op, first, 1}} }
	two := func(op, then string) []call { return []call{{op, first, 1}, {then, second, 1}} }
	ever := func(op string) []call { return []call{{op, first, always}} }
	for _, x := range []struct {
		name  string
		fails []call
		made  func(*world) error // before the calls fail; nil: nothing
		step  func(*world) error
		code  Code // 0: the error is one of package runtime
	}{
		{"Open/ibv_query_device", one("ibv_query_device"), nil, (*world).open, 0},
		{"Open/ibv_alloc_pd", one("ibv_alloc_pd"), nil, (*world).open, 0},
		{"Open/ibv_alloc_pd ENOMEM", []call{{"ibv_alloc_pd", syscall.ENOMEM, 1}}, nil, (*world).open, 0},
		{"Open/ibv_create_comp_channel", one("ibv_create_comp_channel"), nil, (*world).open, 0},
		{"Open/ibv_create_cq", one("ibv_create_cq"), nil, (*world).open, 0},
		{"Open/ibv_create_cq ibv_destroy_comp_channel", two("ibv_create_cq", "ibv_destroy_comp_channel"), nil, (*world).open, 0},
		{"Open/rdma_create_event_channel", one("rdma_create_event_channel"), nil, (*world).open, 0},
		{"Close/ibv_destroy_cq", one("ibv_destroy_cq"), (*world).open, (*world).closeOwn, 0},
		{"Close/ibv_destroy_comp_channel", one("ibv_destroy_comp_channel"), (*world).open, (*world).closeOwn, 0},
		{"Close/ibv_destroy_cq ibv_destroy_comp_channel", two("ibv_destroy_cq", "ibv_destroy_comp_channel"), (*world).open, (*world).closeOwn, 0},
		{"Close/ibv_dealloc_pd", one("ibv_dealloc_pd"), (*world).open, (*world).closeOwn, 0},
		{"NewMR/ibv_reg_mr", one("ibv_reg_mr"), nil, (*world).reg, ErrProvider},
		{"MR.Close/ibv_dereg_mr", one("ibv_dereg_mr"), (*world).reg, func(w *world) error { return w.m.Close() }, ErrProvider},
		{"NewSRQ/ibv_create_srq", one("ibv_create_srq"), nil, (*world).share, ErrProvider},
		{"SRQ.Close/ibv_destroy_srq", one("ibv_destroy_srq"), (*world).share, func(w *world) error { return w.srq.Close() }, ErrProvider},
		{"Listen/rdma_create_id", one("rdma_create_id"), nil, (*world).listens, ErrProvider},
		{"Listen/rdma_bind_addr", one("rdma_bind_addr"), nil, (*world).listens, ErrProvider},
		{"Listen/rdma_listen", one("rdma_listen"), nil, (*world).listens, ErrProvider},
		{"Endpoint.Close/rdma_destroy_id", ever("rdma_destroy_id"), (*world).listens, func(w *world) error { return w.extra.Close(w.ctx) }, ErrProvider},
		{"NewConnReq/rdma_create_id", one("rdma_create_id"), nil, (*world).asks, ErrProvider},
		{"NewConnReq/rdma_resolve_addr", one("rdma_resolve_addr"), nil, (*world).asks, ErrProvider},
		{"NewConnReq/rdma_resolve_addr rdma_destroy_id", two("rdma_resolve_addr", "rdma_destroy_id"), nil, (*world).asks, ErrProvider},
		{"NewConnReq/rdma_resolve_route", one("rdma_resolve_route"), nil, (*world).asks, ErrProvider},
		{"NewConnReq/rdma_resolve_route rdma_destroy_id", two("rdma_resolve_route", "rdma_destroy_id"), nil, (*world).asks, ErrProvider},
		{"NewConnReq/rdma_create_qp", one("rdma_create_qp"), nil, (*world).asks, ErrProvider},
		{"NewConnReq/rdma_create_qp rdma_destroy_id", two("rdma_create_qp", "rdma_destroy_id"), nil, (*world).asks, ErrProvider},
		{"ConnReq.Close/rdma_destroy_id", ever("rdma_destroy_id"), (*world).asks, func(w *world) error { return w.q.Close(w.ctx) }, ErrProvider},
		{"ConnReq.Close of the accepting end/rdma_destroy_id", []call{{"rdma_destroy_id", first, 2 * always}}, (*world).calls, func(w *world) error {
			err := w.at.Close(w.ctx)
			_ = w.c.Close(w.ctx) // it was refused, and its identifier fails to end, too
			return err
		}, ErrProvider},
		{"NextConnReq/rdma_create_qp", one("rdma_create_qp"), (*world).dials, (*world).takes, ErrProvider},
		{"NextConnReq/rdma_create_qp rdma_destroy_id", two("rdma_create_qp", "rdma_destroy_id"), (*world).dials, (*world).takes, ErrProvider},
		{"NextConnReq/rdma_migrate_id", one("rdma_migrate_id"), (*world).dials, (*world).takes, ErrProvider},
		{"Connect/rdma_connect", one("rdma_connect"), nil, func(w *world) error { must.Do(w.t, w.dials()); return w.outcome(w.c, Lost) }, 0},
		{"Connect/rdma_connect rdma_destroy_id", two("rdma_connect", "rdma_destroy_id"), nil, func(w *world) error { must.Do(w.t, w.dials()); return w.outcome(w.c, Lost) }, 0},
		{"Connect/rdma_accept", one("rdma_accept"), nil, func(w *world) error { must.Do(w.t, w.accepts()); return w.outcome(w.s, Lost) }, 0},
		{"Connect/rdma_accept rdma_destroy_id", two("rdma_accept", "rdma_destroy_id"), nil, func(w *world) error { must.Do(w.t, w.accepts()); return w.outcome(w.s, Lost) }, 0},
		{"Conn.Close/rdma_destroy_id", ever("rdma_destroy_id"), (*world).connects, func(w *world) error { return w.c.Close(w.ctx) }, ErrProvider},
		{"Disconnect/rdma_disconnect", one("rdma_disconnect"), (*world).connects, func(w *world) error {
			must.Do(w.t, w.c.Disconnect()) // does not block; Close reports the failure
			w.event(w.c, Closed)
			w.event(w.s, Closed) // the peer gets it nevertheless
			return w.c.Close(w.ctx)
		}, ErrProvider},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, quickly)
			before := must.Get(leak.Take(leak.Gauge{Name: "objects", Read: w.dev.live}))(t)
			if x.made != nil {
				must.Do(t, x.made(w))
			}
			for _, c := range x.fails {
				w.plan.Fail(c.op, c.errno, c.n)
			}
			err := x.step(w)
			if left := w.plan.Awaited(); left != nil {
				t.Fatalf("the step did not call %v", left)
			}
			errno, _ := errors.AsType[syscall.Errno](err)
			if e, ok := errors.AsType[*Error](err); ok != (x.code != 0) || ok && (e.Code != x.code || e.Errno != x.fails[0].errno) {
				t.Errorf("the error is %v, want the code %v with %v", err, x.code, x.fails[0].errno)
			}
			if !nth.Names(err, x.fails[0].op) || !errors.Is(err, x.fails[0].errno) || x.code == 0 && errno != x.fails[0].errno {
				t.Errorf("the error is %v, want one that names %s with %v", err, x.fails[0].op, x.fails[0].errno)
			}
			w.end()
			must.Do(t, before.Check(patience))
		})
	}
}

func (w *world) closeOwn() error { return w.own.Close(w.ctx) }

// Rule: a call of the reactor's that fails once costs nothing but time: events, requests and completions come
// nevertheless. In C the function that makes the call fails.
func TestOneFailureOfTheReactorIsSurvived(t *testing.T) {
	if onDevice() {
		t.Skip("the test has the calls of the software RNIC fail")
	}
	send := func(w *world) {
		must.Do(w.t, w.s.Recv(nil, 0, 0, 1))
		must.Do(w.t, w.c.Send(nil, 0, 0, CompletionAlways, 2))
	}
	for _, x := range []struct {
		name, op string
		made     func(*world) error
		step     func(*world)
	}{
		{"NextEvent/rdma_get_cm_event", "rdma_get_cm_event", (*world).calls, func(w *world) {
			w.s = must.Get(w.at.Connect(nil))(w.t)
			w.event(w.c, Established)
			w.event(w.s, Established)
		}},
		{"NextConnReq/rdma_get_cm_event", "rdma_get_cm_event", (*world).asks, func(w *world) {
			w.c = must.Get(w.q.Connect(nil))(w.t)
			must.Do(w.t, w.takes())
		}},
		{"CQ.Wait/ibv_get_cq_event", "ibv_get_cq_event", (*world).connects, func(w *world) {
			send(w)
			must.Do(w.t, w.c.CQ().Wait(w.ctx))
			w.done(w.c.CQ(), 2)
		}},
		{"Conn.Wait/ibv_get_cq_event", "ibv_get_cq_event", (*world).connects, func(w *world) {
			send(w)
			if cq, rcq, err := w.s.Wait(w.ctx); err != nil || !rcq || cq != w.s.RCQ() {
				w.t.Errorf("Conn.Wait returned %v, %v; want the receive CQ", rcq, err)
			}
			w.done(w.s.RCQ(), 1)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, patience) // both ends wait until they are connected
			must.Do(t, x.made(w))
			w.plan.Fail(x.op, syscall.EPERM, 1)
			x.step(w)
			w.end()
			if left := w.plan.Awaited(); left != nil {
				t.Errorf("the step did not call %v", left)
			}
		})
	}
}

// Rule: if the device's completion queue cannot be polled or armed, all connections of its reactor are Lost, with
// the reason. Waits end. Outstanding operations complete with a failure, and the start of a later one returns
// ErrProvider with ENOTCONN. In C rpma_cq_get_wc, rpma_cq_wait or rpma_conn_wait returns RPMA_E_PROVIDER.
func TestAFailedCompletionQueueEndsConnections(t *testing.T) {
	if onDevice() {
		t.Skip("the test has the calls of the software RNIC fail")
	}
	for _, x := range []struct {
		name, op string
		accepts  bool              // the end that fails is the accepting one, whose CQs share a channel
		step     func(*Conn) error // makes the end call op
	}{
		{"GetWC/ibv_poll_cq", "ibv_poll_cq", false, func(c *Conn) error { return c.CQ().bell.r.Do(testContext(t), func() {}) }},
		{"CQ.Wait/ibv_req_notify_cq", "ibv_req_notify_cq", false, func(c *Conn) error { return c.RCQ().Wait(testContext(t)) }},
		{"Conn.Wait/ibv_req_notify_cq", "ibv_req_notify_cq", true, func(c *Conn) error { _, _, err := c.Wait(testContext(t)); return err }},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, quickly)
			must.Do(t, w.connects())
			c, peer, device := w.c, w.s, "soft0"
			if x.accepts {
				c, peer, device = w.s, w.c, "soft1"
			}
			must.Do(t, errors.Join(c.Recv(nil, 0, 0, 1), c.Recv(nil, 0, 0, 2)))
			w.plan.FailOn(device, x.op, syscall.EPERM, 1)
			// Its event makes the loop arm, if it had before FailOn. If a pass has failed already, the peer may know.
			if err := peer.Send(nil, 0, 0, CompletionOnError, 0); err != nil && !errors.Is(err, syscall.ENOTCONN) {
				t.Fatal(err)
			}
			must.Do(t, x.step(c))
			if wc := w.next(c.RCQ()); wc.Context != 1 { // filled, if the message came before the failure
				t.Errorf("the first completion is %+v, want that of receive 1", wc)
			}
			must.Do(t, x.step(c))
			if wc := w.next(c.RCQ()); wc.Context != 2 || wc.Status == verbs.WCSuccess {
				t.Errorf("the outstanding receive completed with %+v, want a failure", wc)
			}
			if err := w.outcome(c, Lost); !errors.Is(err, syscall.EPERM) || !nth.Names(err, x.op) {
				t.Errorf("the connection has ended with %v, want the failure of %s", err, x.op)
			}
			err := c.Send(nil, 0, 0, CompletionAlways, 2)
			if isCode(t, "a message after the failure", err, ErrProvider); !errors.Is(err, syscall.ENOTCONN) {
				t.Errorf("the error is %v, want ENOTCONN", err)
			}
			w.end()
		})
	}
}

// Rule: what the device refuses when it is posted completes with LOC_QP_OP_ERR and the errno, whatever its flags.
// Its place is free again, and the connection lives on. In C the call itself returns RPMA_E_PROVIDER.
func TestRefusedRequestsComplete(t *testing.T) {
	if onDevice() {
		t.Skip("the test has the calls of the software RNIC fail")
	}
	type ops map[string]func(w *world, f Flags) error
	all := ops{
		"atomic write": func(w *world, f Flags) error { return w.c.AtomicWrite(w.far(), 0, [8]byte{}, f, 7) },
		"flush":        func(w *world, f Flags) error { return w.c.Flush(w.far(), 0, 8, Visibility, f, 7) },
		"persistent flush": func(w *world, f Flags) error {
			dst := *w.far()
			dst.d.usage |= FlushPersistent
			w.c.ApplyRemotePeerConfig(PeerConfig{DirectWriteToPMem: true})
			return w.c.Flush(&dst, 0, 8, Persistent, f, 7)
		},
		"read":           func(w *world, f Flags) error { return w.c.Read(w.near(), 0, w.far(), 0, 8, f, 7) },
		"write":          func(w *world, f Flags) error { return w.c.Write(w.far(), 0, w.near(), 0, 8, f, 7) },
		"write with imm": func(w *world, f Flags) error { return w.c.WriteWithImm(w.far(), 0, w.near(), 0, 8, f, 1, 7) },
		"send":           func(w *world, f Flags) error { return w.c.Send(w.near(), 0, 8, f, 7) },
		"send with imm":  func(w *world, f Flags) error { return w.c.SendWithImm(w.near(), 0, 8, f, 1, 7) },
		"recv":           func(w *world, _ Flags) error { return w.c.Recv(w.near(), 0, 8, 7) },
		"recv of a request": func(w *world, _ Flags) error {
			must.Do(w.t, errors.Join(w.c.Close(w.ctx), w.s.Close(w.ctx), w.asks()))
			must.Do(w.t, w.q.Recv(w.near(), 0, 8, 7))
			w.c = must.Get(w.q.Connect(nil))(w.t)
			return w.serves()
		},
	}
	names := []string{"atomic write", "flush", "persistent flush", "read", "write", "write with imm", "send", "send with imm", "recv", "recv of a request"}
	for _, name := range names {
		for _, f := range []struct {
			name string
			f    Flags
		}{{"CompletionAlways", CompletionAlways}, {"CompletionOnError", CompletionOnError}} {
			isRecv := slices.Contains([]string{"recv", "recv of a request"}, name)
			if isRecv && f.f != CompletionAlways {
				continue
			}
			t.Run(name+"/"+f.name, func(t *testing.T) {
				w := newWorld(t, quickly)
				must.Do(t, w.connects())
				op := "ibv_post_send"
				if isRecv {
					op = "ibv_post_recv"
				}
				w.plan.Fail(op, syscall.EPERM, 1)
				must.Do(t, all[name](w, f.f))
				cq := w.c.CQ()
				if isRecv {
					cq = w.c.RCQ()
				}
				if wc, want := w.next(cq), (WC{Context: 7, Status: verbs.WCLocQPOpErr, VendorErr: uint32(syscall.EPERM), QPNum: w.c.QPNum()}); wc != want {
					t.Errorf("the completion is %+v, want %+v", wc, want)
				}
				must.Do(t, w.c.Write(nil, 0, nil, 0, 0, CompletionAlways, 8))
				w.done(w.c.CQ(), 8)
				if w.c.sends.used.Load() != 0 || w.c.recvs.used.Load() != 0 {
					t.Errorf("%d and %d places are still taken, want none", w.c.sends.used.Load(), w.c.recvs.used.Load())
				}
				w.end()
			})
		}
	}
	t.Run("srq recv", func(t *testing.T) {
		w := newWorld(t, quickly)
		must.Do(t, w.share())
		w.plan.Fail("ibv_post_srq_recv", syscall.EPERM, 1)
		must.Do(t, w.srq.Recv(nil, 0, 0, 7))
		if wc := w.next(w.srq.RCQ()); wc.Context != 7 || wc.Status != verbs.WCLocQPOpErr || wc.VendorErr != uint32(syscall.EPERM) {
			t.Errorf("the completion is %+v, want LOC_QP_OP_ERR with EPERM", wc)
		}
		w.end()
	})
}

// near and far return memory of the two ends.
func (w *world) near() *MR { return w.mr(0, 64, SendBuf|RecvBuf|WriteSrc|ReadDst) }
func (w *world) far() *RemoteMR {
	return w.remote(w.mr(1, 64, WriteDst|ReadSrc|FlushVisibility))
}
