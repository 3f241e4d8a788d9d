package rdmacm

import (
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule (IBV_ACCESS_ZERO_BASED): requests name the memory of such a region by its distance from the
// region's begin, also in the calls that take a buffer. (The bug: they named the address.)
func TestZeroBasedRegion(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	m := must.Get(verbs.AllocMemory(4096))(t)
	defer func() { must.Do(t, m.Close()) }()
	src, err := RegMR(r.dev[0].PD(), m.Bytes(), verbs.AccessLocalWrite|verbs.AccessZeroBased)
	if errors.Is(err, verbs.ErrNotSupported) {
		t.Skip(err)
	}
	must.Do(t, err)
	dst := r.memory(s, 64, (*ID).RegWrite)
	copy(m.Bytes()[100:], "zero based")
	must.Do(t, c.PostWrite(1, m.Bytes()[100:110], src, verbs.SendSignaled, dst.Addr(), dst.RKey()))
	r.sent(c, 1)
	if got := string(dst.Bytes()[:10]); got != "zero based" {
		t.Errorf("a WRITE from a zero-based region brought %q", got)
	}
	must.Do(t, src.Dereg())
}

// Rule: sizes above the limits of the device are refused with EINVAL, as in C, before memory is made for
// them. (The bug: a large size ended the process.)
func TestSizesAboveTheLimitsAreRefused(t *testing.T) {
	r := newRig(t)
	d := r.dev[0]
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, verbs.ErrInvalid) || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", what, err)
		}
	}
	for _, n := range []int{math.MinInt, -1, 0, d.limits.MaxCQE + 1, math.MaxInt32, math.MaxInt} {
		_, err := d.CreateCQ(n)
		refused("CreateCQ", err)
	}
	_, at := r.listener(attr())
	id := r.dialer(at, nil)
	for _, n := range []uint32{math.MaxInt32, 1 << 31, math.MaxUint32} {
		for _, c := range []verbs.QPCap{{MaxSendWR: n}, {MaxRecvWR: n}, {MaxSendSGE: n}, {MaxRecvSGE: n}} {
			refused("CreateQP", id.CreateQP(nil, &QPInitAttr{Cap: c}))
		}
		if err := id.CreateQP(nil, &QPInitAttr{Cap: verbs.QPCap{MaxInlineData: n}}); err == nil {
			t.Errorf("CreateQP with %d inline bytes succeeded", n)
		}
		refused("CreateSRQ", id.CreateSRQ(nil, &SRQInitAttr{MaxWR: n}))
		refused("CreateSRQ", id.CreateSRQ(nil, &SRQInitAttr{MaxWR: 1, MaxSGE: n}))
	}
}

// Rule: the free buffers that a device keeps for copies are bounded in bytes, and those of a size that
// is used now replace others. (The bug: 64 of each size were kept, 64 GiB in the worst case.)
func TestKeptCopiesAreBoundedInBytes(t *testing.T) {
	r := newRig(t)
	d := r.dev[0]
	var b bouncer
	for _, n := range []int{1, 4096, 4097, 1 << 20, keptBytes, keptBytes + 1, 1 << 16} {
		var used []*bounce
		for range min(keptBounces+1, keptBytes/n+2) {
			_, at, err := b.copy(d.pd, make([]byte, n))
			must.Do(t, err)
			used = append(used, at)
		}
		for _, at := range used {
			at.End()
			bytes := 0
			for key, list := range b.free {
				if bytes += key.size * len(list); len(list) > keptBounces {
					t.Errorf("%d free buffers of %d bytes, want at most %d", len(list), key.size, keptBounces)
				}
			}
			if bytes != b.kept || bytes > keptBytes {
				t.Fatalf("after messages of %d bytes: %d free bytes, %d counted, want at most %d", n, bytes, b.kept, keptBytes)
			}
		}
		if key := used[0].key; n <= keptBytes && len(b.free[key]) == 0 {
			t.Errorf("after messages of %d bytes no buffer of %d is kept", n, key.size)
		}
	}
	must.Do(t, b.drop(nil))
}

// Rule (ibv_query_srq(3)): a shared receive queue reports at least what was asked for, until it is destroyed.
func TestASharedReceiveQueueReportsItsSizes(t *testing.T) {
	r := newRig(t)
	_, at := r.listener(attr())
	id := r.dialer(at, nil)
	must.Do(t, id.CreateSRQ(nil, &SRQInitAttr{MaxWR: 5, MaxSGE: 2}))
	s := id.SRQ()
	if a := must.Get(s.Query())(t); a.MaxWR < 5 || a.MaxSGE < 2 || a.Limit != 0 || a.UserData != 0 {
		t.Errorf("a queue of 5 receives of 2 elements reports %+v", a)
	}
	must.Do(t, id.DestroySRQ())
	if _, err := s.Query(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a destroyed queue: %v, want ErrClosed", err)
	}
}

// Rule: SOLICITED means nothing for a WRITE or READ without immediate data, and every call takes it, as in C. (The
// bug: PostWrite and PostRead refused it, and PostWriteV and PostReadV did not.)
func TestSolicitedIsTakenByEveryCall(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	here, there := r.memory(c, 8, (*ID).RegMsgs), r.memory(s, 8, (*ID).RegWrite)
	read := r.memory(s, 8, (*ID).RegRead)
	const flags = verbs.SendSignaled | verbs.SendSolicited
	must.Do(t, c.PostWrite(1, here.Bytes(), here, flags, there.Addr(), there.RKey()))
	must.Do(t, c.PostWriteV(2, []verbs.SGE{here.SGE(0, 8)}, flags, there.Addr(), there.RKey()))
	must.Do(t, c.PostRead(3, here.Bytes(), here, flags, read.Addr(), read.RKey()))
	must.Do(t, c.PostReadV(4, []verbs.SGE{here.SGE(0, 8)}, flags, read.Addr(), read.RKey()))
	for tag := range uint64(4) {
		r.sent(c, tag+1)
	}
}
