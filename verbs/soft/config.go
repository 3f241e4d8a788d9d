package soft

import (
	"fmt"
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
)

// Config describes a provider. The zero value is that of [Default]: four devices on the
// process-wide fabric.
type Config struct {
	// Fabric is the link of the devices. nil selects the process-wide fabric, which all providers
	// without a fabric of their own share.
	Fabric *fabric.Fabric
	// Devices are the devices; nil selects soft0 (127.0.0.1) to soft3 (127.0.0.4), of which soft0 has
	// LinkPeers.
	Devices []DeviceConfig
	// CM sets the times of the connection manager.
	CM CMConfig
}

// DeviceConfig describes a device.
type DeviceConfig struct {
	Name string     // must be unique in its provider
	Addr netip.Addr // the IP address of its port; unique on the fabric

	// Link is how the device reaches other processes and machines. Devices of the same fabric are
	// reached without it. Default LinkFabric: not at all.
	Link Link

	// MTU is the active path MTU of the port. 0 selects MTUJumbo if the fabric supports it,
	// otherwise MTU4096; with LinkRoCE the largest up to MTU4096 that the interface carries. A
	// path to another process has at most the largest that the routes of both ends carry, up to MTU32768.
	MTU verbs.MTU
	// Limits bounds the objects of the device; a zero member selects its default.
	Limits Limits
}

// Link is how a device reaches other processes and machines; see package roce.
type Link uint8

// Values of Link.
const (
	// LinkFabric: only devices of the same fabric.
	LinkFabric Link = iota
	// LinkPeers: devices with LinkPeers in other processes, of this machine or others, by UDP. The device
	// has every address of the machine except the link-local ones of IPv6, which are refused. Each listener
	// has a socket, whose UDP port is its port; dialed connections share another socket.
	LinkPeers
	// LinkRoCE: RDMA devices, Linux Soft-RoCE, and devices with LinkRoCE in other processes. The device has
	// one socket, at Addr, which is an address of this machine, and UDP port 4791. It is open while the
	// device is.
	LinkRoCE
)

// Limits bounds the objects of a device. Zero members select the defaults given here.
type Limits struct {
	MaxQP       int    // 16384
	MaxQPWR     int    // work requests per queue, 16384
	MaxSGE      int    // 32
	MaxInline   int    // bytes, 1024
	MaxCQ       int    // 16384
	MaxCQE      int    // 4194304
	MaxMR       int    // 1048576
	MaxMW       int    // memory windows, 262144
	MaxPD       int    // 32768
	MaxSRQ      int    // 16384
	MaxSRQWR    int    // 16384
	MaxSRQSGE   int    // 32
	MaxAH       int    // 1048576
	MaxMcastGrp int    // multicast groups, 8192
	MaxMcastQP  int    // queue pairs attached to a group, 56
	MaxRdAtomic int    // outstanding READs and atomics of a queue pair, in each direction: 128
	MaxMsgSize  uint32 // bytes of one message, 1 GiB
	CompVectors int    // 64
}

// The defaults of Limits, those of a common adapter.
var defaultLimits = Limits{
	MaxQP:       16384,
	MaxQPWR:     16384,
	MaxSGE:      32,
	MaxInline:   1024,
	MaxCQ:       16384,
	MaxCQE:      1 << 22,
	MaxMR:       1 << 20,
	MaxMW:       1 << 18,
	MaxPD:       32768,
	MaxSRQ:      16384,
	MaxSRQWR:    16384,
	MaxSRQSGE:   32,
	MaxAH:       1 << 20,
	MaxMcastGrp: 8192, // this and the next as in rdma_rxe (rxe_param.h)
	MaxMcastQP:  56,
	MaxRdAtomic: 128,
	MaxMsgSize:  1 << 30,
	CompVectors: 64,
}

// maxSGERead is the number of elements a READ may scatter to.
const maxSGERead = 30

// Upper bounds of Limits that follow from the engine's encodings.
const (
	ceilQP = 1<<16 - 2 // queue pair numbers hold a 16-bit index
	// Regions, and windows: together half of the 24-bit indexes, so that a free one is found soon.
	ceilKeys     = 1 << 22
	ceilRdAtomic = 255 // 8 bits in the attributes

	ceilMsgSize uint32 = 1 << 31 // IBTA 9.4: 2^31 bytes
)

