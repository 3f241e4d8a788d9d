package rxevm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
)

// suite is the Debian release of the machine, by name: its kernel has rdma_rxe, and the name
// stays valid when the next one becomes stable.
const suite = "trixie"

// packages are the packages of the image, by name, whose dependencies are added: the kernel with
// rdma_rxe, the RDMA libraries, the C programs that the tests talk to or compile, and the tools of a
// shell script. Debian's essential packages are not dependencies of others, so the needed ones are
// listed.
var packages = []string{
	"linux-image-amd64",
	"rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "perftest", "libfabric-bin",
	"iproute2", "nftables", "kmod", "procps",
	"tcc", "libc6-dev", "librpma-dev", "libibverbs-dev", // a small C compiler, for peers that use librpma
	"ndctl", "e2fsprogs", // persistent memory (Config.NVDIMM), and a file system on it
	"base-files", "dash", "bash", "coreutils", "findutils", "grep", "sed", "mawk", "util-linux", "hostname", "libc-bin",
}

// early are the modules that the machine needs before it mounts its root.
var early = []string{"9pnet_virtio", "9p", "overlay"}

// recipe is incremented when an image is made differently from the same packages.
const recipe = 1

// keyOf returns the key of the image that is made of these package files, as apt names them,
// versions included.
func keyOf(files []string) string {
	sorted := slices.Sorted(slices.Values(files))
	h := sha256.New()
	fmt.Fprintf(h, "recipe %d\n%s\n", recipe, strings.Join(early, " "))
	for _, f := range sorted {
		fmt.Fprintln(h, f)
	}
	// 64 bits: enough to distinguish some versions.
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// recipeID returns the part of an image's key that does not depend on the mirror.
func recipeID() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s%s", keyOf(nil), suite, strings.Join(packages, " "))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// files parses the output of apt-get --print-uris, a line each: 'URI' name size hash. A name must
// be one file name, without a path.
func files(printed string) ([]string, error) {
	var names []string
	for line := range strings.Lines(printed) {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], "'") {
			continue
		}
		if len(f) < 3 || path.Base(f[1]) != f[1] || !strings.HasSuffix(f[1], ".deb") {
			return nil, fmt.Errorf("rxevm: apt-get --print-uris said %q", strings.TrimSpace(line))
		}
		names = append(names, f[1])
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("rxevm: apt-get --print-uris named no package")
	}
	return names, nil
}

// order returns the loading order of modules, dependencies first: dep is the text of modules.dep,
// which lists a module's dependencies from the nearest to the farthest.
func order(dep string, names []string) ([]string, error) {
	needs := map[string][]string{} // by name, itself first
	for line := range strings.Lines(dep) {
		file, rest, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(path.Base(file), ".ko")
		needs[name] = append([]string{file}, strings.Fields(rest)...)
	}
	var load []string
	for _, n := range names {
		chain, ok := needs[n]
		if !ok {
			return nil, fmt.Errorf("rxevm: the kernel has no module %s", n)
		}
		for _, file := range slices.Backward(chain) {
			if !slices.Contains(load, file) {
				load = append(load, file)
			}
		}
	}
	return load, nil
}
