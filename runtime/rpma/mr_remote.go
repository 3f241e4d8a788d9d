package rpma

import (
	"encoding/binary"
	"fmt"

	"github.com/verbena-rdma/verbena/runtime"
)

// MRSize is the length of the descriptor of a memory region in bytes.
//
// Implements: rpma_mr_get_descriptor_size.
const MRSize = 8 + 8 + 4 + 1

// descriptor is the content of a memory region's descriptor. Its numbers are little-endian:
//
//	0         8         16        20     21
//	┌─────────┬─────────┬─────────┬──────┐
//	│ address │ size    │ rkey    │usage │
//	└─────────┴─────────┴─────────┴──────┘
type descriptor struct {
	addr, size uint64
	rkey       uint32
	usage      Usage
}

func (d descriptor) encode() (b [MRSize]byte) {
	binary.LittleEndian.PutUint64(b[0:], d.addr)
	binary.LittleEndian.PutUint64(b[8:], d.size)
	binary.LittleEndian.PutUint32(b[16:], d.rkey)
	b[20] = byte(d.usage)
	return b
}

// RemoteMR is the memory region of a peer. It is immutable and owns nothing: it may be used from any
// goroutine, and needs no end.
//
// Implements: struct rpma_mr_remote.
type RemoteMR struct{ d descriptor }

// ParseRemoteMR reads the descriptor of a peer's memory region. As librpma does, it ignores what follows
// the descriptor.
//
// The descriptor comes from a peer and may be wrong in every way. The worst that it can do is to have
// this program write to, or read from, other memory of the peer.
//
// Errors: ErrInvalid for fewer bytes than MRSize, for a usage of 0, and for a region that exceeds the
// address space.
//
// Implements: rpma_mr_remote_from_descriptor.
func ParseRemoteMR(desc []byte) (*RemoteMR, error) {
	const op = "rpma_mr_remote_from_descriptor"
	if len(desc) < MRSize {
		return nil, invalid(op, "%w: %d bytes, want at least %d", errShort, len(desc), MRSize)
	}
	d := descriptor{
		addr: binary.LittleEndian.Uint64(desc[0:]), size: binary.LittleEndian.Uint64(desc[8:]),
		rkey: binary.LittleEndian.Uint32(desc[16:]), usage: Usage(desc[20]),
	}
	switch {
	case d.usage == 0:
		return nil, invalid(op, "the usage is 0")
	case d.size > -d.addr && d.addr != 0:
		return nil, invalid(op, "%d bytes at 0x%x exceed the address space", d.size, d.addr)
	}
	return &RemoteMR{d}, nil
}

// Size returns the length of the region in bytes.
//
// Implements: rpma_mr_remote_get_size.
func (m *RemoteMR) Size() uint64 { return m.d.size }

// FlushTypes returns the uses of the region that are flushes: FlushVisibility, FlushPersistent, both or
// none.
//
// Implements: rpma_mr_remote_get_flush_type.
func (m *RemoteMR) FlushTypes() Usage { return m.d.usage & flushes }

// String describes the region without its key.
func (m *RemoteMR) String() string {
	return fmt.Sprintf("remote memory of %d bytes at 0x%x for %v", m.d.size, m.d.addr, m.d.usage)
}

// at returns n bytes from off on.
func (m *RemoteMR) at(off, n int) (r runtime.Remote, err error) {
	if off < 0 || n < 0 {
		return r, fmt.Errorf("%w: %d bytes at offset %d", runtime.ErrInvalid, n, off)
	}
	r = runtime.Remote{Addr: m.d.addr, Length: m.d.size, RKey: m.d.rkey, Access: m.d.usage.remote()}
	if r, err = r.At(uint64(off), uint64(n)); err != nil {
		return r, fmt.Errorf("%w: %w", runtime.ErrInvalid, err)
	}
	return r, nil
}
