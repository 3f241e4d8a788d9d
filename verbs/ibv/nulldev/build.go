package nulldev

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/verbs/ibv/abi"
)

//go:embed c/*.c c/*.h c/*.map c/profile/*.c c/profile/*.h c/cm/*.c c/cm/*.h c/cm/*.map
var sources embed.FS

// File names of the libraries in their folder. Their sonames differ and contain the hash:
// librdmacm must find this libibverbs, even where the system's libibverbs.so.1 is loaded already.
const (
	verbsFile  = "libibverbs.so.1"
	rdmacmFile = "librdmacm.so.1"
)

// compileTime bounds one run of the compiler.
const compileTime = 2 * time.Minute

// ErrNoCompiler means that there is no C compiler, or that the system is not supported.
var ErrNoCompiler = errors.New("nulldev: no C compiler")

// CompileError is a compiler that failed.
type CompileError struct {
	Command string
	Output  string
	Err     error
}

// Error includes the compiler's output.
func (e *CompileError) Error() string {
	return fmt.Sprintf("nulldev: %s: %v\n%s", e.Command, e.Err, e.Output)
}

// Unwrap returns the cause for errors.Is and errors.As.
func (e *CompileError) Unwrap() error { return e.Err }

// Paths are the two libraries.
type Paths struct {
	Verbs  string // libibverbs.so.1
	RDMACM string // librdmacm.so.1; it loads Verbs from the same folder
}

// Build returns the libraries, and compiles them if they are not cached: they are kept in the
// user's cache folder, or in the user's own temporary folder, under the hash of the sources, the
// headers and the compiler. It blocks while it compiles, some seconds. Any number of goroutines
// and processes may call it at the same time. The files belong to the cache.
//
// Errors: ErrNoCompiler, *CompileError, those of the file system.
func Build() (Paths, error) { return build() }

// build is Build with more flags for the compiler, which have a cache entry of their own.
func build(flags ...string) (Paths, error) {
	cc, version, err := compiler()
	if err != nil {
		return Paths{}, err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, cc, version, flags, baseFlags)
	files, err := collect(func(name string, text []byte) { fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text) })
	if err != nil {
		return Paths{}, err
	}
	key := hex.EncodeToString(hash.Sum(nil))[:24]
	var dir, tmp string
	var p Paths
	for _, usable := range []func() (string, error){cacheFolder, tempFolder} {
		root, e := usable()
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		dir = filepath.Join(root, key)
		p = Paths{Verbs: filepath.Join(dir, verbsFile), RDMACM: filepath.Join(dir, rdmacmFile)}
		if _, err := os.Stat(p.RDMACM); err == nil {
			return p, nil
		}
		// Made under another name and renamed: the folder is always complete, and of two
		// concurrent builds one wins.
		if tmp, e = os.MkdirTemp(root, "new-"); e == nil {
			break
		}
		err = errors.Join(err, e)
	}
	if tmp == "" {
		return Paths{}, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := compile(cc, tmp, key, files, flags); err != nil {
		return Paths{}, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, there := os.Stat(p.RDMACM); there != nil {
			return Paths{}, err
		}
	}
	return p, nil
}

// cacheFolder returns the folder that holds the libraries.
func cacheFolder() (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	root = filepath.Join(root, "verbena", "nulldev")
	return root, os.MkdirAll(root, 0o755)
}

// tempFolder returns the folder for the case that the cache folder cannot be written to. Its name
// can be guessed, so it must belong to the user: its contents are executed.
func tempFolder() (string, error) {
	root := filepath.Join(os.TempDir(), fmt.Sprintf("verbena-nulldev-%d", os.Getuid()))
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if info, err := os.Lstat(root); err != nil || !ownFolder(info) {
		return "", fmt.Errorf("nulldev: %s is not a folder that only this user writes to", root)
	}
	return root, nil
}

// baseFlags are the flags of both libraries.
var baseFlags = []string{"-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread",
	"-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"}

// compile writes the sources into dir and compiles both libraries there.
func compile(cc, dir, key string, files map[string][]byte, flags []string) error {
	var lib, cm []string
	for name, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, text, 0o644); err != nil {
			return err
		}
		switch {
		case strings.HasPrefix(name, "c/cm/") && path.Ext(name) == ".c":
			cm = append(cm, name)
		case strings.HasPrefix(name, "c/") && path.Ext(name) == ".c":
			lib = append(lib, name)
		}
	}
	slices.Sort(lib)
	slices.Sort(cm)
	soname, cmname := "libibverbs-null-"+key+".so.1", "librdmacm-null-"+key+".so.1"
	for from, to := range map[string]string{soname: verbsFile, cmname: rdmacmFile} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			return err
		}
	}
	common := slices.Concat(baseFlags, flags, []string{"-Iabi", "-Ic"})
	if len(flags) == 0 {
		common = append(common, "-Wl,-z,defs") // the program provides a sanitizer's functions
	}
	if err := run(cc, dir, slices.Concat(common, lib, []string{"-Wl,--version-script=c/verbs.map",
		"-Wl,-soname," + soname, "-o", verbsFile})); err != nil {
		return err
	}
	return run(cc, dir, slices.Concat(common, []string{"-Ic/cm"}, cm, []string{"-Wl,--version-script=c/cm/rdmacm.map",
		"-Wl,-soname," + cmname, "-Wl,-rpath,$ORIGIN", "-L.", "-l:" + verbsFile, "-o", rdmacmFile}))
}

func run(cc, dir string, args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), compileTime)
	defer cancel()
	c := exec.CommandContext(ctx, cc, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return &CompileError{Command: c.String(), Output: string(out), Err: err}
	}
	return nil
}

// compiler returns $CC or cc, and its version text.
func compiler() (cc, version string, err error) {
	if runtime.GOOS != "linux" {
		return "", "", fmt.Errorf("%w: the null device is for Linux", ErrNoCompiler)
	}
	name := os.Getenv("CC")
	if name == "" {
		name = "cc"
	}
	if cc, err = exec.LookPath(name); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrNoCompiler, err)
	}
	out, err := exec.Command(cc, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%w: %s --version: %w", ErrNoCompiler, cc, err)
	}
	version, _, _ = strings.Cut(string(bytes.TrimSpace(out)), "\n")
	return cc, version, nil
}

// collect reads the sources, and the headers into the folder abi. It calls visit for each, always
// in the same order.
func collect(visit func(name string, text []byte)) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, from := range []struct {
		fs  fs.FS
		dir string
	}{{sources, ""}, {abi.Headers, "abi"}} {
		err := fs.WalkDir(from.fs, ".", func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(from.fs, p)
			name := path.Join(from.dir, p)
			files[name] = text
			visit(name, text)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
