package soft

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// flushWR flushes n bytes at an address of the peer.
func (e *peer) flushWR(id, to uint64, key uint32, n uint64, p verbs.FlushPlacement, s verbs.FlushSelectivity) request {
	wr := e.send(id, verbs.WRFlush, verbs.SendSignaled)
	wr.SetFlush(to, key, n, p, s)
	return wr
}

// atomicWR writes one word.
func (e *peer) atomicWR(id, to uint64, key uint32, v uint64) request {
	wr := e.send(id, verbs.WRAtomicWrite, verbs.SendSignaled)
	wr.SetAtomicWrite(to, key, v)
	return wr
}

// TestPostingMemoryRequests: the requests that posting refuses, with their errno, and those it
// leaves to the peer.
func TestPostingMemoryRequests(t *testing.T) {
	for _, c := range []struct {
		name     string
		extended bool
		make     func(w *world) request
		want     syscall.Errno
	}{
		{"FLUSH, not extended", false, func(w *world) request { return w.a.flushWR(1, 0, 0, 8, 1, 0) }, syscall.EINVAL},
		{"ATOMIC_WRITE, not extended", false, func(w *world) request { return w.a.atomicWR(1, 0, 0, 8) }, syscall.EINVAL},
		{"FLUSH", true, func(w *world) request { return w.a.flushWR(1, 0, 0, 8, 3, 1) }, 0},
		{"ATOMIC_WRITE", true, func(w *world) request { return w.a.atomicWR(1, 0, 0, 8) }, 0},
		{"ATOMIC_WRITE, not aligned: the peer's to refuse", true, func(w *world) request { return w.a.atomicWR(1, 4, 0, 8) }, 0},
		{"FLUSH of nothing", true, func(w *world) request { return w.a.flushWR(1, 0, 0, 0, 1, 0) }, 0},
		{"FLUSH to no placement", true, func(w *world) request { return w.a.flushWR(1, 0, 0, 8, 0, 0) }, syscall.EINVAL},
		{"FLUSH to an unknown placement", true, func(w *world) request { return w.a.flushWR(1, 0, 0, 8, 5, 0) }, syscall.EINVAL},
		{"FLUSH of an unknown level", true, func(w *world) request { return w.a.flushWR(1, 0, 0, 8, 1, 2) }, syscall.EINVAL},
		{"FLUSH with bits beyond the levels", true, func(w *world) request {
			wr := w.a.flushWR(1, 0, 0, 8, 1, 0)
			wr.W2 |= 1 << 16
			return wr
		}, syscall.EINVAL},
		{"FLUSH of 4 GiB", true, func(w *world) request { return w.a.flushWR(1, 0, 0, 1<<32, 1, 0) }, syscall.EINVAL},
		{"FLUSH of 4 GiB less one", true, func(w *world) request { return w.a.flushWR(1, 0, 0, 1<<32-1, 1, 0) }, 0},
		{"FLUSH with an element", true, func(w *world) request {
			wr := w.a.send(1, verbs.WRFlush, 0, w.a.sge(0, 8))
			wr.SetFlush(0, 0, 8, 1, 0)
			return wr
		}, syscall.EINVAL},
		{"ATOMIC_WRITE with an element", true, func(w *world) request {
			return w.a.send(1, verbs.WRAtomicWrite, 0, w.a.sge(0, 8))
		}, syscall.EINVAL},
		{"ATOMIC_WRITE inline", true, func(w *world) request {
			return w.a.send(1, verbs.WRAtomicWrite, verbs.SendInline)
		}, syscall.EINVAL},
		{"BIND_MW with an element", false, func(w *world) request {
			return w.a.send(1, verbs.WRBindMW, 0, w.a.sge(0, 8))
		}, syscall.EINVAL},
		{"BIND_MW with immediate data", false, func(w *world) request {
			wr := w.a.send(1, verbs.WRBindMW, 0)
			wr.SetImm(1)
			return wr
		}, syscall.EINVAL},
		{"LOCAL_INV with an element", false, func(w *world) request {
			return w.a.send(1, verbs.WRLocalInv, 0, w.a.sge(0, 8))
		}, syscall.EINVAL},
		{"LOCAL_INV", false, func(w *world) request { return w.a.invWR(1, 0) }, 0},
		{"LOCAL_INV, extended", true, func(w *world) request { return w.a.invWR(1, 0) }, 0},
		{"SEND_WITH_INV inline", false, func(w *world) request {
			return w.a.send(1, verbs.WRSendWithInv, verbs.SendInline, w.a.sge(0, 8))
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{})
			post := w.a.post
			if c.extended {
				post = w.a.postExtended
			}
			_, err := post(c.make(w))
			if c.want == 0 && err != nil || c.want != 0 && !errors.Is(err, c.want) {
				t.Fatalf("posting answered %v, want %v", err, c.want)
			}
		})
	}
}

