package soft

import (
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Memory that the program mapped is foreign: the program may unmap or protect it while it is
// registered, or a process may truncate its file. So is the mapping of a file. An access of the engine
// then fails as it does on hardware whose translation has gone, and never ends the process:
//
//	destination of a WRITE, atomic or ATOMIC_WRITE  NAK: remote access error
//	source of a READ                                NAK: remote access error
//	receive                                         LOC_PROT_ERR, and a NAK: remote operational error
//	payload of a request, destination of a READ     LOC_PROT_ERR
//	inline payload                                  EFAULT for the request
//
// A packet may refer to foreign memory of its sender (Packet.Foreign). The sender reads a byte of each
// page first. If the memory goes after that, whoever copies the payload drops the packet, as if the
// link had lost it: the sender meets the fault when it sends the packet again.
//
// Each access is made by package mem and recovers by itself. The engine holds its token and its guards
// throughout, and goes on.

// put copies from, of a packet's payload, to to, which is memory of m and not shorter. foreign is the
// packet's. It returns done, lost, or noAccess if the memory of m is not there.
func (m *memoryRegion) put(to, from []byte, foreign bool) verdict {
	if m.foreign || foreign {
		return m.putForeign(to[:len(from)], from)
	}
	copy(to, from)
	return done
}

func (m *memoryRegion) putForeign(to, from []byte) verdict {
	switch f, ok := mem.Copy(to, from); {
	case ok:
		return done
	case m.foreign && f.In(to):
		return noAccess
	}
	return lost
}

// update calls fn, which accesses the word of an atomic. It returns false if the word is not there.
func (m *memoryRegion) update(fn func()) bool {
	if !m.foreign {
		fn()
		return true
	}
	_, ok := mem.Try(fn)
	return ok
}

// add appends b, which is memory of m, to a packet's payload. It returns false if the
// memory is not there.
func (m *memoryRegion) add(k *fabric.Packet, b []byte, byRef bool) bool {
	if m.foreign {
		return addForeign(k, b, byRef)
	}
	add(k, b, byRef)
	return true
}

func addForeign(k *fabric.Packet, b []byte, byRef bool) bool {
	if !byRef {
		_, ok := mem.Try(func() { k.AddCopy(b) })
		return ok
	}
	k.Foreign = true
	k.AddRef(b)
	return mem.Readable(b)
}

func add(k *fabric.Packet, b []byte, byRef bool) {
	if byRef {
		k.AddRef(b)
	} else {
		k.AddCopy(b)
	}
}

// copyInline copies the bytes of s. It returns false when the address is not in off-heap memory, or
// the memory is not there.
func (q *queuePair) copyInline(into []byte, s *verbs.SGE) bool {
	from, ok := q.bytesAt(s.Addr, s.Length)
	if !ok {
		return false
	}
	if len(from) > 0 && q.inlineArena.MayFault() {
		_, ok = mem.Copy(into, from)
		return ok
	}
	copy(into, from)
	return true
}
