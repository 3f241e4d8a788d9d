package rpma

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/altered"
)

// Rule: an atomic write needs an offset that is a multiple of 8, and memory. It copies its 8 bytes. After
// a write, a flush, an atomic write and a flush, all data is there. (TestRequestsAreLibrpmas shows the
// fence that orders the atomic write after a flush.)
func TestContract3AtomicWrite(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, _ := r.connect(nil, nil)
		into := r.mr(1, 64, WriteDst|FlushVisibility)
		dst, from := r.remote(into), r.mr(0, 64, WriteSrc)
		for _, off := range []int{1, 4, 7, 9, -1, -4} {
			isCode(t, "an atomic write to an offset that is no multiple of 8", c.AtomicWrite(dst, off, [8]byte{}, CompletionAlways, 1), ErrInvalid)
		}
		isCode(t, "an atomic write beyond the memory", c.AtomicWrite(dst, 64, [8]byte{}, CompletionAlways, 1), ErrInvalid)
		isCode(t, "an atomic write before the memory", c.AtomicWrite(dst, -8, [8]byte{}, CompletionAlways, 1), ErrInvalid)
		isCode(t, "an atomic write to no memory", c.AtomicWrite(nil, 0, [8]byte{}, CompletionAlways, 1), ErrInvalid)
		odd := *dst
		odd.d.addr += 4
		isCode(t, "an atomic write to an address that is no multiple of 8", c.AtomicWrite(&odd, 0, [8]byte{}, CompletionAlways, 1), ErrInvalid)
		for i := range byte(20) {
			want := [8]byte{i, 1, 2, 3, 4, 5, 6, 7}
			from.Bytes()[0] = i
			must.Do(t, c.Write(dst, 32, from, 0, 32, CompletionOnError, 1))
			must.Do(t, c.Flush(dst, 32, 32, Visibility, CompletionOnError, 2))
			must.Do(t, c.AtomicWrite(dst, 8, want, CompletionOnError, 3))
			must.Do(t, c.Flush(dst, 8, 8, Visibility, CompletionAlways, 4))
			r.done(c.CQ(), 4)
			if got := into.Bytes()[8:16]; !bytes.Equal(got, want[:]) || into.Bytes()[32] != i {
				t.Fatalf("the word is %v and the data %d, want %v and %d", got, into.Bytes()[32], want, i)
			}
		}
	})
}

// Rule: a flush needs memory, flags and a known type; a persistent one needs a peer with direct write, and
// each needs memory that is for flushes of its type. Without FLUSH the 8 bytes that are read in its place must
// be in the memory.
func TestContract4Flush(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, _ := r.connect(nil, nil)
		into := r.mr(1, 64, WriteDst|FlushVisibility)
		dst := r.remote(into)
		persistent, none := *dst, *dst
		persistent.d.usage, none.d.usage = WriteDst|FlushPersistent, WriteDst
		flush := func(what string, to *RemoteMR, off, n int, kind FlushType, want Code) {
			t.Helper()
			isCode(t, what, c.Flush(to, off, n, kind, CompletionAlways, 1), want)
		}
		flush("a flush of no memory", nil, 0, 8, Visibility, ErrInvalid)
		flush("a flush of an unknown type", dst, 0, 8, Visibility+1, ErrInvalid)
		flush("a flush of a negative type", dst, 0, 8, -1, ErrInvalid)
		flush("a persistent flush without a peer configuration", &persistent, 0, 8, Persistent, ErrNotSupported)
		c.ApplyRemotePeerConfig(PeerConfig{})
		flush("a persistent flush of a peer without direct write", &persistent, 0, 8, Persistent, ErrNotSupported)
		c.ApplyRemotePeerConfig(PeerConfig{DirectWriteToPMem: true})
		flush("a persistent flush of memory for no flushes", &none, 0, 8, Persistent, ErrNotSupported)
		flush("a persistent flush of memory for flushes to visibility", dst, 0, 8, Persistent, ErrNotSupported)
		flush("a flush to visibility of memory for no flushes", &none, 0, 8, Visibility, ErrNotSupported)
		flush("a flush to visibility of memory for persistent flushes", &persistent, 0, 8, Visibility, ErrNotSupported)
		flush("a flush beyond the memory", dst, 60, 8, Visibility, ErrInvalid)
		ok := func(to *RemoteMR, off, n int, kind FlushType) {
			t.Helper()
			must.Do(t, c.Flush(to, off, n, kind, CompletionAlways, 9))
			r.done(c.CQ(), 9)
		}
		ok(dst, 0, 64, Visibility)
		ok(dst, 56, 8, Visibility)
		for last := 1; last < 8; last++ {
			if r.peer[0].flushes() {
				ok(dst, 64-last, last, Visibility)
			} else {
				flush("a flush within the last 7 bytes", dst, 64-last, last, Visibility, ErrInvalid)
			}
		}
		if !r.peer[0].flushes() {
			ok(dst, 0, 1, Visibility)
			ok(r.remote(r.mr(1, 64, WriteDst|FlushPersistent)), 0, 64, Persistent)
		}
	})
}

