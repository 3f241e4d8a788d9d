//go:build unix

package soft

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// foreignMemory is memory that the program mapped, registered at e, and a way to take it away.
type foreignMemory struct {
	b    []byte
	mr   verbs.MR
	take func()
}

// takers are what a program does to memory that it registered: it maps memory, and returns it with the
// function that takes it away.
var takers = map[string]func(t *testing.T) (b []byte, take func()){
	"mprotect": func(t *testing.T) ([]byte, func()) {
		b := must.Get(unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
		return b, func() { must.Do(t, unix.Mprotect(b, unix.PROT_NONE)) }
	},
	"truncate": func(t *testing.T) ([]byte, func()) {
		f := must.Get(os.Create(filepath.Join(t.TempDir(), "file")))(t)
		t.Cleanup(func() { f.Close() })
		must.Do(t, f.Truncate(8192))
		b := must.Get(unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
		return b, func() { must.Do(t, f.Truncate(0)) }
	},
}

func (e *peer) foreign(t *testing.T, how string) *foreignMemory {
	b, take := takers[how](t)
	a := must.Get(mem.Adopt(b))(t)
	mr := must.Get(e.pd.RegMR(a.Addr(), uint64(len(b)), a.Addr(), allAccess))(t)
	t.Cleanup(func() {
		must.Do(t, mr.Close())
		must.Do(t, a.Unmap())
		must.Do(t, unix.Munmap(b))
	})
	return &foreignMemory{b, mr, take}
}

func (m *foreignMemory) sge(n int) verbs.SGE {
	return verbs.SGE{Addr: m.mr.Addr(), Length: uint32(n), LKey: m.mr.LKey()}
}

// Rule: an operation that meets memory which the program took away ends with an access error, on the
// side that has the memory: a NAK to the peer, or LOC_PROT_ERR. It ends no process, keeps no token, and
// the device goes on. (The bug: the fault ended the process; a peer's WRITE sufficed.)
func TestMemoryThatIsTakenAwayIsAnAccessError(t *testing.T) {
	const long = 2500 // three packets
	rdma := func(op verbs.WROpcode, n int) func(w *world, m *foreignMemory) {
		return func(w *world, m *foreignMemory) {
			r := w.a.send(1, op, verbs.SendSignaled, w.a.sge(0, n))
			r.SetRDMA(m.mr.IOVA(), m.mr.RKey())
			w.a.mustPost(r)
		}
	}
	from := func(op verbs.WROpcode, n int) func(w *world, m *foreignMemory) {
		return func(w *world, m *foreignMemory) {
			w.b.recv(9, w.b.sge(0, 8192))
			r := w.a.send(1, op, verbs.SendSignaled, m.sge(n))
			r.SetRDMA(w.b.at(0), w.b.mr.RKey())
			w.a.mustPost(r)
		}
	}
	receive := func(n int) func(w *world, m *foreignMemory) {
		return func(w *world, m *foreignMemory) {
			w.b.recv(9, m.sge(n))
			w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, n)))
		}
	}
	for _, c := range []struct {
		name string
		mine bool // the memory is the requester's
		do   func(w *world, m *foreignMemory)
		want verbs.WCStatus
		recv verbs.WCStatus // of the receive that was taken; 0: none
	}{
		{"a WRITE of a word to it", false, rdma(verbs.WRRDMAWrite, 8), verbs.WCRemAccessErr, 0},
		{"a long WRITE to it", false, rdma(verbs.WRRDMAWrite, long), verbs.WCRemAccessErr, 0},
		{"a READ of a word of it", false, rdma(verbs.WRRDMARead, 8), verbs.WCRemAccessErr, 0},
		{"a long READ of it", false, rdma(verbs.WRRDMARead, long), verbs.WCRemAccessErr, 0},
		{"a FETCH_ADD on it", false, func(w *world, m *foreignMemory) {
			r := w.a.send(1, verbs.WRAtomicFetchAndAdd, verbs.SendSignaled, w.a.sge(0, 8))
			r.SetFetchAdd(m.mr.IOVA(), m.mr.RKey(), 1)
			w.a.mustPost(r)
		}, verbs.WCRemAccessErr, 0},
		{"a CMP_SWAP on it", false, func(w *world, m *foreignMemory) {
			r := w.a.send(1, verbs.WRAtomicCmpAndSwp, verbs.SendSignaled, w.a.sge(0, 8))
			r.SetCompareSwap(m.mr.IOVA(), m.mr.RKey(), 0, 1)
			w.a.mustPost(r)
		}, verbs.WCRemAccessErr, 0},
		{"an ATOMIC_WRITE to it", false, func(w *world, m *foreignMemory) {
			w.a.mustPostExtended(w.a.atomicWR(1, m.mr.IOVA(), m.mr.RKey(), 7))
		}, verbs.WCRemAccessErr, 0},
		{"a SEND of a word into it", false, receive(8), verbs.WCRemOpErr, verbs.WCLocProtErr},
		{"a long SEND into it", false, receive(long), verbs.WCRemOpErr, verbs.WCLocProtErr},
		{"a WRITE of a word of it", true, from(verbs.WRRDMAWrite, 8), verbs.WCLocProtErr, 0},
		{"a long WRITE of it", true, from(verbs.WRRDMAWrite, long), verbs.WCLocProtErr, 0},
		{"a SEND of it", true, from(verbs.WRSend, 8), verbs.WCLocProtErr, 0},
		{"a long SEND of it", true, from(verbs.WRSend, long), verbs.WCLocProtErr, 0},
		{"a READ of a word into it", true, from(verbs.WRRDMARead, 8), verbs.WCLocProtErr, 0},
		{"a long READ into it", true, from(verbs.WRRDMARead, long), verbs.WCLocProtErr, 0},
		{"an atomic's answer to it", true, func(w *world, m *foreignMemory) {
			r := w.a.send(1, verbs.WRAtomicFetchAndAdd, verbs.SendSignaled, m.sge(8))
			r.SetFetchAdd(w.b.at(0), w.b.mr.RKey(), 1)
			w.a.mustPost(r)
		}, verbs.WCLocProtErr, 0},
	} {
		run := func(how string, later bool) {
			t.Run(fmt.Sprintf("%s, %s, later %t", c.name, how, later), func(t *testing.T) {
				w := newWorld(t, options{})
				if later { // the responder's fast path is for packets after the first
					for from, to := range map[*peer]*peer{w.a: w.b, w.b: w.a} {
						r := from.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, from.sge(0, 8))
						r.SetRDMA(to.at(0), to.mr.RKey())
						from.mustPost(r)
						from.ok(from.want(from.scq, 1), 1)
					}
				}
				owner := w.b
				if c.mine {
					owner = w.a
				}
				m := owner.foreign(t, how)
				m.take()
				c.do(w, m)
				if got := w.a.want(w.a.scq, 1)[0]; got.Status != c.want {
					t.Errorf("the request ended with %v, want %v", got.Status, c.want)
				}
				received := w.b.poll(w.b.rcq)
				switch {
				case c.recv != 0 && (len(received) != 1 || received[0].Status != c.recv):
					t.Errorf("the receives completed as %q, want one with %v", statuses(received), c.recv)
				case c.recv == 0 && len(received) > 0 && received[0].Status != verbs.WCWRFlushErr:
					t.Errorf("the receives completed as %q, want none but flushed", statuses(received))
				}
				// Both devices go on.
				for _, e := range []*peer{w.a, w.b} {
					must.Do(t, e.qp.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
				}
				w.connect(options{mtu: verbs.MTU1024, access: allAccess})
				r := w.a.send(2, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, long))
				r.SetRDMA(w.b.at(0), w.b.mr.RKey())
				w.a.mustPost(r)
				w.a.ok(w.a.want(w.a.scq, 1), 2)
				w.a.events()
				w.b.events()
			})
		}
		for how := range takers {
			run(how, false)
			run(how, true)
		}
	}
}