// TestExtendedPostingFailsWhole: if one request of an extended group is refused, none is posted;
// a group that is not extended is cut at a FLUSH.
func TestExtendedPostingFailsWhole(t *testing.T) {
	w := newWorld(t, options{})
	good := w.a.writeWR(1, 8, w.b.at(0), w.b.mr.RKey())
	bad := w.a.flushWR(2, 0, 0, 8, 0, 0)
	if n, err := w.a.postExtended(good, bad); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("extended: %d accepted, %v", n, err)
	}
	if n, err := w.a.post(good, w.a.flushWR(2, 0, 0, 8, 1, 0)); n != 1 || !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("not extended: %d accepted, %v", n, err)
	}
	w.a.ok(w.a.want(w.a.scq, 1), 1)
}

// flushGlobal is allAccess with the kind of FLUSH that any memory supports.
const flushGlobal = allAccess | verbs.AccessFlushGlobal

// TestFlushAndAtomicWriteRefusals: each rule of the responder and the completion status of its
// refusal; a refused request changes nothing, and the request before it completes.
func TestFlushAndAtomicWriteRefusals(t *testing.T) {
	flush := func(off int, n uint64, s verbs.FlushSelectivity) func(w *world, key uint32) request {
		return func(w *world, key uint32) request {
			return w.a.flushWR(2, w.b.at(off), key, n, verbs.FlushGlobal, s)
		}
	}
	word := func(off int) func(w *world, key uint32) request {
		return func(w *world, key uint32) request { return w.a.atomicWR(2, w.b.at(off), key, 7) }
	}
	const end = 1 << 20
	for _, c := range []struct {
		name   string
		qp, mr verbs.AccessFlags
		key    uint32 // xored into the key
		make   func(w *world, key uint32) request
		attr   func(*verbs.QPAttr)
		want   verbs.WCStatus
	}{
		{"flush", flushGlobal, flushGlobal, 0, flush(0, 100, verbs.FlushRange), nil, verbs.WCSuccess},
		{"flush of nothing", flushGlobal, flushGlobal, 0, flush(end, 0, verbs.FlushRange), nil, verbs.WCSuccess},
		{"flush of a region, whatever the range", flushGlobal, flushGlobal, 0, flush(-5000, 1<<32-1, verbs.FlushMR), nil, verbs.WCSuccess},
		{"flush without READs at all", flushGlobal, flushGlobal, 0, flush(0, 100, 0), func(a *verbs.QPAttr) { a.MaxRdAtomic, a.MaxDestRdAtomic = 0, 0 }, verbs.WCSuccess},
		{"flush: queue pair", allAccess, flushGlobal, 0, flush(0, 8, 0), nil, verbs.WCRemInvReqErr},
		{"flush: region", flushGlobal, allAccess, 0, flush(0, 8, 0), nil, verbs.WCRemAccessErr},
		{"flush: key", flushGlobal, flushGlobal, 1, flush(0, 8, 0), nil, verbs.WCRemAccessErr},
		{"flush of nothing: key", flushGlobal, flushGlobal, 0x100, flush(0, 0, 0), nil, verbs.WCRemAccessErr},
		{"flush of a region: key", flushGlobal, flushGlobal, 0x100, flush(0, 0, 1), nil, verbs.WCRemAccessErr},
		{"flush: below", flushGlobal, flushGlobal, 0, flush(-1, 8, 0), nil, verbs.WCRemAccessErr},
		{"flush: beyond", flushGlobal, flushGlobal, 0, flush(end-7, 8, 0), nil, verbs.WCRemAccessErr},
		{"persistent flush: queue pair", flushGlobal, flushGlobal, 0, func(w *world, key uint32) request {
			return w.a.flushWR(2, w.b.at(0), key, 8, verbs.FlushPersistent, 0)
		}, nil, verbs.WCRemInvReqErr},
		{"both flushes: one is not enough", flushGlobal, flushGlobal, 0, func(w *world, key uint32) request {
			return w.a.flushWR(2, w.b.at(0), key, 8, verbs.FlushPersistent|verbs.FlushGlobal, 0)
		}, nil, verbs.WCRemInvReqErr},
		{"persistent flush: region", flushGlobal | verbs.AccessFlushPersistent, flushGlobal, 0, func(w *world, key uint32) request {
			return w.a.flushWR(2, w.b.at(0), key, 8, verbs.FlushPersistent, 0)
		}, nil, verbs.WCRemAccessErr},

		{"atomic write", allAccess, allAccess, 0, word(4096), nil, verbs.WCSuccess},
		{"atomic write of the last word", allAccess, allAccess, 0, word(end - 8), nil, verbs.WCSuccess},
		{"atomic write needs no atomics", allAccess &^ verbs.AccessRemoteAtomic, allAccess &^ verbs.AccessRemoteAtomic, 0, word(4096), nil, verbs.WCSuccess},
		{"atomic write: queue pair", allAccess &^ verbs.AccessRemoteWrite, allAccess, 0, word(4096), nil, verbs.WCRemInvReqErr},
		{"atomic write: region", allAccess, allAccess &^ verbs.AccessRemoteWrite, 0, word(4096), nil, verbs.WCRemAccessErr},
		{"atomic write: key", allAccess, allAccess, 1, word(4096), nil, verbs.WCRemAccessErr},
		{"atomic write: below", allAccess, allAccess, 0, word(-8), nil, verbs.WCRemAccessErr},
		{"atomic write: beyond", allAccess, allAccess, 0, word(end), nil, verbs.WCRemAccessErr},
		{"atomic write: not aligned", allAccess, allAccess, 0, word(4100), nil, verbs.WCRemInvReqErr},
		{"atomic write: none at the requester", allAccess, allAccess, 0, word(4096), func(a *verbs.QPAttr) { a.MaxRdAtomic = 0 }, verbs.WCLocQPOpErr},
		{"atomic write: none at the responder", allAccess, allAccess, 0, word(4096), func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 0 }, verbs.WCRemInvReqErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{access: c.mr, attr: func(a *verbs.QPAttr) {
				a.AccessFlags = c.qp
				if c.attr != nil {
					c.attr(a)
				}
			}})
			before := w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8))
			w.b.recv(1, w.b.sge(0, 8))
			wr := c.make(w, w.b.mr.RKey()^c.key)
			w.a.mustPostExtended(before, wr)
			wcs := w.a.want(w.a.scq, 2)
			if wcs[0].Status != verbs.WCSuccess || wcs[1].Status != c.want {
				t.Fatalf("completed %v and %v, want SUCCESS and %v", wcs[0].Status, wcs[1].Status, c.want)
			}
			if c.want == verbs.WCSuccess && wcs[1].Opcode != wr.Opcode.Completion() {
				t.Fatalf("a %v completed as %v", wr.Opcode, wcs[1].Opcode)
			}
			if wr.Opcode == verbs.WRAtomicWrite {
				at := int(wr.RemoteAddr - w.b.at(0))
				if c.want == verbs.WCSuccess {
					if wcs[1].ByteLen != 8 || w.b.word(at) != 7 {
						t.Fatalf("%d bytes, the word is %d; want 8 bytes, 7", wcs[1].ByteLen, w.b.word(at))
					}
				} else if at == 4096 && w.b.word(at) != 0 {
					t.Fatalf("a refused ATOMIC_WRITE wrote %d", w.b.word(at))
				}
			}
		})
	}
}

