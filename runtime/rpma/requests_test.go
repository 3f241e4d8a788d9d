package rpma

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/verbstest/altered"
)

// requestLog has the requests that the devices of a provider got, as texts.
type requestLog struct {
	verbs.Provider
	without verbs.OpcodeSet  // what its devices do not execute
	lacks   verbs.DeviceCaps // what they do not have

	mu  sync.Mutex
	all []string
}

func (l *requestLog) Open(name string) (verbs.Context, error) {
	ctx, err := l.Provider.Open(name)
	return loggedContext{altered.Context{Context: ctx, Change: func(a *verbs.DeviceAttr) { a.Opcodes &^= l.without; a.Caps &^= l.lacks }}, l}, err
}

type loggedContext struct {
	altered.Context
	log *requestLog
}

// Execute logs the requests of a batch.
func (c loggedContext) Execute(b *verbs.IOBatch) error {
	for _, g := range b.Sends {
		for at, n := g.Head, 0; n < g.Count; n++ {
			w := record[verbs.SendWR](at)
			c.log.add(w)
			at = w.Next
		}
	}
	return c.Context.Execute(b)
}

// record returns the record at an address of off-heap memory.
func record[T any](at uint64) *T {
	a, ok := mem.Find(at, 1)
	if !ok {
		panic(fmt.Sprintf("no memory at 0x%x", at))
	}
	all, ok := mem.Array[T](a, at, 1)
	if !ok {
		panic(fmt.Sprintf("no record at 0x%x", at))
	}
	return &all[0]
}

// add logs a request without SIGNALED, which the reactor sets as it likes.
func (l *requestLog) add(w *verbs.SendWR) {
	n := uint64(0)
	for i := range uint64(w.NumSGE) {
		n += uint64(record[verbs.SGE](w.SGList + i*verbs.SizeofSGE).Length)
	}
	if w.Opcode == verbs.WRFlush {
		n = w.W1
	}
	s := fmt.Sprintf("%v %d", w.Opcode, n)
	if w.RemoteAddr != 0 {
		s += fmt.Sprintf(" at %d", w.RemoteAddr%4096)
	}
	if f := w.Flags &^ verbs.SendSignaled; f != 0 {
		s += fmt.Sprintf(" %v", f)
	}
	if w.Opcode == verbs.WRSendWithImm || w.Opcode == verbs.WRRDMAWriteWithImm {
		s += fmt.Sprintf(" imm %x", w.ImmData)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
}

// take returns the log and empties it.
func (l *requestLog) take() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, l.all = l.all, nil
	return all
}

// logged makes a rig whose requests are logged.
func logged(t *testing.T, without verbs.OpcodeSet, lacks verbs.DeviceCaps) (*rig, *requestLog) {
	b := mainBed(t)
	l := &requestLog{Provider: b.provider(t), without: without, lacks: lacks}
	b.provider = func(testing.TB) verbs.Provider { return l }
	return b.rig(t), l
}

// sent checks the requests since the last call.
func (l *requestLog) sent(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := l.take(); !slices.Equal(got, want) {
		t.Errorf("%s: the device got %q, want %q", what, got, want)
	}
}

var extensions = verbs.Opcodes(verbs.WRFlush, verbs.WRAtomicWrite)

// Rule: the requests are those of librpma: a READ of 8 bytes in place of a flush, whatever its length; an
// inline and fenced WRITE of 8 bytes in place of an atomic write; immediate data in network order.
func TestRequestsAreLibrpmas(t *testing.T) {
	for _, without := range []verbs.OpcodeSet{extensions, 0} {
		r, log := logged(t, without, 0)
		c, s := r.connect(nil, nil)
		must.Do(t, s.Recv(nil, 0, 0, 1))
		dst := r.remote(r.mr(1, 4096, WriteDst|ReadSrc|FlushVisibility))
		m := r.mr(0, 4096, WriteSrc|ReadDst|SendBuf)
		log.take()
		step := func(what string, err error, want ...string) {
			t.Helper()
			must.Do(t, err)
			r.done(c.CQ(), 7)
			log.sent(t, what, want...)
		}
		flush, atomic := "FLUSH 100 at 16", "ATOMIC_WRITE 0 at 8"
		if without != 0 {
			flush, atomic = "RDMA_READ 8 at 16", "RDMA_WRITE 8 at 8 FENCE|INLINE"
		} else if !r.peer[0].flushes() || !r.peer[0].atomicWrites() {
			continue // the device does not have them
		}
		step("a write", c.Write(dst, 32, m, 0, 100, CompletionAlways, 7), "RDMA_WRITE 100 at 32")
		step("a read", c.Read(m, 0, dst, 40, 100, CompletionAlways, 7), "RDMA_READ 100 at 40")
		step("a flush", c.Flush(dst, 16, 100, Visibility, CompletionAlways, 7), flush)
		step("an atomic write", c.AtomicWrite(dst, 8, [8]byte{1}, CompletionAlways, 7), atomic)
		step("a write with immediate data", c.WriteWithImm(dst, 48, m, 0, 10, CompletionAlways, 0x01020304, 7),
			fmt.Sprintf("RDMA_WRITE_WITH_IMM 10 at 48 imm %x", verbs.NetworkOrder(0x01020304)))
		must.Do(t, s.Recv(nil, 0, 0, 1))
		step("a message of no bytes with immediate data", c.SendWithImm(nil, 0, 0, CompletionAlways, 0x0a0b0c0d, 7),
			fmt.Sprintf("SEND_WITH_IMM 0 imm %x", verbs.NetworkOrder(0x0a0b0c0d)))
		step("a write of no bytes", c.Write(nil, 0, nil, 0, 0, CompletionAlways, 7), "RDMA_WRITE 0")
		step("a read of no bytes", c.Read(nil, 0, nil, 0, 0, CompletionAlways, 7), "RDMA_READ 0")
	}
}

// Rule: a device that executes FLUSH with one placement only is used as one without FLUSH, as librpma does.
func TestAFlushNeedsBothPlacements(t *testing.T) {
	for _, lacks := range []verbs.DeviceCaps{verbs.CapFlushGlobal, verbs.CapFlushPersistent, verbs.CapFlushGlobal | verbs.CapFlushPersistent} {
		r, log := logged(t, 0, lacks)
		c, _ := r.connect(nil, nil)
		c.ApplyRemotePeerConfig(PeerConfig{DirectWriteToPMem: true})
		dst := r.remote(r.mr(1, 4096, WriteDst|FlushVisibility|FlushPersistent))
		log.take()
		for _, kind := range []FlushType{Visibility, Persistent} {
			must.Do(t, c.Flush(dst, 16, 100, kind, CompletionAlways, 7))
			r.done(c.CQ(), 7)
			log.sent(t, "a flush", "RDMA_READ 8 at 16")
		}
	}
}
