package rpma

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the zero value of a configuration has librpma's defaults, and what is set is kept.
func TestConfigDefaults(t *testing.T) {
	for _, c := range []*ConnConfig{nil, {}} {
		got := must.Get(c.validate("test"))(t)
		if want := (ConnConfig{Timeout: 1000 * time.Millisecond, CQSize: 10, RCQSize: 0, SQSize: 10, RQSize: 10}); got != want {
			t.Errorf("the defaults are %+v, want %+v", got, want)
		}
	}
	set := ConnConfig{Timeout: 7, CQSize: 1, RCQSize: 2, SQSize: 3, RQSize: 4, SharedChannel: true}
	if got := must.Get(set.validate("test"))(t); got != set {
		t.Errorf("the configuration %+v became %+v", set, got)
	}
	if got := must.Get((*SRQConfig)(nil).validate("test"))(t); got != (SRQConfig{100, 100}) {
		t.Errorf("the defaults of an SRQ are %+v, want 100 and 100", got)
	}
}

// Rule: a connection has the queues of its configuration, one piece of memory for each request, the 8 inline
// bytes of an atomic write, and the runtime's largest numbers of retries and depths.
func TestConnectionOptions(t *testing.T) {
	cfg := must.Get((&ConnConfig{SQSize: 3, RQSize: 4}).validate("test"))(t)
	want := runtime.Options{Raw: true, Bare: true, SendDepth: 3, RecvCredits: 4, MaxSGE: 1, Inline: 8, PeerTimeout: -1, KeepAlive: -1, RetryCount: 7, ReadDepth: 255}
	if got := cfg.options(); !reflect.DeepEqual(got, want) {
		t.Errorf("the options are %+v, want %+v", got, want)
	}
	srq := &SRQ{q: &runtime.SharedRecv{}, places: places{most: 9}}
	cfg = must.Get((&ConnConfig{SQSize: 3, SRQ: srq}).validate("test"))(t)
	want.Shared, want.RecvCredits = srq.q, 1
	if got := cfg.options(); !reflect.DeepEqual(got, want) || cfg.SRQ != srq {
		t.Errorf("with an SRQ the options are %+v, want %+v", got, want)
	}
}

// Rule: a peer that does not answer is unreachable after the runtime's ConnectTimeout, and resolving it takes at
// most ConnConfig.Timeout.
func TestUnreachable(t *testing.T) {
	r := newRig(t)
	b := mainBed(t)
	ep, port := r.listen()
	_ = ep // nobody answers
	rt := must.Get(runtime.Open(runtime.Config{Provider: b.provider(t), Device: b.devices[0], ConnectTimeout: 50 * time.Millisecond}))(t)
	defer func() { must.Do(t, rt.Close(r.ctx)) }()
	p := must.Get(NewPeer(rt))(t)
	c := must.Get(must.Get(p.NewConnReq(r.ctx, r.addr[1], port, nil))(t).Connect(nil))(t)
	r.event(c, Unreachable)
	if !errors.Is(c.Err(), runtime.ErrConnectTimeout) {
		t.Errorf("the cause is %v, want runtime.ErrConnectTimeout", c.Err())
	}
	must.Do(t, c.Close(r.ctx))
	must.Do(t, p.Close())
	err := second(r.peer[0].NewConnReq(r.ctx, r.addr[1], port, &ConnConfig{Timeout: 1}))
	if isCode(t, "a timeout of a nanosecond", err, ErrProvider); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v, want context.DeadlineExceeded", err)
	}
	ended, end := contextEnded()
	defer end()
	if _, err := ep.NextConnReq(ended, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("NextConnReq with a context that has ended returned %v, want its error", err)
	}
}

// Rule: of concurrent calls of Endpoint.Close none returns before the endpoint is gone: then the peer can be
// closed. (Peer.Close found an open object: TestTwoProcesses of examples/rpma/09 once failed by that.)
func TestConcurrentCloseOfAnEndpoint(t *testing.T) {
	r := newRig(t)
	before := r.peer[1].children.Load()
	for range 300 {
		ep := must.Get(r.peer[1].Listen(r.ctx, r.addr[1], "0"))(t)
		left := make(chan int64, 8)
		for range cap(left) {
			go func() {
				if err := ep.Close(r.ctx); err != nil {
					t.Error(err)
				}
				left <- r.peer[1].children.Load() - before
			}()
		}
		for range cap(left) {
			if n := <-left; n != 0 {
				t.Fatalf("after Close the peer has %d open objects more than before Listen", n)
			}
		}
	}
}

// Rule: when the device is removed, connections are Lost, and their operations complete with a failure.
func TestDeviceRemoval(t *testing.T) {
	if onDevice() {
		t.Skip("the test removes the software RNIC")
	}
	provider := must.Get(alone())(t)
	r := bed{"", func(testing.TB) verbs.Provider { return provider }, [2]string{"soft0", "soft1"}}.rig(t)
	c, s := r.connect(nil, nil)
	must.Do(t, c.Recv(r.mr(0, 8, RecvBuf), 0, 8, 5))
	must.Do(t, provider.Remove("soft0"))
	r.event(c, Lost)
	if wc := r.next(c.CQ()); wc.Context != 5 || wc.Err() == nil {
		t.Errorf("the receive completed with %+v, want a failure", wc)
	}
	isCode(t, "a message after the removal", c.Send(nil, 0, 0, CompletionAlways, 1), ErrProvider)
	must.Do(t, c.Close(r.ctx))
	must.Do(t, s.Close(r.ctx))
}
