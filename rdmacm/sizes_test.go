package rdmacm

import (
	"errors"
	"math"
	"math/bits"
	"syscall"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// longMR is a registration of as many bytes as the address space has, of which the device knows nothing.
type longMR struct {
	verbs.MR
	addr uint64
}

func (m longMR) Addr() uint64   { return m.addr }
func (m longMR) Length() uint64 { return math.MaxInt }

// Rule (struct ibv_sge): an element has a length of 32 bits. A buffer that is longer is refused with
// EINVAL by every call. (The bug: the length was cut, and 2^32+8 bytes completed with success after 8.)
func TestLengthsAreNotCut(t *testing.T) {
	if bits.UintSize < 64 {
		t.Skip("no buffer is longer than 32 bits can say")
	}
	r := newRig(t)
	c, _ := r.connected(attr())
	in := r.memory(c, 64, (*ID).RegMsgs)
	long := uint64(1) << 32
	for _, n := range []uint64{long, long + 1, long + 8, long + 1<<20} {
		buf := unsafe.Slice(unsafe.SliceData(in.Bytes()), n) // never accessed
		mr := &MR{MR: longMR{in.MR, in.Addr()}, buf: buf}
		for what, err := range map[string]error{
			"PostSend":                  c.PostSend(1, buf, mr, verbs.SendSignaled),
			"PostWrite":                 c.PostWrite(1, buf, mr, verbs.SendSignaled, 0, 0),
			"PostRead":                  c.PostRead(1, buf, mr, verbs.SendSignaled, 0, 0),
			"PostRecv":                  c.PostRecv(1, buf, mr),
			"PostSend without a region": c.PostSend(1, buf, nil, verbs.SendSignaled),
		} {
			if !errors.Is(err, syscall.EINVAL) || !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("%s of %d bytes: %v, want EINVAL", what, n, err)
			}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("MR.SGE of %d bytes did not panic", n)
				}
			}()
			mr.SGE(0, int(n))
		}()
	}
}

// Rule (IBV_ACCESS_ZERO_BASED): requests name the memory of such a region by its distance from the
// region's begin, also in the calls that take a buffer. (The bug: they named the address.)
func TestZeroBasedRegion(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	m := must.Get(verbs.AllocMemory(4096))(t)
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
	must.Do(t, m.Close())
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