// Rule: where the device executes FLUSH, and accepts a file as persistent memory, a persistent flush of a
// region on a file succeeds.
func TestContract4PersistentFlushOfAFile(t *testing.T) {
	r := newRig(t)
	usage := WriteDst | FlushPersistent | FlushVisibility
	region, err := fileRegion(t, r.rt[1], usage)
	if onDevice() && err != nil {
		t.Skipf("the device accepts no file as persistent memory: %v", err)
	}
	must.Do(t, err)
	into := must.Get(r.peer[1].RegRegion(region, usage))(t)
	r.mrs = append(r.mrs, into)
	_, err = r.peer[1].RegRegion(region, usage|ReadSrc|SendBuf)
	isCode(t, "a use that the region does not permit", err, ErrInvalid)
	c, _ := r.connect(nil, nil)
	c.ApplyRemotePeerConfig(PeerConfig{DirectWriteToPMem: true})
	from := r.mr(0, 64, WriteSrc)
	copy(from.Bytes(), "persistent")
	must.Do(t, c.Write(r.remote(into), 100, from, 0, 10, CompletionOnError, 1))
	must.Do(t, c.Flush(r.remote(into), 100, 10, Persistent, CompletionAlways, 2))
	r.done(c.CQ(), 2)
	if got := into.Bytes()[100:110]; string(got) != "persistent" {
		t.Errorf("the memory has %q after the flush", got)
	}
}

