package rxevm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"time"
)

type tool struct{ name, from string }

// tools are the requirements on the host, and the Debian package of each. The last is a file.
var tools = []tool{
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"apt-get", "apt"},
	{"dpkg-deb", "dpkg"},
	{"go", "golang-go"},
	{keyring, "debian-archive-keyring"},
}

// Missing returns an error that names the missing tools, as one line with the command that
// installs them, wrapped in [ErrNotHere]; nil if nothing is missing. It reads only the file
// system.
func Missing() error { return missing(tools) }

// missing is Missing for some of the tools.
func missing(tools []tool) error {
	if goruntime.GOARCH != "amd64" {
		return fmt.Errorf("%w: it is an amd64 machine, and this is %s", ErrNotHere, goruntime.GOARCH)
	}
	names, from := lacking(tools)
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s missing; apt-get install %s (as root, VERBENA_RXEVM_INSTALL=1 does it)",
		ErrNotHere, strings.Join(names, ", "), strings.Join(from, " "))
}

// lacking returns the tools that are missing, and their packages.
func lacking(tools []tool) (names, from []string) {
	for _, t := range tools {
		_, err := exec.LookPath(t.name)
		if strings.HasPrefix(t.name, "/") {
			_, err = os.Stat(t.name)
		}
		if err != nil {
			names = append(names, t.name)
			if !slices.Contains(from, t.from) {
				from = append(from, t.from)
			}
		}
	}
	return names, from
}

// installTime bounds the installation of QEMU from a slow mirror.
const installTime = 10 * time.Minute

// Install installs the missing tools, if the process runs as root and VERBENA_RXEVM_INSTALL is 1;
// otherwise it changes nothing. It returns the error of [Missing] if something is still missing.
// It blocks until apt-get ends.
func Install(ctx context.Context, say func(format string, args ...any)) error {
	missing := Missing()
	_, from := lacking(tools)
	if missing == nil || len(from) == 0 || os.Getenv("VERBENA_RXEVM_INSTALL") != "1" || os.Geteuid() != 0 {
		return missing
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return missing
	}
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	for _, args := range [][]string{
		{"update", "-qq"},
		append([]string{"install", "-qq", "-y", "--no-install-recommends"}, from...),
	} {
		say("apt-get %s", strings.Join(args, " "))
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		cmd.WaitDelay = time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w; installing failed: apt-get %s: %w: %s", missing, args[0], err, lastLine(string(out)))
		}
	}
	return Missing()
}
