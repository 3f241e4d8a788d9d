package outage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Config describes a peer. Runtime and at least one address are required.
type Config struct {
	Runtime verbena.Config
	Serve   netip.AddrPort // base of the ports served; the zero value: none
	Dial    netip.AddrPort // base of the ports dialed; the zero value: none
	// Plain is the TCP address that serves connections without a connection manager, and DialPlain
	// the one that is dialed for them; the zero values: none.
	Plain, DialPlain netip.AddrPort
	// Conns is the number of connections dialed for each role; default 1.
	Conns int
	// Work is the number of rounds of each worker; default 0: until the end.
	Work int
	// Seed seeds the data.
	Seed uint64
	// Bounds is the time limits of operations; default those of the runtime.
	Bounds Limits
	// Out receives a line for each milestone: "ready", "connected", "worked", "removed". Default:
	// none.
	Out io.Writer
}

// Limits is the time that operations may take.
type Limits struct {
	Op    time.Duration // of operations of a queue pair; default DefaultOpBound
	Recv  time.Duration // of operations that wait for a peer that is gone; default DefaultRecvBound
	Slack time.Duration // added to each bound; default DefaultSlack
}

// Defaults of Limits: what the runtime promises (Options.PeerTimeout, KeepAlive) on Soft-RoCE. Its
// delay makes the timeout code 15: with 7 retries that is 4.3 s, less than the configured 5 s. One
// eighth is added for the tick of the watchdog.
const (
	DefaultOpBound   = verbena.DefaultPeerTimeout * 9 / 8
	DefaultRecvBound = verbena.DefaultPeerTimeout + DefaultOpBound
	DefaultSlack     = 2 * time.Second
)

// Bounds of closing: closeWait is the timeout of Close's context, closeBound adds the time that
// Close continues after it (see Conn.Close).
const (
	closeWait  = time.Second
	closeBound = closeWait + 5*time.Second
)

// Offsets of the served ports from the base.
const (
	managedPort = iota
	rawPort
	packetPort
)

func (c Config) withDefaults() (Config, error) {
	if !c.Serve.IsValid() && !c.Dial.IsValid() && !c.Plain.IsValid() && !c.DialPlain.IsValid() {
		return c, errors.New("outage: neither an address to serve nor one to dial")
	}
	if c.Conns == 0 {
		c.Conns = 1
	}
	if c.Conns < 0 || c.Conns*areasPerConn > areas {
		return c, fmt.Errorf("outage: %d connections of each role, up to %d", c.Conns, areas/areasPerConn)
	}
	if c.Runtime.ConnectTimeout == 0 {
		c.Runtime.ConnectTimeout = verbena.DefaultConnectTimeout
	}
	for _, d := range []struct {
		value *time.Duration
		dflt  time.Duration
	}{{&c.Bounds.Op, DefaultOpBound}, {&c.Bounds.Recv, DefaultRecvBound}, {&c.Bounds.Slack, DefaultSlack}} {
		if *d.value == 0 {
			*d.value = d.dflt
		}
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	return c, nil
}

// Role is the purpose of a connection.
type Role uint8

// Values of Role.
const (
	RoleEcho   Role = iota + 1 // messages, several outstanding, are echoed
	RoleNotify                 // writes with immediate, which the peer checks and answers
	RoleMemory                 // concurrent writes, reads, atomics and big transfers
	RoleWindow                 // the peer writes through windows
	RoleLone                   // no data is sent; both ends wait for a message
	RoleRaw                    // messages into receives posted one by one
	RolePlain                  // as RoleRaw, without a connection manager
)

// roles lists the roles of connections with a connection manager.
var roles = []Role{RoleEcho, RoleNotify, RoleMemory, RoleWindow, RoleLone, RoleRaw}

// String names the role.
func (r Role) String() string {
	return [...]string{"", "echo", "notify", "memory", "window", "lone", "raw", "plain"}[min(r, RolePlain)]
}

// greeting is the private data of the dialing side:
//
//	0     4     5     6  8
//	magic role  area  0  seed
type greeting struct {
	role Role
	area uint8 // of the served region, exclusive to this connection
	seed uint64
}

const (
	greetingSize  = 16
	greetingMagic = "OUTA"
)

func (g greeting) encode() []byte {
	b := append([]byte(greetingMagic), byte(g.role), g.area, 0, 0)
	return binary.LittleEndian.AppendUint64(b, g.seed)
}

var errGreeting = errors.New("outage: not a greeting")

// parseGreeting reads untrusted private data. Padding of the connection manager may follow.
func parseGreeting(b []byte) (g greeting, err error) {
	if len(b) < greetingSize || string(b[:4]) != greetingMagic {
		return g, errGreeting
	}
	g = greeting{role: Role(b[4]), area: b[5], seed: binary.LittleEndian.Uint64(b[8:])}
	if g.role < RoleEcho || g.role > RoleRaw || g.area >= areas {
		return g, fmt.Errorf("%w: role %d, area %d", errGreeting, b[4], b[5])
	}
	return g, nil
}