// Rule: an operation without memory has no bytes: with any other number it is ErrInvalid. Bytes that are
// not in the memory, at either end, are ErrInvalid.
func TestContract5OperationsOfNoBytes(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, s := r.connect(nil, nil)
		m, into := r.mr(0, 64, WriteSrc|ReadDst|SendBuf|RecvBuf), r.mr(1, 64, WriteDst|ReadSrc)
		dst := r.remote(into)
		const always = CompletionAlways
		for _, x := range []struct {
			local  *MR
			off    int
			remote *RemoteMR
			at, n  int
		}{
			{nil, 0, dst, 0, 0}, {nil, 0, dst, 0, 8}, {m, 0, nil, 0, 0}, {m, 0, nil, 0, 8}, {nil, 1, nil, 0, 0}, {nil, 0, nil, 1, 0}, {nil, 0, nil, 0, 1}, {nil, 1, nil, 1, 1},
			{m, 60, dst, 0, 8}, {m, 0, dst, 60, 8}, {m, -1, dst, 0, 8}, {m, 0, dst, -1, 8}, {m, 0, dst, 0, -1}, {m, 65, dst, 0, 0}, {m, 0, dst, 65, 0},
		} {
			isCode(t, "a read", c.Read(x.local, x.off, x.remote, x.at, x.n, always, 1), ErrInvalid)
			isCode(t, "a write", c.Write(x.remote, x.at, x.local, x.off, x.n, always, 1), ErrInvalid)
			isCode(t, "a write with immediate data", c.WriteWithImm(x.remote, x.at, x.local, x.off, x.n, always, 1, 1), ErrInvalid)
		}
		srq := must.Get(r.peer[1].NewSRQ(nil))(t)
		defer func() { must.Do(t, srq.Close()) }()
		isCode(t, "a receive of an SRQ beyond its memory", srq.Recv(into, 60, 8, 1), ErrInvalid)
		for _, x := range []struct{ off, n int }{{1, 0}, {0, 1}, {1, 1}, {-1, 0}} {
			isCode(t, "a message without memory", c.Send(nil, x.off, x.n, always, 1), ErrInvalid)
			isCode(t, "a message with immediate data without memory", c.SendWithImm(nil, x.off, x.n, always, 1, 1), ErrInvalid)
			isCode(t, "a receive without memory", c.Recv(nil, x.off, x.n, 1), ErrInvalid)
			isCode(t, "a receive of an SRQ without memory", srq.Recv(nil, x.off, x.n, 1), ErrInvalid)
		}
		for _, x := range []struct{ off, n int }{{60, 8}, {-1, 8}, {0, 65}, {0, -1}} {
			isCode(t, "a message beyond its memory", c.Send(m, x.off, x.n, always, 1), ErrInvalid)
			isCode(t, "a receive beyond its memory", c.Recv(m, x.off, x.n, 1), ErrInvalid)
		}
		for i := range uint64(3) {
			must.Do(t, s.Recv(nil, 0, 0, i))
		}
		must.Do(t, c.Read(nil, 0, nil, 0, 0, always, 11))
		must.Do(t, c.Write(nil, 0, nil, 0, 0, always, 12))
		must.Do(t, c.WriteWithImm(nil, 0, nil, 0, 0, always, 5, 13))
		must.Do(t, c.Send(nil, 0, 0, always, 14))
		must.Do(t, c.SendWithImm(nil, 0, 0, always, 6, 15))
		must.Do(t, c.Write(dst, 64, m, 64, 0, always, 16)) // no bytes at the end of memory
		for word := uint64(11); word <= 16; word++ {
			r.done(c.CQ(), word)
		}
		for range 3 {
			if wc := r.next(s.CQ()); wc.Err() != nil || wc.Bytes != 0 {
				t.Errorf("a message of no bytes arrived as %+v", wc)
			}
		}
	})
}

// Rule: the uses of memory select its access. On iWARP the destination of a READ may be written by peers.
func TestContract11AccessOfUses(t *testing.T) {
	const local, read, write = verbs.AccessLocalWrite, verbs.AccessRemoteRead, verbs.AccessRemoteWrite
	for _, x := range []struct {
		usage        Usage
		roce, iWARP_ verbs.AccessFlags
	}{
		{ReadSrc, read, read}, {ReadDst, local, local | write}, {WriteSrc, local, local}, {WriteDst, local | write, local | write},
		{FlushVisibility, verbs.AccessFlushGlobal, verbs.AccessFlushGlobal}, {FlushPersistent, verbs.AccessFlushPersistent, verbs.AccessFlushPersistent},
		{SendBuf, 0, 0}, {RecvBuf, local, local},
		{ReadSrc | WriteDst, read | write | local, read | write | local},
	} {
		if a, b := x.usage.access(false), x.usage.access(true); a != x.roce || b != x.iWARP_ {
			t.Errorf("%v is registered with %v, on iWARP with %v; want %v and %v", x.usage, a, b, x.roce, x.iWARP_)
		}
	}
	for name, b := range map[bool]bed{true: mainBed(t), false: plainBed(t)} {
		r := b.rig(t)
		m := r.mr(0, 64, FlushVisibility)
		const both = verbs.CapFlushGlobal | verbs.CapFlushPersistent
		if native := r.peer[0].flushes(); native != (name && r.rt[0].DeviceAttr().Caps&both == both) && !onDevice() {
			t.Errorf("bed %s executes FLUSH: %t", b.name, native)
		} else if got := m.region.Access()&read != 0; got == native {
			t.Errorf("memory for flushes can be read by peers: %t; the device executes FLUSH: %t; want one of the two", got, native)
		}
	}
}

