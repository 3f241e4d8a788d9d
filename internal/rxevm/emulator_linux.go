package rxevm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// emulator runs a Linux program of arm64, without a machine around it. The package's build is
// linked statically, so that it needs nothing else.
const emulator, emulatorPackage = "qemu-aarch64", "qemu-user"

// Emulator returns the path of a program that runs programs of arm64 here: the system's, or
// Debian's in the cache, which is fetched once (70 MB). It blocks until then or until ctx ends.
// Errors: [ErrNotHere].
func Emulator(ctx context.Context) (string, error) {
	if p, err := exec.LookPath(emulator); err == nil {
		return p, nil
	}
	dir, err := CacheDir()
	if err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer func() { _ = unlock() }() // closing the descriptor releases the lock in any case
	program := filepath.Join(dir, emulator+"-"+suite)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := missing(tools[1:]); err != nil { // all but the machine's QEMU
		return "", err
	}
	a, err := newApt(filepath.Join(dir, "apt-emulator"))
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(a.dir)
	if _, err := a.current(ctx, emulatorPackage); err != nil {
		return "", fmt.Errorf("%w: no %s in %s, and none can be fetched: %w", ErrNotHere, emulator, dir, err)
	}
	debs, err := a.fetch(ctx, emulatorPackage)
	if err != nil {
		return "", err
	}
	root := filepath.Join(a.dir, "root")
	if err := unpack(ctx, debs, root); err != nil {
		return "", err
	}
	return program, os.Rename(filepath.Join(root, "usr/bin", emulator), program)
}
