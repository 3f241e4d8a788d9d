package wire

import "github.com/verbena-rdma/verbena/verbs"

// Path is the way of packets between a port and another one: the addresses of both ends. A path
// without UDP ports is between ports of one fabric, or between adapters, which all have the same
// UDP port.
type Path struct {
	Peer verbs.GID
	// Local is this end's address. Zero: the port's own address; with UDP ports, the choice of the
	// system.
	Local               verbs.GID
	PeerPort, LocalPort uint16
}

// To returns the path to a GID without UDP ports.
func To(peer verbs.GID) Path { return Path{Peer: peer} }

// Far reports whether the path has UDP ports: it is between processes.
func (p *Path) Far() bool { return p.LocalPort != 0 }
