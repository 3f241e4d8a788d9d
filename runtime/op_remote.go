package runtime

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/verbena-rdma/verbena/runtime/internal/regcache"
	"github.com/verbena-rdma/verbena/verbs"
)

// Remote is a descriptor of a peer's memory. The peer makes the descriptor with [Region.Remote] or
// [Window.Bind], and sends it to this program. A Remote is a value and owns nothing. It does not show
// whether the memory is still registered: only an operation with the Remote finds that out.
//
// RKey is a secret. A program that has the key of a region and a connection to the peer can access
// the whole region, not only the described part, as far as the region's access flags permit.
//
// [Remote.UnmarshalBinary] checks its input, because the encoded form comes from another program.
// Methods may be called from any goroutine and do not block.
type Remote struct {
	Addr   uint64 // address of the first byte at the peer's device
	Length uint64 // bytes
	RKey   uint32
	Access verbs.AccessFlags // the access that the peer declares; the peer's device checks the region or window itself
}

// At returns the descriptor of the n bytes of r at offset off. If these bytes are not inside r, it
// returns a *[RangeError].
func (r Remote) At(off, n uint64) (Remote, error) {
	if off > r.Length || n > r.Length-off {
		return Remote{}, &RangeError{What: whatRemote, Off: off, N: n, Size: r.Length}
	}
	r.Addr += off
	r.Length = n
	return r, nil
}

// String describes the memory without its key.
func (r Remote) String() string {
	return fmt.Sprintf("remote memory of %d bytes at 0x%x (%v)", r.Length, r.Addr, r.Access)
}

// The encoded form has 40 bytes; its numbers are little-endian:
//
//	0     4       5       6      8        12     16     24       32         40
//	┌─────┬───────┬───────┬──────┬────────┬──────┬──────┬────────┬──────────┐
//	│magic│version│0      │size  │access  │rkey  │addr  │length  │xxhash64  │
//	└─────┴───────┴───────┴──────┴────────┴──────┴──────┴────────┴──────────┘
//
// The hash covers all bytes before it. It detects descriptors that are truncated, mistyped or
// otherwise damaged. It does not detect forged descriptors, because it is not a signature.
const (
	remoteMagic   = "VRBM"
	remoteVersion = 1
	remoteSize    = 40
	remoteHashed  = remoteSize - 8 // number of bytes that the hash covers
)

// RemoteSize is the length of an encoded [Remote] in bytes.
const RemoteSize = remoteSize

// knownAccess has the access bits that this version knows. A descriptor with any other bit is
// refused.
const knownAccess = regcache.RemoteAccess | verbs.AccessLocalWrite | verbs.AccessMWBind | verbs.AccessZeroBased |
	verbs.AccessOnDemand | verbs.AccessHugeTLB | verbs.AccessRelaxedOrdering

// ErrDescriptor matches every [*DescriptorError].
var ErrDescriptor = errors.New("runtime: bad remote descriptor")

// DescriptorReason is the reason for refusing a descriptor.
type DescriptorReason uint8

// The reasons for refusing a descriptor.
const (
	DescriptorTruncated DescriptorReason = iota + 1 // shorter than a descriptor
	DescriptorTrailing                              // longer than a descriptor
	DescriptorMagic                                 // wrong magic number
	DescriptorVersion                               // unknown version
	DescriptorField                                 // wrong size field or reserved byte
	DescriptorAccess                                // undefined access bits
	DescriptorOverflow                              // the range wraps around the address space, or is 2^63 bytes or longer
	DescriptorChecksum                              // wrong checksum
	DescriptorText                                  // malformed text form
)

// DescriptorError is the error for a refused [Remote]. It matches [ErrDescriptor].
type DescriptorError struct {
	Reason DescriptorReason
	// Have is the value found, and Want the value wanted. There are two exceptions. For
	// DescriptorAccess, Have has the undefined bits. For DescriptorOverflow, Have is the address and
	// Want the length.
	Have, Want uint64
}

// Error describes the fault, with the values.
func (e *DescriptorError) Error() string {
	why := ""
	switch e.Reason {
	case DescriptorTruncated, DescriptorTrailing:
		why = fmt.Sprintf("%d bytes, want %d", e.Have, e.Want)
	case DescriptorMagic:
		why = fmt.Sprintf("begins with 0x%08x, want 0x%08x", e.Have, e.Want)
	case DescriptorVersion:
		why = fmt.Sprintf("version %d, only %d is known", e.Have, e.Want)
	case DescriptorField:
		why = fmt.Sprintf("reserved and size fields are 0x%06x, want 0x%06x", e.Have, e.Want)
	case DescriptorAccess:
		why = fmt.Sprintf("access bits 0x%x do not exist", e.Have)
	case DescriptorOverflow:
		why = fmt.Sprintf("%d bytes at 0x%x wrap around the address space, or are 2^63 or more", e.Want, e.Have)
	case DescriptorChecksum:
		why = fmt.Sprintf("checksum 0x%016x, want 0x%016x", e.Have, e.Want)
	case DescriptorText:
		why = fmt.Sprintf("a text of %d characters, want %q and %d characters of base64", e.Have, remoteText, e.Want)
	}
	return ErrDescriptor.Error() + ": " + why
}

