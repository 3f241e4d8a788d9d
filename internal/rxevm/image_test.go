package rxevm

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// An image's key depends on its packages' versions, not on the order in which apt lists them.
func TestKeyIsOfVersions(t *testing.T) {
	a := keyOf([]string{"a_1_amd64.deb", "b_2_amd64.deb"})
	if b := keyOf([]string{"b_2_amd64.deb", "a_1_amd64.deb"}); a != b {
		t.Errorf("keys %s and %s of the same packages in another order", a, b)
	}
	for _, other := range [][]string{
		{"a_1_amd64.deb", "b_3_amd64.deb"}, {"a_1_amd64.deb"}, {"a_1_amd64.deb", "b_2_amd64.deb", "c_1_all.deb"},
	} {
		if keyOf(other) == a {
			t.Errorf("%v has the key of other packages", other)
		}
	}
}

// apt's output is parsed, and other text is refused, because a name becomes part of paths.
func TestPackageFilesOfApt(t *testing.T) {
	const good = "'http://x/pool/a%2bb_1.deb' a+b_1.deb 100 MD5Sum:00\nNOTE\n'http://x/c.deb' c_1%3a2_all.deb 5 SHA256:1\n"
	names, err := files(good)
	if want := []string{"a+b_1.deb", "c_1%3a2_all.deb"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("read %q, %v; want %q", names, err, want)
	}
	for _, bad := range []string{"", "Reading package lists...\n", "'http://x/a.deb' ../../etc/a.deb 1 x\n",
		"'http://x/a.deb' a.exe 1 x\n", "'http://x/a.deb'\n"} {
		if names, err := files(bad); err == nil {
			t.Errorf("%q was read as %q", bad, names)
		}
	}
}

// Modules are loaded after their dependencies, once each.
func TestModulesInOrder(t *testing.T) {
	const dep = "k/9p.ko.xz: k/netfs.ko.xz k/9pnet.ko.xz\nk/9pnet.ko.xz:\nk/netfs.ko.xz:\n" +
		"k/9pnet_virtio.ko.xz: k/9pnet.ko.xz\nk/overlay.ko.xz:\n"
	got, err := order(dep, early)
	want := []string{"k/9pnet.ko.xz", "k/9pnet_virtio.ko.xz", "k/netfs.ko.xz", "k/9p.ko.xz", "k/overlay.ko.xz"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("order %q, %v; want %q", got, err, want)
	}
	if _, err := order("k/9p.ko:\n", early); err == nil || !strings.Contains(err.Error(), "9pnet_virtio") {
		t.Errorf("without 9pnet_virtio: %v, want an error that names it", err)
	}
}

// The archive follows cpio(5): read here field by field.
func TestArchive(t *testing.T) {
	var b bytes.Buffer
	c := cpio{out: &b}
	c.char("dev/console", 5, 1)
	c.file("init", []byte("hello"))
	c.file("a/b/c", nil)
	c.dir("a/b")
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	var names []string
	rest := b.Bytes()
	for {
		if len(rest) < 110 || string(rest[:6]) != "070701" {
			t.Fatalf("no header at %q", rest[:min(len(rest), 20)])
		}
		field := func(n int) int {
			v, err := strconv.ParseUint(string(rest[6+8*n:14+8*n]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(v)
		}
		mode, size, nameLen := field(1), field(6), field(11)
		name := string(rest[110 : 110+nameLen-1])
		at := (110 + nameLen + 3) &^ 3
		content := string(rest[at : at+size])
		rest = rest[(at+size+3)&^3:]
		if name == "TRAILER!!!" {
			break
		}
		names = append(names, name)
		switch {
		case name == "init" && (content != "hello" || mode != cpioFile):
			t.Errorf("init has %q, mode %o", content, mode)
		case name == "dev/console" && mode != cpioChar:
			t.Errorf("the console has mode %o", mode)
		}
	}
	if want := []string{"dev", "dev/console", "init", "a", "a/b", "a/b/c"}; !slices.Equal(names, want) {
		t.Errorf("the archive has %q, want %q: folders before what is in them, once", names, want)
	}
	if len(rest) != 0 {
		t.Errorf("%d bytes after the end", len(rest))
	}
}

// A share is refused where it would hide the machine's own system.
func TestConfigRefuses(t *testing.T) {
	for _, c := range []Config{
		{Shares: []Share{{Path: "/"}}}, {Shares: []Share{{Path: "/usr/share"}}}, {Shares: []Share{{Path: "here"}}},
		{Shares: []Share{{Path: "/home/../etc"}}}, {Shares: []Share{{Path: "/verbena"}}},
		{NUMANodes: -1}, {NUMANodes: maxNodes + 1}, {CPUs: 1, NUMANodes: 2}, {CPUs: 3, NUMANodes: 2}, {CPUs: -1}, {MemoryMB: -1}, {BootTimeout: -1},
	} {
		if err := c.validate(); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
	for name, size := range map[string]int64{"empty": 0, "odd": NVDIMMUnit + 1, "missing": -1} {
		c := Config{NVDIMM: filepath.Join(t.TempDir(), name)}
		if size >= 0 {
			must.Do(t, os.WriteFile(c.NVDIMM, nil, 0o600))
			must.Do(t, os.Truncate(c.NVDIMM, size))
		}
		if err := c.validate(); err == nil {
			t.Errorf("an NVDIMM on a file that is %s was taken", name)
		}
	}
	if c := (Config{NVDIMM: t.TempDir()}); c.validate() == nil {
		t.Error("an NVDIMM on a folder was taken")
	}
	c := Config{NUMANodes: 4, Shares: []Share{{Path: "/home/me"}}}
	if err := c.validate(); err != nil || c.CPUs != 4 || c.MemoryMB != defaultMemoryMB {
		t.Errorf("four nodes: %v, %d processors, %d MB", err, c.CPUs, c.MemoryMB)
	}
}
