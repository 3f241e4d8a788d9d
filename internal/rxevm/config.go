package rxevm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The defaults of [Config] and [Cmd].
const (
	// defaultCPUs is enough for two processes that spin at each other.
	defaultCPUs = 2
	// defaultMemoryMB is twice the need of a test run with its memory file system. The host
	// provides only the pages that are touched.
	defaultMemoryMB = 2048
	// defaultBoot is some twenty times a boot by emulation on an idle
	// processor.
	defaultBoot = 2 * time.Minute
	// defaultTimeout is that of go test.
	defaultTimeout = 10 * time.Minute
)

// maxNodes is the limit of NUMA nodes in a machine: more than any test needs.
const maxNodes = 8

// Config describes a machine. The zero value is a machine with two processors and 2 GB and
// without access to the host's files.
type Config struct {
	// Shares are folders of the host, at the same path in the machine.
	Shares []Share
	// CPUs is the number of processors; 2 by default, or one for each NUMA
	// node; a multiple of the nodes.
	CPUs int
	// MemoryMB is the memory in units of 2^20 bytes; 2048 by default.
	MemoryMB int
	// NUMANodes is the number of emulated NUMA nodes, which share processors
	// and memory evenly; 0 and 1 are a machine without NUMA.
	NUMANodes int
	// Cable joins the machine to others; nil for none. It stays the caller's.
	Cable *Cable
	// NVDIMM is a regular file of the host, by its absolute path, that the machine has as persistent
	// memory; empty for none. The file's size is a multiple of NVDIMMUnit. What the machine has stored
	// is in the file whatever happens to the machine; two machines do not share a file. The machine has ndctl,
	// which makes /dev/dax0.0 of it (ndctl create-namespace -f -e namespace0.0 -m devdax), and that stays.
	NVDIMM string
	// BootTimeout bounds a boot, without the build of the image; 2 minutes by default. There are
	// two boots at most.
	BootTimeout time.Duration
	// Log receives messages until there is a machine; nil discards them, except that a repeated
	// boot is then reported on standard error.
	Log io.Writer

	nvdimmMB int // size of NVDIMM, set by validate

	// accel is the accelerator for the probe that tests it; empty for the best one known to work.
	accel string
}

// Share is a folder of the host.
type Share struct {
	// Path is its absolute path, on the host and in the machine.
	Path string
	// Writable lets the machine change it.
	Writable bool
}

// NVDIMMUnit is the unit of the size of Config.NVDIMM: the kernel's for memory that comes later (a
// section of x86 has 128 MiB).
const NVDIMMUnit = 128 << 20

// nvdimm checks the file of the persistent memory.
func (c *Config) nvdimm() error {
	if c.NVDIMM == "" {
		return nil
	}
	st, err := os.Stat(c.NVDIMM)
	switch {
	case err != nil:
		return fmt.Errorf("rxevm: the NVDIMM: %w", err)
	case !filepath.IsAbs(c.NVDIMM) || !st.Mode().IsRegular() || st.Size() == 0 || st.Size()%NVDIMMUnit != 0:
		return fmt.Errorf("rxevm: the NVDIMM %q is no absolute path of a regular file with a multiple of %d bytes", c.NVDIMM, NVDIMMUnit)
	}
	c.nvdimmMB = int(st.Size() >> 20)
	return nil
}

// system are the top-level folders of the machine that a share must not hide.
var system = []string{"bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr", "verbena"}

// validate fills in the defaults, and returns an error for invalid values.
func (c *Config) validate() error {
	orDefault := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orDefault(&c.CPUs, max(defaultCPUs, c.NUMANodes))
	orDefault(&c.MemoryMB, defaultMemoryMB)
	if c.BootTimeout == 0 {
		c.BootTimeout = defaultBoot
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	switch {
	case c.NUMANodes < 0 || c.NUMANodes > maxNodes:
		return fmt.Errorf("rxevm: %d NUMA nodes, want 0 to %d", c.NUMANodes, maxNodes)
	case c.CPUs < 1 || c.CPUs%max(1, c.NUMANodes) != 0:
		return fmt.Errorf("rxevm: %d processors for %d NUMA nodes", c.CPUs, c.NUMANodes)
	case c.MemoryMB < 0 || c.BootTimeout < 0:
		return errors.New("rxevm: negative memory or time")
	}
	for _, s := range c.Shares {
		if !filepath.IsAbs(s.Path) || filepath.Clean(s.Path) != s.Path {
			return fmt.Errorf("rxevm: share %q is no clean absolute path", s.Path)
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(s.Path, "/"), "/")
		if top == "" || slices.Contains(system, top) {
			return fmt.Errorf("rxevm: share %q would hide the machine's own", s.Path)
		}
	}
	return c.nvdimm()
}

// Cmd is a command for a machine.
type Cmd struct {
	// Argv is the program, looked up in the machine's PATH if it has no slash,
	// and its arguments.
	Argv []string
	// Env is added to the machine's environment, KEY=value each; the last of
	// a name counts.
	Env []string
	// Dir is the working folder in the machine; "/" by default.
	Dir string
	// Carry copies the program into the machine's memory and runs it there.
	Carry bool
	// Stdout and Stderr receive the output, from a goroutine of the command that ends before Wait
	// returns; nil discards it. A writer that blocks blocks only its command, and the command
	// fails if 64 MB arrive meanwhile.
	Stdout, Stderr io.Writer
	// Timeout is the time after which the command is killed; 10 minutes by default.
	Timeout time.Duration
}