// refusing is a provider whose devices refuse to lock memory with an errno.
type refusing struct {
	altered.Provider
	errno    *syscall.Errno // 0: they do not
	onDemand *syscall.Errno // with which they refuse memory on demand
	with     *[]verbs.AccessFlags
}

func (p refusing) Open(name string) (verbs.Context, error) {
	ctx, err := p.Provider.Open(name)
	return refusingContext{ctx, p}, err
}

type refusingContext struct {
	verbs.Context
	p refusing
}

func (c refusingContext) AllocPD() (verbs.PD, error) {
	pd, err := c.Context.AllocPD()
	return refusingPD{pd, c.p}, err
}

type refusingPD struct {
	verbs.PD
	p refusing
}

func (d refusingPD) RegMR(addr, n, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	*d.p.with = append(*d.p.with, access)
	onDemand := access&verbs.AccessOnDemand != 0
	if errno := *d.p.errno; errno != 0 && !onDemand {
		return nil, &verbs.OpError{Op: "ibv_reg_mr", Errno: errno}
	}
	if errno := *d.p.onDemand; errno != 0 && onDemand {
		return nil, &verbs.OpError{Op: "ibv_reg_mr", Errno: errno}
	}
	return d.PD.RegMR(addr, n, iova, access&^verbs.AccessOnDemand)
}

// Rule: memory is registered on demand only if the device refuses to lock it with EOPNOTSUPP, and is
// capable of that. If it refuses that, too, the error has the errno of the second refusal.
func TestContract11OnDemandAfterEOPNOTSUPP(t *testing.T) {
	for _, capable := range []bool{true, false} {
		var errno, odp syscall.Errno
		var with []verbs.AccessFlags
		change := func(a *verbs.DeviceAttr) {
			if a.ODP = (verbs.ODPCaps{}); capable {
				a.ODP = verbs.ODPCaps{General: verbs.ODPSupport, RC: verbs.ODPWrite | verbs.ODPRead}
			}
		}
		b := bed{"refusing", func(testing.TB) verbs.Provider {
			return refusing{altered.Provider{Provider: soft.Default(), Change: change}, &errno, &odp, &with}
		}, [2]string{"soft0", "soft1"}}
		r := b.rig(t)
		if got := r.peer[0].ODPCapable(); got != capable {
			t.Errorf("ODPCapable is %t, want %t", got, capable)
		}
		for _, errno = range []syscall.Errno{0, syscall.EOPNOTSUPP, syscall.EINVAL} {
			with = nil
			m, err := r.peer[0].NewMR(64, ReadSrc)
			onDemand := capable && errno == syscall.EOPNOTSUPP
			if onDemand || errno == 0 {
				must.Do(t, err)
				must.Do(t, m.Close())
			} else if isCode(t, "a registration that the device refuses", err, ErrProvider); !errors.Is(err, errno) {
				t.Errorf("the error is %v, want %v", err, errno)
			}
			if last := with[len(with)-1]; last&verbs.AccessOnDemand != 0 != onDemand {
				t.Errorf("capable %t, refused with %v: the last registration has access %v", capable, errno, last)
			}
		}
		errno, odp = syscall.EOPNOTSUPP, syscall.EPERM
		want := map[bool]syscall.Errno{true: odp, false: errno}[capable]
		_, err := r.peer[0].NewMR(64, ReadSrc)
		if isCode(t, "memory that the device neither locks nor takes on demand", err, ErrProvider); !errors.Is(err, want) {
			t.Errorf("capable %t: the error is %v, want %v", capable, err, want)
		}
		errno, odp = 0, 0
	}
}