// TestAtomicWritesCountAgainstTheLimit: at most MaxRdAtomic of them are outstanding, or the
// responder would refuse them; FLUSHes do not count.
func TestAtomicWritesCountAgainstTheLimit(t *testing.T) {
	w := newWorld(t, options{access: flushGlobal, attr: func(a *verbs.QPAttr) { a.MaxRdAtomic, a.MaxDestRdAtomic = 2, 2 }})
	var wrs []request
	for i := range uint64(20) {
		wrs = append(wrs, w.a.atomicWR(i, w.b.at(int(8*i)), w.b.mr.RKey(), i+1))
	}
	for i := range uint64(20) {
		wrs = append(wrs, w.a.flushWR(20+i, w.b.at(0), w.b.mr.RKey(), 160, verbs.FlushGlobal, 0))
	}
	w.a.mustPostExtended(wrs...)
	w.fab.Step()
	if n := w.a.qp.req.reads; n > 2 {
		t.Fatalf("%d ATOMIC_WRITEs outstanding, the limit is 2", n)
	}
	w.a.ok(w.a.want(w.a.scq, 40), 0)
	for i := range uint64(20) {
		if got := w.b.word(int(8 * i)); got != i+1 {
			t.Fatalf("word %d is %d", i, got)
		}
	}
	if r := &w.a.qp.req; r.open != 0 || r.reads != 0 {
		t.Fatalf("%d open, %d counted, with nothing outstanding", r.open, r.reads)
	}
}
