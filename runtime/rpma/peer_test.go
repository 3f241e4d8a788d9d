package rpma

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/altered"
)

// Rule: a device is found by its own address, and by one that is reached through it. The name that was found
// opens the device.
func TestFindDevice(t *testing.T) {
	b := mainBed(t)
	provider := b.provider(t)
	r := b.rig(t)
	for i, addr := range r.addr {
		name := must.Get(FindDevice(r.ctx, provider, addr, Local))(t)
		if want := provider.Name() + ":" + b.devices[i]; name != want {
			t.Errorf("the device of %s is %s, want %s", addr, name, want)
		}
		rt := must.Get(runtime.Open(runtime.Config{Device: name}))(t)
		must.Do(t, rt.Close(r.ctx))
		must.Get(FindDevice(r.ctx, provider, addr, Remote))(t)
	}
	t.Setenv("VERBENA_DEVICE", "no such provider:x")
	isCode(t, "an address that no device of the provider reaches", second(FindDevice(r.ctx, must.Get(alone())(t), "198.51.100.1", Remote)), ErrProvider)
	isCode(t, "an unknown provider", second(FindDevice(r.ctx, nil, r.addr[0], Local)), ErrProvider)
	t.Setenv("VERBENA_DEVICE", "")
	if name := must.Get(FindDevice(r.ctx, nil, "127.0.0.1", Remote))(t); name != "soft:soft0" {
		t.Errorf("without a provider the device that reaches 127.0.0.1 is %s, want soft:soft0", name)
	}
	other := must.Get(soft.New(soft.Config{Devices: []soft.DeviceConfig{{Name: "any", Addr: must.Get(resolve(r.ctx, "127.0.0.1"))(t), Link: soft.LinkPeers}}}))(t)
	for _, addr := range []string{"127.0.0.1", "127.0.0.5", "localhost"} {
		if name := must.Get(FindDevice(r.ctx, other, addr, Local))(t); name != "soft:any" {
			t.Errorf("the device with all addresses has %s, but %s was found", addr, name)
		}
	}
}

// Rule: while a peer has open objects it cannot be closed; without them closing is idempotent.
func TestPeerClose(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		p := r.peer[0]
		for what, open := range map[string]func() func() error{
			"a memory region":        func() func() error { return must.Get(p.NewMR(64, ReadSrc))(t).Close },
			"a shared receive queue": func() func() error { return must.Get(p.NewSRQ(nil))(t).Close },
			"an endpoint": func() func() error {
				ep := must.Get(p.Listen(r.ctx, r.addr[0], "0"))(t)
				return func() error { return ep.Close(r.ctx) }
			},
			"a request": func() func() error {
				q := must.Get(p.NewConnReq(r.ctx, r.addr[1], "7", nil))(t)
				return func() error { return q.Close(r.ctx) }
			},
		} {
			end := open()
			err := p.Close()
			if isCode(t, "closing a peer with "+what, err, ErrProvider); !errors.Is(err, verbs.ErrBusy) {
				t.Errorf("closing a peer with %s returned %v, want verbs.ErrBusy", what, err)
			}
			must.Do(t, end())
			must.Do(t, end())
		}
		must.Do(t, p.Close())
		must.Do(t, p.Close())
	})
}

// Rule: a closed peer makes no objects, and none is made beside its Close. (The bug: a closed peer made
// objects as before.)
func TestAClosedPeerMakesNothing(t *testing.T) {
	r := mainBed(t).rig(t)
	region := must.Get(r.rt[0].NewRegion(64, verbs.AccessLocalWrite))(t)
	for range 50 {
		p := must.Get(NewPeer(r.rt[0]))(t)
		var making sync.WaitGroup
		making.Go(func() {
			if m, err := p.NewMR(64, RecvBuf); err == nil {
				if err = p.Close(); !errors.Is(err, verbs.ErrBusy) {
					t.Errorf("Close with an open object: %v, want ErrBusy", err)
				}
				must.Do(t, m.Close())
			}
		})
		_ = p.Close() // busy, or first
		making.Wait()
		must.Do(t, p.Close())
		for what, open := range map[string]func() error{
			"NewMR":      func() error { return second(p.NewMR(64, ReadSrc)) },
			"RegRegion":  func() error { return second(p.RegRegion(region, RecvBuf)) },
			"NewSRQ":     func() error { return second(p.NewSRQ(nil)) },
			"Listen":     func() error { return second(p.Listen(r.ctx, r.addr[0], "0")) },
			"NewConnReq": func() error { return second(p.NewConnReq(r.ctx, r.addr[1], "7", nil)) },
		} {
			if err := open(); !errors.Is(err, runtime.ErrClosed) {
				t.Errorf("%s of a closed peer: %v, want ErrClosed", what, err)
			}
		}
		must.Do(t, p.Close())
	}
	must.Do(t, region.Close())
}

