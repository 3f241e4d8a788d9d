package rxevm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// keyring holds the keys that sign Debian's releases.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// The sources of packages, unless VERBENA_RXEVM_MIRROR names another mirror of the first. The
// second has the kernel's later point releases.
const (
	mirror         = "http://deb.debian.org/debian"
	securityMirror = "http://security.debian.org/debian-security"
)

// askTime bounds the query for current versions, fetchTime the download of some 150 MB.
const (
	askTime   = 90 * time.Second
	fetchTime = 10 * time.Minute
)

// apt is a private apt: its own lists, archives, sources, and an empty status file, so that
// nothing counts as installed. It shares only the host's settings for the network (proxies). It
// writes nowhere outside dir.
type apt struct{ dir string }

// newApt makes the folders and the list of sources in dir.
func newApt(dir string) (*apt, error) {
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	from := mirror
	if m := os.Getenv("VERBENA_RXEVM_MIRROR"); m != "" {
		from = m
	}
	line := "deb [arch=amd64 signed-by=" + keyring + "] %s %s main\n"
	sources := fmt.Sprintf(line, from, suite) + fmt.Sprintf(line, securityMirror, suite+"-security")
	if err := os.WriteFile(filepath.Join(dir, "sources.list"), []byte(sources), 0o644); err != nil {
		return nil, err
	}
	return &apt{dir}, os.WriteFile(filepath.Join(dir, "status"), nil, 0o644)
}

// get runs apt-get and returns its output.
func (a *apt) get(ctx context.Context, limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	at := func(name string) string { return filepath.Join(a.dir, name) }
	var all []string
	for _, o := range []string{
		"Dir::State=" + at("state"), "Dir::State::status=" + at("status"), "Dir::Cache=" + at("cache"),
		"Dir::Etc::sourcelist=" + at("sources.list"), "Dir::Etc::sourceparts=/dev/null",
		"Dir::Etc::preferences=/dev/null", "Dir::Etc::preferencesparts=/dev/null",
		"APT::Architecture=amd64", "APT::Architectures=amd64", "APT::Architectures::=amd64",
		"APT::Install-Recommends=false", "APT::Sandbox::User=root",
		"Acquire::Languages=none", "Acquire::Retries=2", "Acquire::http::Timeout=20",
	} {
		all = append(all, "-o", o)
	}
	cmd := exec.CommandContext(ctx, "apt-get", append(append(all, "-qq", "-y"), args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	cmd.WaitDelay = time.Second // its children may keep the pipe
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("after %v: %w", limit, ctx.Err())
		}
		return "", fmt.Errorf("rxevm: apt-get %s: %w: %s", args[0], err, complaint(trouble.String()))
	}
	return out.String(), nil
}

// complaint returns the first error of apt, because the last line only reports the failure.
func complaint(s string) string {
	for line := range strings.Lines(s) {
		if strings.HasPrefix(line, "E: ") {
			return strings.TrimSpace(line)
		}
	}
	return lastLine(s)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}

// current queries the mirror for the current package files of these packages and their
// dependencies.
func (a *apt) current(ctx context.Context, packages ...string) ([]string, error) {
	// Error-Mode: without it an unreachable mirror is a warning, and the lists
	// of an earlier day would pass for today's.
	if _, err := a.get(ctx, askTime, "update", "-o", "APT::Update::Error-Mode=any"); err != nil {
		return nil, err
	}
	text, err := a.get(ctx, askTime, append([]string{"install", "--print-uris"}, packages...)...)
	if err != nil {
		return nil, err
	}
	return files(text)
}

// fetch downloads the packages, checked against the signed lists, and returns the files. They
// belong to apt: the caller removes dir after use.
func (a *apt) fetch(ctx context.Context, packages ...string) ([]string, error) {
	if _, err := a.get(ctx, fetchTime, append([]string{"install", "--download-only"}, packages...)...); err != nil {
		return nil, err
	}
	debs, err := filepath.Glob(filepath.Join(a.dir, "cache/archives/*.deb"))
	if err == nil && len(debs) == 0 {
		err = errors.New("rxevm: apt-get downloaded nothing")
	}
	return debs, err
}
