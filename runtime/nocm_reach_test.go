package runtime

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// Rule: if the context of Prepared.Connect ends while the system looks up the peer's hardware address,
// Connect returns at once. The look-up continues, and Runtime.Close waits until it has ended. Then all
// resources are freed.
func TestPlainConnectEndsWithItsContext(t *testing.T) { onBeds(t, plainConnectEnds) }

func plainConnectEnds(t *testing.T, b bed) {
	rt := b.open(t, Config{}, 0)
	p := prepare(t, rt, PlainOptions{})
	slow := slowDomain{rt.pd, make(chan struct{}), make(chan struct{})}
	rt.pd = slow
	ctx, cancel := context.WithCancel(testContext(t))
	got := make(chan error, 1)
	go func() { _, err := p.Connect(ctx, p.Local()); got <- err }()
	<-slow.entered
	cancel()
	select {
	case err := <-got:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Connect returned %v, want context.Canceled", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Connect has not returned 10 s after the end of its context")
	}
	if err := p.Close(testContext(t)); err != nil {
		t.Errorf("Prepared.Close during the look-up: %v, want no error", err)
	}
	closing := make(chan error, 1)
	go func() { closing <- rt.Close(testContext(t)) }()
	close(slow.mayEnd)
	if err := <-closing; err != nil {
		t.Errorf("Runtime.Close, called during the look-up: %v, want no error", err)
	}
}

// wayless is a protection domain whose CreateAH always fails with wayless.err.
type wayless struct {
	verbs.PD
	err error
}

func (d wayless) CreateAH(*verbs.AHAttr) (verbs.AH, error) { return nil, d.err }

// Rule: if CreateAH fails, the error of Connect matches the errno. If the errno means that the peer
// cannot be reached, the error also matches ErrUnreachable. For any other errno it does not.
func TestPlainPeerWithoutAWay(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		rt := b.open(t, Config{}, 0)
		pd := rt.pd
		for errno, want := range map[syscall.Errno]bool{
			syscall.ETIMEDOUT: true, syscall.EHOSTUNREACH: true, syscall.ENETUNREACH: true, syscall.EPERM: false, syscall.ENOMEM: false,
		} {
			p := prepare(t, rt, PlainOptions{})
			rt.pd = wayless{pd, &verbs.OpError{Op: "ibv_create_ah", Errno: errno}}
			_, err := p.Connect(testContext(t), p.Local())
			rt.pd = pd
			if !errors.Is(err, errno) || errors.Is(err, ErrUnreachable) != want {
				t.Errorf("Connect with the errno %v returned %v; want an error that matches the errno, and errors.Is(err, ErrUnreachable)=%t", errno, err, want)
			}
		}
	})
}

// Rule: if the look-up of the peer's hardware address succeeds, but the step of the queue pair to RTR
// fails because the address cannot be resolved any more, Connect returns ErrUnreachable, too.
func TestPlainPeerWhoseWayIsForgotten(t *testing.T) {
	cfg, plan := failing(t, "ibv_modify_qp", 2) // the first call moves the queue pair to INIT, the second to RTR
	plan.Errno = syscall.ETIMEDOUT
	p := prepare(t, mustOpen(t, cfg), PlainOptions{})
	if _, err := p.Connect(testContext(t), p.Local()); !errors.Is(err, ErrUnreachable) || !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("Connect: %v, want an error that matches ErrUnreachable and ETIMEDOUT", err)
	}
}

// askedProvider opens devices that call the function in p.asked, if there is one, before every query.
type askedProvider struct {
	verbs.Provider
	asked atomic.Pointer[func()] // set by the test after Open; read before every query
}

func (p *askedProvider) Open(name string) (verbs.Context, error) {
	c, err := p.Provider.Open(name)
	return askedContext{c, func() {
		if fn := p.asked.Load(); fn != nil {
			(*fn)()
		}
	}}, err
}

type askedContext struct {
	verbs.Context
	asked func()
}

func (c askedContext) QueryDevice() (verbs.DeviceAttr, error) {
	c.asked()
	return c.Context.QueryDevice()
}

func (c askedContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	c.asked()
	return c.Context.QueryPort(port)
}

func (c askedContext) QueryGID(port uint8, index int) (verbs.GID, error) {
	c.asked()
	return c.Context.QueryGID(port, index)
}

func (c askedContext) QueryGIDTable() ([]verbs.GIDEntry, error) {
	c.asked()
	return c.Context.QueryGIDTable()
}

// Rule: Prepare does not hold the turn (the right to run the reactor) while it queries the device. So
// the reactor can run passes during the queries.
func TestPreparingAsksTheDeviceOffTheTurn(t *testing.T) {
	notOnDevice(t, "the test sets Config.Provider, and mainBed then opens only the devices soft0 and soft1")
	onBeds(t, func(t *testing.T, b bed) {
		p := &askedProvider{Provider: b.open(t, Config{}, 1).provider}
		rt := b.open(t, Config{Provider: p, Reactors: 1, NoCallerDriving: true}, 0)
		n := 0
		asked := func() {
			n++
			ctx, cancel := context.WithTimeout(testContext(t), 10*time.Second)
			defer cancel()
			if err := rt.shards[0].r.Do(ctx, func() {}); err != nil {
				t.Errorf("query %d: the reactor ran no function during the query: %v", n, err)
			}
		}
		p.asked.Store(&asked)
		prepare(t, rt, PlainOptions{})
		if p.asked.Store(nil); n == 0 {
			t.Error("Prepare did not query the device")
		}
	})
}

// Rule: a TCP peer that names the address of another machine as that of its queue pair has this end send three packets
// there at most; the connection then ends with RETRY_EXC_ERR.
func TestAPlainPeerNamesTheAddressOfAnother(t *testing.T) {
	notOnDevice(t, "the test names a UDP port of its own")
	rt := mustOpen(t, Config{Provider: process(t), Device: "soft0"})
	victim := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 3)}))(t)
	defer victim.Close()
	p := prepare(t, rt, PlainOptions{Path: bootstrap.Path{Timeout: 8}})
	at := victim.LocalAddr().(*net.UDPAddr).AddrPort()
	c := must.Get(p.Connect(testContext(t), bootstrap.Dest{LID: at.Port(), QPN: 77, PSN: 88, GID: verbs.GIDFromAddr(at.Addr())}))(t)
	ctx := testContext(t)
	for range 20 {
		must.Get(c.SendBytes(ctx, make([]byte, 4096)))(t).Discard()
	}
	<-c.Done()
	if !errors.Is(c.Err(), verbs.StatusError(verbs.WCRetryExcErr)) {
		t.Errorf("the connection ended with %v, want RETRY_EXC_ERR", c.Err())
	}
	end := must.Get(net.Dial("udp4", at.String()))(t)
	defer end.Close()
	must.Get(end.Write([]byte("end")))(t) // loopback keeps the order
	n := 0
	for b, got := make([]byte, 1<<16), 0; got != len("end"); n++ {
		var err error
		if got, _, err = victim.ReadFrom(b); err != nil {
			t.Fatal(err)
		}
	}
	if n--; n == 0 || n > 3 {
		t.Errorf("%d packets were sent to the address, want 1 to 3", n)
	}
}