// Rule: a memory region knows its bytes, its size and its uses, until it is closed. Closing is refused
// while an operation uses it, and is idempotent. The memory of RegMR stays the caller's.
func TestMemoryRegions(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		own := mapped(t, 8192)
		m := must.Get(r.peer[0].RegMR(own[:5000], ReadSrc|RecvBuf))(t)
		if m.Size() != 5000 || len(m.Bytes()) != 5000 || &m.Bytes()[0] != &own[0] || m.Usage() != ReadSrc|RecvBuf {
			t.Errorf("the region has %d bytes for %v, want the 5000 for READ_SRC|RECV", m.Size(), m.Usage())
		}
		desc := must.Get(m.Descriptor())(t)
		remote := must.Get(ParseRemoteMR(desc[:]))(t)
		if remote.Size() != 5000 || remote.FlushTypes() != 0 || remote.d.rkey == 0 {
			t.Errorf("the descriptor says %v", remote)
		}
		c, s := r.connect(nil, nil)
		must.Do(t, c.Recv(m, 0, 8, 1))
		err := m.Close()
		if isCode(t, "closing memory in use", err, ErrProvider); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("closing memory in use returned %v, want verbs.ErrBusy", err)
		}
		must.Do(t, s.Send(nil, 0, 0, CompletionOnError, 1))
		r.done(c.CQ(), 1)
		isCode(t, "memory that is registered already", second(r.peer[0].RegMR(r.mr(0, 4096, ReadSrc).Bytes(), ReadSrc)), ErrInvalid)
		must.Do(t, m.Close())
		must.Do(t, m.Close())
		if m.Bytes() != nil {
			t.Error("a closed region has bytes")
		}
		isCode(t, "the descriptor of a closed region", second(m.Descriptor()), ErrInvalid)
		isCode(t, "a receive into a closed region", c.Recv(m, 0, 8, 1), ErrInvalid)
		isCode(t, "advice about a closed region", m.Advise(0, 8, verbs.AdvisePrefetch, 0), ErrInvalid)
		own[4999] = 1 // still mapped
		from := r.mr(1, 8, ReadDst)
		must.Do(t, s.Read(from, 0, remote, 0, 8, CompletionAlways, 2))
		if wc := r.next(s.CQ()); wc.Status != verbs.WCRemAccessErr {
			t.Errorf("a read of memory whose region was closed ended with %v, want REM_ACCESS_ERR", wc.Status)
		}
	})
}

// Rule: memory that is mapped without the permission to write can be a source, and is refused as a
// destination, with EFAULT.
func TestRegMRLooksAtThePermissionOfTheMapping(t *testing.T) {
	p := mainBed(t).rig(t).peer[0]
	b := mappedFor(t, 8192, false)
	for u, ok := range map[Usage]bool{
		ReadSrc: true, WriteSrc: true, ReadSrc | WriteSrc | SendBuf: true, ReadDst: false, WriteDst: false, RecvBuf: false, WriteSrc | RecvBuf: false,
	} {
		m, err := p.RegMR(b, u)
		if ok {
			must.Do(t, err)
			must.Do(t, m.Close())
			continue
		}
		if isCode(t, u.String(), err, ErrProvider); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("read-only memory for %v: %v, want EFAULT", u, err)
		}
	}
}

// Rule: closing a region ends the peers' access by its descriptor, although another region has the same
// bytes and uses, and that one stays open.
func TestTwoRegionsOfTheSameBytes(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		own := mapped(t, 4096)
		const use = ReadSrc | WriteDst
		first, second := must.Get(r.peer[0].RegMR(own, use))(t), must.Get(r.peer[0].RegMR(own, use))(t)
		var at [2]*RemoteMR
		for i, m := range []*MR{first, second} {
			desc := must.Get(m.Descriptor())(t)
			at[i] = must.Get(ParseRemoteMR(desc[:]))(t)
		}
		_, s := r.connect(nil, nil)
		must.Do(t, first.Close())
		into := r.mr(1, 8, ReadDst)
		must.Do(t, s.Read(into, 0, at[1], 0, 8, CompletionAlways, 2))
		r.done(s.CQ(), 2)
		must.Do(t, s.Read(into, 0, at[0], 0, 8, CompletionAlways, 1))
		if wc := r.next(s.CQ()); wc.Status != verbs.WCRemAccessErr {
			t.Errorf("a read by the descriptor of the closed region ended with %v, want REM_ACCESS_ERR", wc.Status)
		}
		must.Do(t, second.Close())
	})
}