// Is reports whether target is [ErrDescriptor], or a *DescriptorError with the same Reason.
func (e *DescriptorError) Is(target error) bool {
	if target == ErrDescriptor {
		return true
	}
	t, ok := target.(*DescriptorError)
	return ok && t.Reason == e.Reason
}

// wellFormed returns an error if r cannot describe a region: if it has unknown access bits, or if
// its range wraps around the address space.
func (r Remote) wellFormed() error {
	if bits := r.Access &^ knownAccess; bits != 0 {
		return &DescriptorError{Reason: DescriptorAccess, Have: uint64(bits)}
	}
	if r.Addr+r.Length < r.Addr || r.Length > math.MaxInt64 { // RemoteMemory.Size is an int64; no memory is larger
		return &DescriptorError{Reason: DescriptorOverflow, Have: r.Addr, Want: r.Length}
	}
	return nil
}

// AppendBinary appends the encoded form to b. It fails with a *[DescriptorError] if UnmarshalBinary
// would refuse the result. It allocates only to grow b.
//
// Implements: encoding.BinaryAppender.
func (r Remote) AppendBinary(b []byte) ([]byte, error) {
	if err := r.wellFormed(); err != nil {
		return b, err
	}
	from := len(b)
	b = append(b, remoteMagic...)
	b = append(b, remoteVersion, 0)
	b = binary.LittleEndian.AppendUint16(b, remoteSize)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Access))
	b = binary.LittleEndian.AppendUint32(b, r.RKey)
	b = binary.LittleEndian.AppendUint64(b, r.Addr)
	b = binary.LittleEndian.AppendUint64(b, r.Length)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b[from:])), nil
}

// MarshalBinary returns the encoded form in a new slice.
//
// Implements: encoding.BinaryMarshaler.
func (r Remote) MarshalBinary() ([]byte, error) {
	return r.AppendBinary(make([]byte, 0, remoteSize))
}

// UnmarshalBinary sets r to the Remote that b encodes. If b is not exactly the encoded form of a
// Remote, UnmarshalBinary returns a *[DescriptorError] and does not change r. It keeps no reference
// to b, and allocates only for errors.
//
// Implements: encoding.BinaryUnmarshaler.
func (r *Remote) UnmarshalBinary(b []byte) error {
	le := binary.LittleEndian
	// Check the version before the length: another version may have another length.
	if len(b) < len(remoteMagic)+1 {
		return &DescriptorError{Reason: DescriptorTruncated, Have: uint64(len(b)), Want: remoteSize}
	}
	if string(b[:4]) != remoteMagic {
		return &DescriptorError{Reason: DescriptorMagic, Have: uint64(le.Uint32(b)), Want: uint64(le.Uint32([]byte(remoteMagic)))}
	}
	if b[4] != remoteVersion {
		return &DescriptorError{Reason: DescriptorVersion, Have: uint64(b[4]), Want: remoteVersion}
	}
	if len(b) < remoteSize {
		return &DescriptorError{Reason: DescriptorTruncated, Have: uint64(len(b)), Want: remoteSize}
	}
	if len(b) > remoteSize {
		return &DescriptorError{Reason: DescriptorTrailing, Have: uint64(len(b)), Want: remoteSize}
	}
	if have := uint64(b[5]) | uint64(le.Uint16(b[6:]))<<8; have != remoteSize<<8 {
		return &DescriptorError{Reason: DescriptorField, Have: have, Want: remoteSize << 8}
	}
	if have, want := le.Uint64(b[remoteHashed:]), xxhash.Sum64(b[:remoteHashed]); have != want {
		return &DescriptorError{Reason: DescriptorChecksum, Have: have, Want: want}
	}
	read := Remote{
		Access: verbs.AccessFlags(le.Uint32(b[8:])), RKey: le.Uint32(b[12:]),
		Addr: le.Uint64(b[16:]), Length: le.Uint64(b[24:]),
	}
	if err := read.wellFormed(); err != nil {
		return err
	}
	*r = read
	return nil
}

// The text form is remoteText and the base64 of the encoded form. It has no space or slash, so it can
// be used in a flag, a URL or a file name.
const (
	remoteText    = "vrbm:"
	remoteTextLen = (remoteSize*8 + 5) / 6 // base64 characters after the prefix
)

var remoteBase64 = base64.RawURLEncoding.Strict()

// MarshalText returns the text form, which contains the key.
//
// Implements: encoding.TextMarshaler.
func (r Remote) MarshalText() ([]byte, error) {
	b, err := r.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return remoteBase64.AppendEncode([]byte(remoteText), b), nil
}

// UnmarshalText decodes the output of MarshalText. For any other text it returns a
// *[DescriptorError] and does not change r.
//
// Implements: encoding.TextUnmarshaler.
func (r *Remote) UnmarshalText(text []byte) error {
	refuse := &DescriptorError{Reason: DescriptorText, Have: uint64(len(text)), Want: remoteTextLen}
	if len(text) != len(remoteText)+remoteTextLen || string(text[:len(remoteText)]) != remoteText {
		return refuse
	}
	var buf [remoteSize + 2]byte // the last two bytes are a margin that Decode does not use
	n, err := remoteBase64.Decode(buf[:], text[len(remoteText):])
	if err != nil || n != remoteSize { // n is smaller if the text has line breaks, which the decoder skips
		return refuse
	}
	return r.UnmarshalBinary(buf[:n])
}
