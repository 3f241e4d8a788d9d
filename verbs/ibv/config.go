package ibv

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
)

// Names of the libraries, as the dynamic linker finds them.
const (
	defaultVerbs  = "libibverbs.so.1"
	defaultRDMACM = "librdmacm.so.1"
)

// The Debian packages that contain them.
const (
	verbsPackage  = "libibverbs1 (and ibverbs-providers, the device drivers)"
	rdmacmPackage = "librdmacm1"
)

// Config selects the libraries to load. The zero value means the system's.
type Config struct {
	// Verbs and RDMACM are names for the dynamic linker, or paths; default
	// libibverbs.so.1 and librdmacm.so.1.
	Verbs, RDMACM string
	// Fork is the policy for fork(2); default [ForkAuto]. The library has one state for the
	// process: the request of one provider holds for all.
	Fork ForkPolicy
	// ExtendedCQ makes completion queues that are polled by ibv_start_poll, on devices that have
	// them. It serves to test that path, and for devices whose ordinary polling is slower; see
	// "Which interface" in the package comment, and measure. Default: no.
	ExtendedCQ bool
	// Interfaces returns the network interfaces of the process that are up, whose addresses a device
	// may have. It may be called from any goroutine. Default: those of the process's network name
	// space. It serves to test devices with addresses that the machine does not have.
	Interfaces func() ([]Interface, error)
}

// Interface is a network interface.
type Interface struct {
	Index    int
	Name     string
	Hardware net.HardwareAddr
	Addrs    []netip.Prefix // each with the length of its network
	Checking []netip.Prefix // as Addrs, but not usable yet: the interface checks them for duplicates
	Loopback bool
}

func (c Config) withDefaults() Config {
	if c.Verbs == "" {
		c.Verbs = defaultVerbs
	}
	if c.RDMACM == "" {
		c.RDMACM = defaultRDMACM
	}
	return c
}

// LibraryError is a library that could not be loaded. It matches
// [verbs.ErrNotSupported].
type LibraryError struct {
	Library string // the name or path
	Package string // the Debian package that contains it
	Reason  string // the dynamic linker's message
}

// Error names the library, the reason and the package.
func (e *LibraryError) Error() string {
	return fmt.Sprintf("ibv: %s cannot be loaded: %s; on Debian it is in package %s", e.Library, e.Reason, e.Package)
}

// Is reports whether target is verbs.ErrNotSupported.
func (e *LibraryError) Is(target error) bool { return target == verbs.ErrNotSupported }

// SymbolError is a library without a function that this package requires. It matches
// [verbs.ErrNotSupported].
type SymbolError struct {
	Library string
	Symbol  string
	Version string // of the symbol that was looked up
}

// Error names the library and the function.
func (e *SymbolError) Error() string {
	return fmt.Sprintf("ibv: %s has no function %s (version %s)", e.Library, e.Symbol, e.Version)
}

// Is reports whether target is verbs.ErrNotSupported.
func (e *SymbolError) Is(target error) bool { return target == verbs.ErrNotSupported }
