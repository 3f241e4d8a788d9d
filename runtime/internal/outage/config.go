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

// Config describes a peer. Runtime and one of the addresses are needed.
type Config struct {
	Runtime verbena.Config
	Serve   netip.AddrPort // base of the ports served; the zero value: none
	Dial    netip.AddrPort // base of the ports dialled; the zero value: none
	// Plain is the TCP address where connections without a connection manager are
	// served, and DialPlain where they are dialled; the zero values: none.
	Plain, DialPlain netip.AddrPort
	// Conns is how many connections of each role are dialled; default 1.
	Conns int
	// Work is how many rounds each worker makes; default 0: until the end.
	Work int
	// Seed makes the data.
	Seed uint64
	// Bounds are what operations are held to; default those of the runtime.
	Bounds Limits
	// Out is told in a line each what has been reached: "ready", "connected",
	// "worked", "removed". Default: nowhere.
	Out io.Writer
}

// Limits are how long operations may take.
type Limits struct {
	Op    time.Duration // what a queue pair does; default DefaultOpBound
	Recv  time.Duration // what waits for a peer that is gone; default DefaultRecvBound
	Slack time.Duration // what is allowed beside each; default DefaultSlack
}

// Defaults of Limits: what the runtime promises (Options.PeerTimeout, KeepAlive) on
// Soft-RoCE, whose delay makes code 15 of the timeout: with 7 retries that is
// 4.3 s, less than the configured 5 s; and one eighth, which is how often the runtime
// looks.
const (
	DefaultOpBound   = verbena.DefaultPeerTimeout * 9 / 8
	DefaultRecvBound = verbena.DefaultPeerTimeout + DefaultOpBound
	DefaultSlack     = 2 * time.Second
)

// What connecting and closing may take: Config.ConnectTimeout, and for Close its
// context with what it goes on for (see Conn.Close).
const (
	closeWait  = time.Second
	closeBound = closeWait + 5*time.Second
)

// Offsets of the ports served, from the base.
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

// Role is what a connection is dialled for.
type Role uint8

// The roles.
const (
	RoleEcho   Role = iota + 1 // messages, several under way, come back
	RoleNotify                 // writes with immediate, which the peer checks and answers
	RoleMemory                 // writes, reads, atomics and big transfers at once
	RoleWindow                 // the peer writes through windows
	RoleLone                   // nothing is ever sent; both wait for a message
	RoleRaw                    // messages into receives posted one by one
	RolePlain                  // as RoleRaw, without a connection manager
)

// roles are those with one.
var roles = []Role{RoleEcho, RoleNotify, RoleMemory, RoleWindow, RoleLone, RoleRaw}

// String names the role.
func (r Role) String() string {
	return [...]string{"", "echo", "notify", "memory", "window", "lone", "raw", "plain"}[min(r, RolePlain)]
}

// greeting is what the dialling side says in its private data:
//
//	0     4     5     6  8
//	magic role  area  0  seed
type greeting struct {
	role Role
	area uint8 // of the served region, which this connection has to itself
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

// parseGreeting reads what a stranger may have sent. What follows is padding of
// the connection manager's.
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
