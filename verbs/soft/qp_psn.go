package soft

import "github.com/verbena-rdma/verbena/verbs/soft/wire"

// Within the engine PSNs are extended to 64 bits that never wrap, so that they compare as
// numbers; packets carry the low 24 bits. A counter starts well above zero, so that the packet
// before the first has a number too.

// psnBase is added to the first PSN of a connection.
const psnBase = 1 << 24

// extend returns the extended PSN nearest to ref whose low bits are p.
func extend(p wire.PSN, ref uint64) uint64 {
	return ref + uint64(int64(p.Diff(wire.NewPSN(uint32(ref)))))
}

// narrow returns the PSN as packets carry it.
func narrow(p uint64) wire.PSN { return wire.NewPSN(uint32(p)) }

// packets returns the number of packets for n bytes.
func packets(n, mtu uint32) uint32 {
	if n == 0 {
		return 1
	}
	return uint32((uint64(n) + uint64(mtu) - 1) / uint64(mtu))
}
