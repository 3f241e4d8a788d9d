// Package wire encodes and parses the InfiniBand transport headers as RoCEv2
// carries them: from the base transport header (BTH) on, without the Ethernet,
// IP and UDP headers before it and without the payload, padding and ICRC
// behind it.
//
//	UDP 4791 │ BTH │ XRCETH │ DETH │ FETH │ RETH or AtomicETH │ AETH │ AtomicAckETH │ ImmDt or IETH │ payload │ pad │ ICRC
//	           12     4        8      4      16      28          4       8              4
//
// The opcode alone determines which of them a packet has; see [Opcode.Ext]. All are big-endian.
//
// # Trust
//
// Packets come from a remote side. [Parse] never reads past the given bytes, never panics, and
// refuses reserved values: unknown opcodes, transport header versions other than 0, and reserved
// acknowledge syndromes. Reserved bits are ignored when parsing and zero when encoding, as the
// specification requires. The engine checks a field's meaning for a queue pair (ranges, keys, flush
// types, alignment), because it answers with a NAK.
//
// The package does not block, keep state or allocate, apart from the error of a refused packet.
//
// Implements: InfiniBand Architecture Specification volume 1, chapter 9 (transport layer) and
// annexes A14 (XRC), A17 (RoCEv2) and A19 (memory placement extensions); the Linux kernel has the
// same facts in include/rdma/ib_pack.h and drivers/infiniband/sw/rxe/rxe_hdr.h and rxe_opcode.c.
package wire
