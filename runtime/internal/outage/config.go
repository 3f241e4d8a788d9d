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
	Serve   netip.AddrPort // base port that this peer serves; the zero value: none
	Dial    netip.AddrPort // base port that this peer dials; the zero value: none
	// Plain is the TCP address at which this peer serves connections without a connection manager.
	// DialPlain is the TCP address that it dials for such connections. The zero values: none.
	Plain, DialPlain netip.AddrPort
	// Conns is the number of connections dialed for each role; default 1.
	Conns int
	// Work is the number of rounds of each worker; default 0: no limit, until Stop.
	Work int
	// Seed seeds the data.
	Seed uint64
	// Bounds is the time limits of operations; default those of the runtime.
	Bounds Limits
	// Out receives a line for each milestone: "ready", "connected", "connected again", "worked",
	// "ended". Nil: no lines.
	Out io.Writer
}

// Limits are the times that operations may take.
type Limits struct {
	Op    time.Duration // of operations of a queue pair; default DefaultOpBound
	Recv  time.Duration // of operations that wait for a peer that is gone; default DefaultRecvBound
	Slack time.Duration // added to each bound; default DefaultSlack
}

// Defaults of Limits: the times within which the runtime ends operations on Soft-RoCE, by
// Options.PeerTimeout and KeepAlive. The delay of Soft-RoCE gives timeout code 15. With 7 retries
// the device then gives up after 4.3 s, less than the peer timeout of 5 s, which therefore decides.
// One eighth of the peer timeout is added for the tick of the watchdog.
const (
	DefaultOpBound   = verbena.DefaultPeerTimeout * 9 / 8
	DefaultRecvBound = verbena.DefaultPeerTimeout + DefaultOpBound
	DefaultSlack     = 2 * time.Second
)

// DefaultConnectTimeout is the default of Config.Runtime.ConnectTimeout: less than that of package runtime, which
// allows for a kernel's repetitions, because an outage lasts only seconds.
const DefaultConnectTimeout = 5 * time.Second

// Bounds of closing: closeWait is the timeout of the context given to Close. closeBound adds the
// time for which Close continues after the end of its context (see Conn.Close).
const (
	closeWait  = time.Second
	closeBound = closeWait + 5*time.Second
)

// Offsets of the served ports from the base port.
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
		c.Runtime.ConnectTimeout = DefaultConnectTimeout
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
	RoleRaw                    // messages on a raw connection: the load posts each receive
	RolePlain                  // as RoleRaw, without a connection manager
)

// roles lists the roles of connections that are made with a connection manager.
var roles = []Role{RoleEcho, RoleNotify, RoleMemory, RoleWindow, RoleLone, RoleRaw}

// String returns the name of the role.
func (r Role) String() string {
	return [...]string{"", "echo", "notify", "memory", "window", "lone", "raw", "plain"}[min(r, RolePlain)]
}

// greeting is the private data of the dialing side:
//
//	0     4     5     6  8
//	magic role  area  0  seed
type greeting struct {
	role Role
	area uint8 // number of the area in the served region that only this connection uses
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

// parseGreeting reads a greeting from untrusted private data. The connection manager may have added
// padding at its end.
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
