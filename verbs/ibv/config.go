package ibv

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Names of the libraries, as the dynamic linker finds them.
const (
	defaultVerbs  = "libibverbs.so.1"
	defaultRDMACM = "librdmacm.so.1"
)

// The Debian packages that hold them.
const (
	verbsPackage  = "libibverbs1 (and ibverbs-providers, the device drivers)"
	rdmacmPackage = "librdmacm1"
)

// Config says which libraries to load. The zero value is the system's.
type Config struct {
	// Verbs and RDMACM are names for the dynamic linker, or paths; default
	// libibverbs.so.1 and librdmacm.so.1.
	Verbs, RDMACM string
	// Fork says what is done about fork(2); default [ForkAuto]. The library keeps
	// one state for the process: what one provider asked for holds for all.
	Fork ForkPolicy
	// ExtendedCQ makes completion queues that are polled by ibv_start_poll, on
	// devices that have them. It is as a test of that path, and for devices
	// whose ordinary polling is the slower one; see "Which interface" in the
	// package comment, and measure. Default: no.
	ExtendedCQ bool
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
	Library string // what was looked for
	Package string // the Debian package that holds it
	Reason  string // the dynamic linker's words
}

// Error names the library, the reason and the package.
func (e *LibraryError) Error() string {
	return fmt.Sprintf("ibv: %s cannot be loaded: %s; on Debian it is in package %s", e.Library, e.Reason, e.Package)
}

// Is matches verbs.ErrNotSupported.
func (e *LibraryError) Is(target error) bool { return target == verbs.ErrNotSupported }

// SymbolError is a library that lacks a function that this package cannot do
// without. It matches [verbs.ErrNotSupported].
type SymbolError struct {
	Library string
	Symbol  string
	Version string // of the symbol, as looked for
}

// Error names the library and the function.
func (e *SymbolError) Error() string {
	return fmt.Sprintf("ibv: %s has no function %s (version %s)", e.Library, e.Symbol, e.Version)
}

// Is matches verbs.ErrNotSupported.
func (e *SymbolError) Is(target error) bool { return target == verbs.ErrNotSupported }