// Rule: if the memory of a packet's payload is taken away while the packet is on the link, the packet is
// lost, and its sender meets the fault when it sends the packet again.
func TestPayloadThatIsTakenAwayOnTheLinkIsLost(t *testing.T) {
	for how := range takers {
		t.Run(how, func(t *testing.T) {
			for _, read := range []bool{false, true} {
				w := newWorld(t, options{})
				// A step runs a, and then b. Either way b sends the payload, and a has not run again.
				m := w.b.foreign(t, how)
				e, r, want := w.b, w.b.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, m.sge(1000)), verbs.WCLocProtErr
				r.SetRDMA(w.a.at(0), w.a.mr.RKey())
				if read {
					e, r, want = w.a, w.a.send(1, verbs.WRRDMARead, verbs.SendSignaled, w.a.sge(0, 1000)), verbs.WCRemAccessErr
					r.SetRDMA(m.mr.IOVA(), m.mr.RKey())
				}
				e.mustPost(r)
				inFlight(w)
				m.take()
				if got := e.want(e.scq, 1)[0]; got.Status != want {
					t.Errorf("the request ended with %v, want %v", got.Status, want)
				}
				w.a.events()
				w.b.events()
			}
		})
	}
}

// Rule: an unreliable message of memory that was taken away fails with LOC_PROT_ERR, and one to such
// memory is dropped, or fails the receive. The device goes on.
func TestUnreliableMessagesAndMemoryThatIsTakenAway(t *testing.T) {
	for how := range takers {
		w := newUC(t, options{})
		mine, theirs := w.a.foreign(t, how), w.b.foreign(t, how)
		mine.take()
		theirs.take()
		write := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 100))
		write.SetRDMA(theirs.mr.IOVA(), theirs.mr.RKey())
		w.a.mustPost(write)
		w.a.ok(w.a.want(w.a.scq, 1), 1)
		w.b.recv(2, theirs.sge(100))
		w.a.mustPost(w.a.send(2, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 100)))
		w.a.ok(w.a.want(w.a.scq, 1), 2)
		if got := w.b.want(w.b.rcq, 1)[0]; got.Status != verbs.WCLocProtErr {
			t.Errorf("%s: the receive ended with %v, want LOC_PROT_ERR", how, got.Status)
		}
		w.a.mustPost(w.a.send(3, verbs.WRSend, verbs.SendSignaled, mine.sge(100)))
		if got := w.a.want(w.a.scq, 1)[0]; got.Status != verbs.WCLocProtErr || w.a.state() != verbs.QPSSQE {
			t.Errorf("%s: the message ended with %v and the queue pair is in %v, want LOC_PROT_ERR, SQE", how, got.Status, w.a.state())
		}
	}
}

