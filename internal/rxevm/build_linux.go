package rxevm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"time"
)

// The contents of an image folder.
const (
	rootName     = "root"     // the system, mounted read-only by the machine
	kernelName   = "vmlinuz"  // for QEMU's -kernel
	modulesName  = "modules"  // early modules in the order of loading, a path below root each
	manifestName = "packages" // its package files, a line each
	lockName     = "lock"     // shared by the machines that use it
)

// unpackTime bounds the unpacking of all packages: some 15 s on one processor.
const unpackTime = 5 * time.Minute

// merged are the folders that are in /usr, with links to them in the root. A system's first
// installation makes them, before any package is unpacked.
var merged = []string{"bin", "sbin", "lib", "lib64"}

// written are the files of the image that installation scripts write. No script is run here:
// nothing of the image is executed on the host except depmod.
var written = map[string]string{
	"etc/passwd":        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"etc/group":         "root:x:0:\nnogroup:x:65534:\n",
	"etc/hosts":         "127.0.0.1 localhost\n127.0.1.1 rxevm\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

// build makes an image of the packages in debs, in a new folder, which is complete only when
// build returns without an error.
func build(ctx context.Context, debs []string, to string) error {
	root := filepath.Join(to, rootName)
	for _, d := range merged {
		if err := os.MkdirAll(filepath.Join(root, "usr", d), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+d, filepath.Join(root, d)); err != nil {
			return err
		}
	}
	if err := unpack(ctx, debs, root); err != nil {
		return err
	}
	// Mount points; the machine's root is read-only.
	for _, d := range []string{"proc", "sys", "dev", "run", "tmp", "root", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	for name, text := range written {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for from, link := range map[string]string{"usr/bin/mawk": "usr/bin/awk"} {
		if err := os.Symlink(filepath.Base(from), filepath.Join(root, link)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := kernel(ctx, root, to); err != nil {
		return err
	}
	var names strings.Builder
	for _, d := range debs {
		fmt.Fprintln(&names, filepath.Base(d))
	}
	if err := os.WriteFile(filepath.Join(to, lockName), nil, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, manifestName), []byte(names.String()), 0o644)
}

// unpack unpacks packages, as many at a time as there are processors, the largest first: the
// kernel takes as long as all the others.
func unpack(ctx context.Context, debs []string, root string) error {
	ctx, cancel := context.WithTimeout(ctx, unpackTime)
	defer cancel()
	size := func(name string) int64 {
		if info, err := os.Stat(name); err == nil {
			return info.Size()
		}
		return 0
	}
	largest := 0
	for i := range debs {
		if size(debs[i]) > size(debs[largest]) {
			largest = i
		}
	}
	next := make(chan string, len(debs))
	next <- debs[largest]
	for i, d := range debs {
		if i != largest {
			next <- d
		}
	}
	close(next)
	var mu sync.Mutex // guards failed
	var failed error
	var wg sync.WaitGroup
	for range goruntime.NumCPU() {
		wg.Go(func() {
			for deb := range next {
				out, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", deb, root).CombinedOutput()
				if err != nil {
					mu.Lock()
					failed = errors.Join(failed, fmt.Errorf("rxevm: unpacking %s: %w: %s", filepath.Base(deb), err, lastLine(string(out))))
					mu.Unlock()
					cancel()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// kernel finds the kernel, indexes its modules, with the image's own depmod and its own loader so
// that the host needs none, and records the early ones.
func kernel(ctx context.Context, root, to string) error {
	found, err := filepath.Glob(filepath.Join(root, "usr/lib/modules/*/kernel"))
	if err != nil || len(found) != 1 {
		return errors.Join(err, fmt.Errorf("rxevm: %d kernels in the image, want one", len(found)))
	}
	dir := filepath.Dir(found[0])
	release := filepath.Base(dir)
	cmd := exec.CommandContext(ctx, filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2"),
		"--library-path", filepath.Join(root, "usr/lib/x86_64-linux-gnu"),
		filepath.Join(root, "usr/sbin/depmod"), "-b", root, release)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("rxevm: depmod: %w: %s", err, lastLine(string(out)))
	}
	dep, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return err
	}
	load, err := order(string(dep), early)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, m := range load {
		fmt.Fprintln(&list, filepath.Join("usr/lib/modules", release, m))
	}
	if err := os.WriteFile(filepath.Join(to, modulesName), []byte(list.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(filepath.Join(root, "boot", "vmlinuz-"+release), filepath.Join(to, kernelName))
}
