package verbs_test

import (
	"errors"
	"math"
	"os"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

func alloc(t *testing.T, size int) *verbs.Memory {
	t.Helper()
	m := must.Get(verbs.AllocMemory(size))(t)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// Rule: memory consists of whole pages, is zeroed, and is unmapped by Close, which may be
// repeated.
func TestMemoryIsWholePages(t *testing.T) {
	m := alloc(t, 5000)
	page := os.Getpagesize()
	if n := len(m.Bytes()); n < 5000 || n%page != 0 || m.Addr()%uint64(page) != 0 {
		t.Errorf("%v, want whole pages of %d", m, page)
	}
	for i, b := range m.Bytes() {
		if b != 0 {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	if err := m.Close(); err != nil || m.Bytes() != nil {
		t.Errorf("closed: %v, and there are still %d bytes", err, len(m.Bytes()))
	}
	for _, size := range []int{0, -1, math.MaxInt} {
		if _, err := verbs.AllocMemory(size); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d bytes: %v, want ErrInvalid", size, err)
		}
	}
}

// Rule: memory with a registered region stays mapped; Close fails.
func TestRegisteredMemoryIsNotFreed(t *testing.T) {
	p := must.Get(soft.New(soft.Config{}))(t)
	ctx := must.Get(p.Open("soft0"))(t)
	defer ctx.Close()
	pd := must.Get(ctx.AllocPD())(t)
	defer pd.Close()
	m := alloc(t, 100)
	mr := must.Get(pd.RegMR(m.Addr(), 100, m.Addr(), verbs.AccessLocalWrite))(t)
	if err := m.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing registered memory: %v, want ErrBusy", err)
	}
	m.Bytes()[0] = 1 // still mapped
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("closing it when nothing is registered: %v", err)
	}
}

// Rule: records alias the memory, and none reaches beyond it.
func TestRecordsAreTheMemory(t *testing.T) {
	m := alloc(t, 1)
	size := len(m.Bytes())
	wrs, at := verbs.Records[verbs.RecvWR](m, 64, 2)
	wrs[1].WRID = math.MaxUint64
	words, wordsAt := verbs.Records[uint64](m, 64+verbs.SizeofRecvWR, 1)
	if words[0] != math.MaxUint64 || m.Bytes()[64+verbs.SizeofRecvWR] != 255 {
		t.Error("a record that was written is not in the memory")
	}
	if at != m.Addr()+64 || wordsAt != at+verbs.SizeofRecvWR {
		t.Errorf("records at 0x%x and 0x%x of %v", at, wordsAt, m)
	}
	if none, _ := verbs.Records[verbs.WC](m, size, 0); len(none) != 0 {
		t.Errorf("no records are %d", len(none))
	}
	for _, c := range []struct{ off, n int }{{-8, 1}, {size, 1}, {size - 8, 2}, {0, size}, {0, -1}, {4, 1}, {1, 1}, {math.MaxInt, 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d words from byte %d of %d did not panic", c.n, c.off, size)
				}
			}()
			verbs.Records[uint64](m, c.off, c.n)
		}()
	}
}