// Rule: inline data is read when the request is posted. If it is not there, the request is refused with
// EFAULT, and those before it are accepted.
func TestInlineDataThatIsTakenAwayIsRefused(t *testing.T) {
	for how := range takers {
		w := newWorld(t, options{})
		m := w.a.foreign(t, how)
		m.take()
		for _, n := range []int{8, 100} {
			ok := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled|verbs.SendInline, w.a.sge(0, n))
			bad := w.a.send(2, verbs.WRRDMAWrite, verbs.SendSignaled|verbs.SendInline, m.sge(n))
			for _, r := range []request{ok, bad} {
				r.SetRDMA(w.b.at(0), w.b.mr.RKey())
			}
			if posted, err := w.a.post(ok, bad); posted != 1 || !errors.Is(err, unix.EFAULT) {
				t.Errorf("%s, %d bytes: %d accepted, %v; want 1, EFAULT", how, n, posted, err)
			}
			w.a.ok(w.a.want(w.a.scq, 1), 1)
		}
	}
}

// Rule: memory is registered for what its mapping permits; see mem.Arena.Check.
func TestRegMRLooksAtPermissions(t *testing.T) {
	w := newWorld(t, options{})
	b := must.Get(unix.Mmap(-1, 0, 8192, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	a := must.Get(mem.Adopt(b))(t)
	for access, ok := range map[verbs.AccessFlags]bool{
		0: true, verbs.AccessRemoteRead: true, verbs.AccessMWBind: true,
		verbs.AccessLocalWrite: false, verbs.AccessLocalWrite | verbs.AccessRemoteWrite: false, verbs.AccessLocalWrite | verbs.AccessRemoteAtomic: false,
	} {
		mr, err := w.a.pd.RegMR(a.Addr(), 8192, a.Addr(), access)
		if (err == nil) != ok || err != nil && !errors.Is(err, unix.EFAULT) {
			t.Errorf("read-only memory with access %v: %v, want success %t, or EFAULT", access, err, ok)
		}
		if err == nil {
			must.Do(t, mr.Close())
		}
	}
	must.Do(t, a.Unmap())
	must.Do(t, unix.Munmap(b))
}