// Rule: memory beyond Config.Memory.MaxBytes of the runtime is ErrNoMemory, and the peer can be closed.
func TestNoMemory(t *testing.T) {
	b := mainBed(t)
	rt := must.Get(runtime.Open(runtime.Config{Provider: b.provider(t), Device: b.devices[0], Memory: runtime.MemoryConfig{MaxBytes: 32 << 20}}))(t)
	p := must.Get(NewPeer(rt))(t)
	err := second(p.NewMR(64<<20, ReadSrc))
	if isCode(t, "more memory than the runtime may have", err, ErrNoMemory); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("the error is %v, want ENOMEM", err)
	}
	must.Do(t, p.Close())
	must.Do(t, rt.Close(testContext(t)))
}

// Rule: a region of the runtime on a file can be a memory region. It stays open when that is closed.
func TestRegRegion(t *testing.T) {
	r := newRig(t)
	region := must.Get(fileRegion(t, r.rt[0], ReadSrc|WriteDst))(t)
	m := must.Get(r.peer[0].RegRegion(region, WriteDst))(t)
	copy(m.Bytes(), "on a file")
	must.Do(t, m.Close())
	if !bytes.HasPrefix(region.Bytes(), []byte("on a file")) {
		t.Error("the region of the runtime has not what the memory region had, or was closed with it")
	}
	must.Do(t, region.Close())
	isCode(t, "a use that the region does not permit", second(r.peer[0].RegRegion(must.Get(r.rt[0].NewRegion(64, verbs.AccessRemoteRead))(t), WriteDst)), ErrInvalid)
}

// Rule: memory of another peer's runtime is ErrInvalid.
func TestMemoryOfAnotherPeer(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(nil, nil)
	theirs := r.mr(1, 64, SendBuf|RecvBuf)
	isCode(t, "a message from memory of another runtime", c.Send(theirs, 0, 8, CompletionAlways, 1), ErrInvalid)
	isCode(t, "a receive into memory of another runtime", c.Recv(theirs, 0, 8, 1), ErrInvalid)
	isCode(t, "a receive into memory that is not for receives", c.Recv(r.mr(0, 64, SendBuf), 0, 8, 1), ErrInvalid)
	isCode(t, "a read into memory that is not for reads", c.Read(r.mr(0, 64, SendBuf), 0, r.remote(r.mr(1, 64, ReadSrc)), 0, 8, CompletionAlways, 1), ErrInvalid)
	isCode(t, "a write to memory that is not for writes", c.Write(r.remote(r.mr(1, 64, ReadSrc)), 0, r.mr(0, 64, WriteSrc), 0, 8, CompletionAlways, 1), ErrInvalid)
}

// advising is a provider whose devices answer advice with an error.
type advising struct {
	altered.Provider
	answer *error
	got    *advice
}

// advice is what a device was told about one piece of memory.
type advice struct {
	what  verbs.Advice
	flags verbs.AdviseFlags
	sge   verbs.SGE
}

func (p advising) Open(name string) (verbs.Context, error) {
	ctx, err := p.Provider.Open(name)
	return advisingContext{ctx, p}, err
}

type advisingContext struct {
	verbs.Context
	p advising
}

func (c advisingContext) AllocPD() (verbs.PD, error) {
	pd, err := c.Context.AllocPD()
	return advisingPD{pd, c.p}, err
}

type advisingPD struct {
	verbs.PD
	p advising
}

func (d advisingPD) RegMR(addr, n, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	return d.PD.RegMR(addr, n, iova, access&^verbs.AccessOnDemand)
}

func (d advisingPD) AdviseMR(what verbs.Advice, flags verbs.AdviseFlags, list []verbs.SGE) error {
	*d.p.got = advice{what, flags, list[0]}
	return *d.p.answer
}

