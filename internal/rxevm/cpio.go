package rxevm

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
)

// Modes of files in a cpio archive: cpio(5).
const (
	cpioDir  = 0o040755
	cpioFile = 0o100755
	cpioChar = 0o020600
)

// cpio writes an archive that the kernel unpacks as its first root: "newc" of cpio(5), fields of
// eight hexadecimal digits, all padded to four bytes
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type cpio struct {
	out   io.Writer
	dirs  []string // already written
	inode int
	err   error // the first; nothing is written after it
}

// file adds a file with its parent folders.
func (c *cpio) file(name string, content []byte) {
	c.above(name)
	c.entry(name, cpioFile, 0, 0, content)
}

// char adds a character device.
func (c *cpio) char(name string, major, minor int) {
	c.above(name)
	c.entry(name, cpioChar, major, minor, nil)
}

// dir adds a folder with its parents.
func (c *cpio) dir(name string) {
	c.above(name)
	if !slices.Contains(c.dirs, name) {
		c.dirs = append(c.dirs, name)
		c.entry(name, cpioDir, 0, 0, nil)
	}
}

func (c *cpio) above(name string) {
	if d := path.Dir(name); d != "." && d != "/" {
		c.dir(d)
	}
}

// close ends the archive and returns the first error of all writes.
func (c *cpio) close() error {
	c.entry("TRAILER!!!", 0, 0, 0, nil)
	return c.err
}

// cpioAlign is the alignment of a header with its name, and of a file.
const cpioAlign = 4

func (c *cpio) entry(name string, mode, major, minor int, content []byte) {
	if c.err != nil {
		return
	}
	c.inode++
	var b bytes.Buffer
	b.WriteString("070701")
	for _, v := range []int{c.inode, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name) + 1, 0} {
		fmt.Fprintf(&b, "%08x", v)
	}
	b.WriteString(name)
	b.WriteByte(0)
	pad := func(n int) { b.Write(make([]byte, (cpioAlign-n%cpioAlign)%cpioAlign)) }
	pad(b.Len())
	head := b.Len()
	b.Write(content)
	pad(b.Len() - head)
	_, c.err = c.out.Write(b.Bytes())
}
