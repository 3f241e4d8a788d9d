package rpma

import "errors"

// PeerConfig describes the platform of a peer. The zero value is librpma's default.
//
// Implements: rpma_peer_cfg_new.
type PeerConfig struct {
	// DirectWriteToPMem declares that the device of the peer writes to its persistent memory past the
	// processor's caches. A wrong declaration loses data when the peer loses power. On Intel processors it
	// is right only if DDIO is off.
	//
	// Implements: rpma_peer_cfg_set_direct_write_to_pmem, rpma_peer_cfg_get_direct_write_to_pmem.
	DirectWriteToPMem bool
}

// PeerConfigSize is the length of the descriptor of a PeerConfig in bytes.
//
// Implements: rpma_peer_cfg_get_descriptor_size.
const PeerConfigSize = 1

// Descriptor returns the form in which c is sent to peers. It is that of librpma.
//
// Implements: rpma_peer_cfg_get_descriptor.
func (c PeerConfig) Descriptor() (desc [PeerConfigSize]byte) {
	if c.DirectWriteToPMem {
		desc[0] = 1
	}
	return desc
}

var errShort = errors.New("the descriptor is too short")

// ParsePeerConfig reads a descriptor. As librpma does, it ignores what follows the descriptor, and takes
// every byte but 0 as a declaration.
//
// The descriptor comes from a peer. One that was changed on its way can make this program take data for
// persistent that is not: send it over a connection that is authenticated, and not as private data.
//
// Errors: ErrInvalid for fewer bytes than PeerConfigSize.
//
// Implements: rpma_peer_cfg_from_descriptor.
func ParsePeerConfig(desc []byte) (PeerConfig, error) {
	if len(desc) < PeerConfigSize {
		return PeerConfig{}, invalid("rpma_peer_cfg_from_descriptor", "%w: %d bytes, want at least %d", errShort, len(desc), PeerConfigSize)
	}
	return PeerConfig{DirectWriteToPMem: desc[0] != 0}, nil
}