func pick(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

// withDefaults replaces zero members with defaults and checks the others.
func (l Limits) withDefaults() (Limits, error) {
	d := &defaultLimits
	pick(&l.MaxQP, d.MaxQP)
	pick(&l.MaxQPWR, d.MaxQPWR)
	pick(&l.MaxSGE, d.MaxSGE)
	pick(&l.MaxInline, d.MaxInline)
	pick(&l.MaxCQ, d.MaxCQ)
	pick(&l.MaxCQE, d.MaxCQE)
	pick(&l.MaxMR, d.MaxMR)
	pick(&l.MaxMW, d.MaxMW)
	pick(&l.MaxPD, d.MaxPD)
	pick(&l.MaxSRQ, d.MaxSRQ)
	pick(&l.MaxSRQWR, d.MaxSRQWR)
	pick(&l.MaxSRQSGE, d.MaxSRQSGE)
	pick(&l.MaxAH, d.MaxAH)
	pick(&l.MaxMcastGrp, d.MaxMcastGrp)
	pick(&l.MaxMcastQP, d.MaxMcastQP)
	pick(&l.MaxRdAtomic, d.MaxRdAtomic)
	pick(&l.CompVectors, d.CompVectors)
	if l.MaxMsgSize == 0 {
		l.MaxMsgSize = d.MaxMsgSize
	}
	for _, c := range []struct {
		name   string
		v, top int
	}{
		{"MaxQP", l.MaxQP, ceilQP}, {"MaxQPWR", l.MaxQPWR, 1 << 20}, {"MaxSGE", l.MaxSGE, 1 << 10},
		{"MaxInline", l.MaxInline, 1 << 16}, {"MaxCQ", l.MaxCQ, 1 << 24}, {"MaxCQE", l.MaxCQE, 1 << 24},
		{"MaxSRQ", l.MaxSRQ, 1 << 16}, {"MaxSRQWR", l.MaxSRQWR, 1 << 20}, {"MaxSRQSGE", l.MaxSRQSGE, 1 << 10},
		{"MaxMR", l.MaxMR, ceilKeys}, {"MaxMW", l.MaxMW, ceilKeys}, {"MaxPD", l.MaxPD, 1 << 24}, {"MaxRdAtomic", l.MaxRdAtomic, ceilRdAtomic},
		{"MaxAH", l.MaxAH, 1 << 24}, {"MaxMcastGrp", l.MaxMcastGrp, 1 << 24}, {"MaxMcastQP", l.MaxMcastQP, 1 << 14},
		{"CompVectors", l.CompVectors, 1 << 10},
	} {
		if c.v < 1 || c.v > c.top {
			return l, fmt.Errorf("%w: limit %s is %d, must be between 1 and %d", verbs.ErrInvalid, c.name, c.v, c.top)
		}
	}
	if l.MaxMsgSize > ceilMsgSize {
		return l, fmt.Errorf("%w: limit MaxMsgSize is %d, must be between 1 and %d", verbs.ErrInvalid, l.MaxMsgSize, ceilMsgSize)
	}
	return l, nil
}

// defaultDevices returns the devices of the zero Config.
func defaultDevices() []DeviceConfig {
	ds := make([]DeviceConfig, 4)
	for i := range ds {
		ds[i] = DeviceConfig{
			Name: fmt.Sprintf("soft%d", i),
			Addr: netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + i)}),
		}
	}
	ds[0].Link = LinkPeers
	return ds
}

// validate fills in defaults and rejects invalid configurations.
func (c Config) validate() (Config, error) {
	if c.Fabric == nil {
		c.Fabric = defaultFabric()
	}
	if c.Devices == nil {
		c.Devices = defaultDevices()
	}
	names, addrs := map[string]bool{}, map[netip.Addr]bool{}
	ds := make([]DeviceConfig, len(c.Devices))
	for i, d := range c.Devices {
		switch {
		case d.Name == "":
			return c, fmt.Errorf("%w: device %d has no name", verbs.ErrInvalid, i)
		case names[d.Name]:
			return c, fmt.Errorf("%w: two devices are named %q", verbs.ErrInvalid, d.Name)
		case !d.Addr.IsValid() || d.Addr.IsUnspecified():
			return c, fmt.Errorf("%w: device %q needs an address, has %v", verbs.ErrInvalid, d.Name, d.Addr)
		case addrs[d.Addr.Unmap()]:
			return c, fmt.Errorf("%w: two devices have the address %v", verbs.ErrInvalid, d.Addr)
		case d.MTU != 0 && d.MTU.Bytes() == 0:
			return c, fmt.Errorf("%w: device %q has no such path MTU: %d", verbs.ErrInvalid, d.Name, d.MTU)
		case d.MTU == verbs.MTUJumbo && (d.Link == LinkRoCE || !c.Fabric.JumboMTU()):
			return c, fmt.Errorf("%w: device %q asks for the jumbo MTU, which its link does not carry", verbs.ErrInvalid, d.Name)
		case d.Link != LinkFabric && c.Fabric.Virtual():
			return c, fmt.Errorf("%w: device %q cannot have a socket on a fabric in virtual time", verbs.ErrInvalid, d.Name)
		}
		names[d.Name], addrs[d.Addr.Unmap()] = true, true
		l, err := d.Limits.withDefaults()
		if err != nil {
			return c, fmt.Errorf("device %q: %w", d.Name, err)
		}
		d.Limits = l
		switch {
		case d.MTU != 0:
		case d.Link == LinkRoCE:
			d.MTU = roce.MTU(d.Addr)
		case c.Fabric.JumboMTU():
			d.MTU = verbs.MTUJumbo
		default:
			d.MTU = verbs.MTU4096
		}
		ds[i] = d
	}
	c.Devices = ds
	return c, c.CM.validate()
}
