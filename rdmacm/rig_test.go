package rdmacm

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// devicesVariable is the name of an environment variable. Its value names two devices of libibverbs
// that reach each other, such as "rxe0,rxe1". If it is set, the tests run on these devices instead of
// the software RNIC.
const devicesVariable = "VERBENA_TEST_DEVICES"

// nullBed has the tests run on the null device. TestOnTheNullDevice sets it.
var nullBed verbs.Provider

// configs returns the configurations of the two devices to test.
func configs(t testing.TB) [2]Config {
	t.Helper()
	if nullBed != nil {
		return [2]Config{{Provider: nullBed, Device: "null0"}, {Provider: nullBed, Device: "null1"}}
	}
	list := os.Getenv(devicesVariable)
	if list == "" {
		return [2]Config{{Device: "soft:soft0"}, {Device: "soft:soft1"}}
	}
	a, b, two := strings.Cut(list, ",")
	if !two {
		t.Fatalf("%s is %q, want the names of two devices, separated by a comma", devicesVariable, list)
	}
	return [2]Config{{Device: "ibv:" + a}, {Device: "ibv:" + b}}
}

// patience bounds what a test waits for.
const patience = 20 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// rig has two libraries, which stand for two processes, and the addresses of their devices.
type rig struct {
	t   *testing.T
	ctx context.Context
	lib [2]*Library
	dev [2]*Device
	at  [2]netip.AddrPort // port 0
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, ctx: testContext(t)}
	for i, cfg := range configs(t) {
		r.lib[i] = must.Get(Open(cfg))(t)
		t.Cleanup(func() {
			if err := r.lib[i].Close(); err != nil {
				t.Error(err)
			}
		})
		for _, r.dev[i] = range r.lib[i].devices { // the one that Open has opened
		}
		r.at[i] = netip.AddrPortFrom(r.dev[i].Context().Device().Addr[0], 0)
	}
	return r
}

// owns destroys id at the end of the test.
func (r *rig) owns(id *ID) *ID {
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := id.Destroy(ctx); err != nil {
			r.t.Error(err)
		}
	})
	return id
}

// attr describes a queue pair with room for 16 sends and 16 receives.
func attr() *QPInitAttr {
	return &QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}}
}

// listener makes a passive endpoint at device 1, and returns its address.
func (r *rig) listener(a *QPInitAttr) (*ID, netip.AddrPort) {
	r.t.Helper()
	l := r.owns(must.Get(r.lib[1].CreateEndpoint(r.ctx, &AddrInfo{Flags: AIPassive, Src: r.at[1], PortSpace: verbs.PSTCP, QPType: verbs.QPTRC}, nil, a))(r.t))
	must.Do(r.t, l.Listen(0))
	return l, l.LocalAddr()
}

// dialer makes an active endpoint at device 0.
func (r *rig) dialer(to netip.AddrPort, a *QPInitAttr) *ID {
	r.t.Helper()
	info := &AddrInfo{Src: r.at[0], Dst: to, PortSpace: verbs.PSTCP, QPType: verbs.QPTRC}
	return r.owns(must.Get(r.lib[0].CreateEndpoint(r.ctx, info, nil, a))(r.t))
}

// connected returns the two ends of a connection, client and server.
func (r *rig) connected(a *QPInitAttr) (c, s *ID) {
	r.t.Helper()
	l, at := r.listener(a)
	c = r.dialer(at, a)
	done := make(chan error, 1)
	go func() { done <- c.Connect(r.ctx, nil) }()
	s = r.owns(must.Get(l.GetRequest(r.ctx))(r.t))
	must.Do(r.t, s.Accept(r.ctx, nil))
	must.Do(r.t, <-done)
	return c, s
}

// memory maps n bytes, and registers them at id with the given function, such as (*ID).RegMsgs.
func (r *rig) memory(id *ID, n int, reg func(*ID, []byte) (*MR, error)) *MR {
	r.t.Helper()
	m := must.Get(verbs.AllocMemory(n))(r.t)
	mr := must.Get(reg(id, m.Bytes()[:n]))(r.t)
	r.t.Cleanup(func() {
		must.Do(r.t, mr.Dereg())
		must.Do(r.t, m.Close())
	})
	return mr
}

// sent takes the next completion of a send, which must succeed and have the word userContext.
func (r *rig) sent(id *ID, userContext uint64) verbs.WC {
	r.t.Helper()
	return r.ok(must.Get(id.GetSendComp(r.ctx))(r.t), userContext)
}

// received is sent for a receive.
func (r *rig) received(id *ID, userContext uint64) verbs.WC {
	r.t.Helper()
	return r.ok(must.Get(id.GetRecvComp(r.ctx))(r.t), userContext)
}

func (r *rig) ok(wc verbs.WC, userContext uint64) verbs.WC {
	r.t.Helper()
	if wc.Status != verbs.WCSuccess || wc.WRID != userContext {
		r.t.Fatalf("completion of request %d with status %v, want request %d with success", wc.WRID, wc.Status, userContext)
	}
	return wc
}

func TestMain(m *testing.M) {
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: soft.Live}, leak.Gauge{Name: "objects of libibverbs", Read: ibv.Live})
}