// Rule: the device gets the advice with its flags, for the bytes that are named. Advice that it does not know is ErrNotSupported, wrong advice ErrInvalid, and another refusal
// ErrProvider. A device without on-demand paging knows no advice.
func TestAdvise(t *testing.T) {
	var answer error
	var got advice
	odp := verbs.ODPCaps{General: verbs.ODPSupport, RC: verbs.ODPWrite | verbs.ODPRead}
	r := bed{"advising", func(testing.TB) verbs.Provider {
		return advising{altered.Provider{Provider: soft.Default(), Change: func(a *verbs.DeviceAttr) { a.ODP = odp }}, &answer, &got}
	}, [2]string{"soft0", "soft1"}}.rig(t)
	region := must.Get(r.rt[0].NewRegion(4096, verbs.AccessLocalWrite|verbs.AccessOnDemand))(t)
	m := must.Get(r.peer[0].RegRegion(region, RecvBuf))(t)
	r.mrs = append(r.mrs, m)
	refused := func(errno syscall.Errno) error { return &verbs.OpError{Op: "ibv_advise_mr", Errno: errno} }
	must.Do(t, m.Advise(1024, 2048, verbs.AdvisePrefetchWrite, verbs.AdviseFlush))
	sge := must.Get(region.Slice(1024, 2048))(t).SGE()
	if want := (advice{verbs.AdvisePrefetchWrite, verbs.AdviseFlush, sge}); got != want {
		t.Errorf("the device was told %+v, want %+v", got, want)
	}
	for _, x := range []struct {
		answer error
		want   Code
	}{{refused(syscall.EFAULT), ErrInvalid}, {refused(syscall.EINVAL), ErrInvalid}, {verbs.ErrNotSupported, ErrNotSupported}, {refused(syscall.EOPNOTSUPP), ErrNotSupported}, {refused(syscall.EIO), ErrProvider}} {
		answer = x.answer
		isCode(t, "advice that is answered with "+x.answer.Error(), m.Advise(0, 4096, verbs.AdvisePrefetch, 0), x.want)
	}
	isCode(t, "advice about bytes beyond the region", m.Advise(4096, 1, verbs.AdvisePrefetch, 0), ErrInvalid)
	locked := r.mr(0, 64, RecvBuf)
	isCode(t, "advice about memory that is locked", locked.Advise(0, 64, verbs.AdvisePrefetch, 0), ErrInvalid)
	if plain := newRig(t); !plain.rt[0].DeviceAttr().ODP.Has() {
		isCode(t, "advice on a device without on-demand paging", plain.mr(0, 64, RecvBuf).Advise(0, 64, verbs.AdvisePrefetch, 0), ErrNotSupported)
	}
}

// Rule: a peer knows what its device is capable of: each of the two kinds of on-demand operations counts.
func TestODPCapable(t *testing.T) {
	for _, x := range []struct {
		caps verbs.ODPCaps
		want bool
	}{
		{verbs.ODPCaps{}, false}, {verbs.ODPCaps{General: verbs.ODPSupport}, false}, {verbs.ODPCaps{General: verbs.ODPSupport, RC: verbs.ODPWrite}, false},
		{verbs.ODPCaps{General: verbs.ODPSupport, RC: verbs.ODPRead}, false}, {verbs.ODPCaps{RC: verbs.ODPRead | verbs.ODPWrite}, false},
		{verbs.ODPCaps{General: verbs.ODPSupport, RC: verbs.ODPRead | verbs.ODPWrite | verbs.ODPSend}, true},
	} {
		provider := altered.Provider{Provider: soft.Default(), Change: func(a *verbs.DeviceAttr) { a.ODP = x.caps }}
		r := bed{"", func(testing.TB) verbs.Provider { return provider }, [2]string{"soft0", "soft1"}}.rig(t)
		if got := r.peer[0].ODPCapable(); got != x.want {
			t.Errorf("a device with %+v is capable: %t, want %t", x.caps, got, x.want)
		}
	}
}

// Rule: an address of the machine is known as one.
func TestIsOwn(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1": true, "127.9.9.9": true, "198.51.100.1": false} {
		if got := isOwn(must.Get(resolve(testContext(t), addr))(t)); got != want {
			t.Errorf("%s is of this machine: %t, want %t", addr, got, want)
		}
	}
	addrs := must.Get(net.InterfaceAddrs())(t)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			if !isOwn(must.Get(resolve(testContext(t), n.IP.String()))(t)) {
				t.Errorf("the address %v of an interface is taken for another's", n.IP)
			}
		}
	}
}
