package rxevm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
)

// suite is the Debian release that the machine is made of, by name: its kernel
// has rdma_rxe, and it stays the same when the next one becomes stable.
const suite = "trixie"

// packages are what the image is made of, by name, with what they depend on:
// the kernel with rdma_rxe, the RDMA libraries, the C programs that the tests
// talk to, and what a shell script expects. Debian's essential packages come
// with nobody's dependencies, so those in use are named.
var packages = []string{
	"linux-image-amd64",
	"rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "perftest", "libfabric-bin",
	"iproute2", "kmod", "procps",
	"base-files", "dash", "bash", "coreutils", "findutils", "grep", "sed", "mawk", "util-linux", "hostname", "libc-bin",
}

// early are the modules that the machine needs before it sees its root.
var early = []string{"9pnet_virtio", "9p", "overlay"}

// recipe changes when an image is made differently of the same packages.
const recipe = 1

// keyOf is the key of the image that is made of these package files, as apt
// names them: versions and all.
func keyOf(files []string) string {
	sorted := slices.Sorted(slices.Values(files))
	h := sha256.New()
	fmt.Fprintf(h, "recipe %d\n%s\n", recipe, strings.Join(early, " "))
	for _, f := range sorted {
		fmt.Fprintln(h, f)
	}
	// 64 bits: enough to tell some versions from each other.
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// recipeID is what of an image's key does not come from the mirror.
func recipeID() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s%s", keyOf(nil), suite, strings.Join(packages, " "))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// files reads the answer of apt-get --print-uris, a line each: 'URI' name size
// hash. A name is one file name: nothing that leads out of a folder.
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

// order is the order in which modules are loaded so that each finds what it
// needs: dep is the text of modules.dep, in which a module's needs stand from
// the nearest to the farthest.
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
