package bootstrap

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// The sentinels of this package.
var (
	// ErrMalformed is a malformed line, or a conversation that broke off.
	ErrMalformed = errors.New("bootstrap: the peer does not speak the text form of ibv_*_pingpong")
	// ErrDest is a destination that cannot have a queue pair.
	ErrDest = errors.New("bootstrap: no queue pair can be there")
)

// Dest is the address of a queue pair, as its owner sends it to the owner of the other.
//
// Implements: struct pingpong_dest of libibverbs/examples/rc_pingpong.c.
type Dest struct {
	LID uint16 // of the port on InfiniBand, the UDP port of a software RNIC, otherwise 0
	QPN uint32 // 24 bits
	PSN uint32 // 24 bits: of the first packet that it will send
	GID verbs.GID
}

// A line is LID, QPN and PSN and GID in hexadecimal of fixed width, separated by colons and
// terminated by a NUL:
//
//	0000:000011:5a3b1c:00000000000000000000ffff0a4d0001\0
const (
	lidAt, lidEnd = 0, 4
	qpnAt, qpnEnd = 5, 11
	psnAt, psnEnd = 12, 18
	gidAt, gidEnd = 19, 51

	// TextLen is the length of a line in bytes, with its NUL.
	TextLen = gidEnd + 1
)

// Reserved numbers: the management queue pairs and multicast (IBTA 9.2.3).
const (
	firstQPN = 2
	bits24   = 1<<24 - 1
)

// AppendText appends the line to b. A QPN or PSN of more than 24 bits is ErrDest. It does not
// block.
//
// Implements: the sprintf of pp_client_exch_dest, and gid_to_wire_gid.
func (d Dest) AppendText(b []byte) ([]byte, error) {
	if d.QPN > bits24 || d.PSN > bits24 {
		return b, fmt.Errorf("%w: QPN 0x%x, PSN 0x%x, each has 24 bits", ErrDest, d.QPN, d.PSN)
	}
	b = fmt.Appendf(b, "%04x:%06x:%06x:", d.LID, d.QPN, d.PSN)
	return append(hex.AppendEncode(b, d.GID[:]), 0), nil
}

// String is the line without its NUL; for messages.
func (d Dest) String() string {
	return fmt.Sprintf("%04x:%06x:%06x:%x", d.LID, d.QPN, d.PSN, d.GID[:])
}

// Parse reads one line, which must be all of b. It accepts upper-case digits too. A malformed
// line is ErrMalformed with the position. Parse does not check that a queue pair can have this
// address: see Check. It does not block, and keeps nothing of b.
//
// Implements: the sscanf of pp_client_exch_dest, and wire_gid_to_gid.
func Parse(b []byte) (d Dest, err error) {
	if len(b) != TextLen {
		return Dest{}, fmt.Errorf("%w: a line of %d bytes, want %d", ErrMalformed, len(b), TextLen)
	}
	for _, at := range []int{lidEnd, qpnEnd, psnEnd} {
		if b[at] != ':' {
			return Dest{}, fmt.Errorf("%w: %q at offset %d, want a colon", ErrMalformed, b[at], at)
		}
	}
	if b[gidEnd] != 0 {
		return Dest{}, fmt.Errorf("%w: %q at offset %d, want a NUL", ErrMalformed, b[gidEnd], gidEnd)
	}
	var lid, qpn, psn uint32
	for _, f := range []struct {
		name string
		at   int
		end  int
		to   *uint32
	}{{"LID", lidAt, lidEnd, &lid}, {"QPN", qpnAt, qpnEnd, &qpn}, {"PSN", psnAt, psnEnd, &psn}} {
		if *f.to, err = number(b[f.at:f.end]); err != nil {
			return Dest{}, fmt.Errorf("%w: %s %q: %w", ErrMalformed, f.name, b[f.at:f.end], err)
		}
	}
	if _, err := hex.Decode(d.GID[:], b[gidAt:gidEnd]); err != nil {
		return Dest{}, fmt.Errorf("%w: GID %q: %w", ErrMalformed, b[gidAt:gidEnd], err)
	}
	d.LID, d.QPN, d.PSN = uint16(lid), qpn, psn
	return d, nil
}

// number reads hexadecimal digits, at most six of them.
func number(b []byte) (n uint32, err error) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint32(c-'a'+10)
		case c >= 'A' && c <= 'F':
			n = n<<4 | uint32(c-'A'+10)
		default:
			return 0, hex.InvalidByteError(c)
		}
	}
	return n, nil
}

// Unused reports whether the line stands for no queue pair: ibv_srq_pingpong pads with such
// lines.
func (d Dest) Unused() bool { return d == Dest{} }

// Check returns ErrDest unless a queue pair of a peer can have this address: it refuses reserved
// numbers and a GID that is not the address of one port. A C program that was not given a GID
// index (option -g) sends no GID.
func (d Dest) Check() error {
	switch {
	case d.QPN < firstQPN || d.QPN >= verbs.McastQPN || d.PSN > bits24:
		return fmt.Errorf("%w: QPN 0x%06x, PSN 0x%06x", ErrDest, d.QPN, d.PSN)
	case d.GID == verbs.GID{}:
		return fmt.Errorf("%w: the peer gave no GID (ibv_*_pingpong: option -g)", ErrDest)
	case !d.GID.Unicast():
		return fmt.Errorf("%w: at address %v", ErrDest, d.GID)
	}
	return nil
}
