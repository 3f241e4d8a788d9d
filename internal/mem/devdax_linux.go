//go:build linux && !portable

package mem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/mem/writeback"
)

// deviceFolder is the folder where the system describes character devices by their numbers. Tests
// replace it.
var deviceFolder = "/sys/dev/char"

// errNotDevDAX means that a character device is something else.
var errNotDevDAX = errors.New("the device is not of the kind devdax")

// mapDevice maps the first size bytes of a devdax device. The kernel wants whole units of its
// alignment (drivers/dax/device.c, check_vma), and places the mapping itself.
func mapDevice(f *os.File, size int) (m mapping, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return m, err
	}
	folder := filepath.Join(deviceFolder, fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	length, align, err := devDAX(folder)
	if err != nil {
		return m, err
	}
	if m.size, err = roundUp(size, align); err != nil {
		return m, err
	}
	if m.size > length {
		return m, fmt.Errorf("%w: the device has %d bytes in units of %d", ErrSize, length, align)
	}
	if m.instruction = writeback.Best(); m.instruction == writeback.None {
		return m, fmt.Errorf("%w: this processor has no instruction that writes its caches back", errors.ErrUnsupported)
	}
	m.kind = DevDAX
	m.base, err = mapShared(f, m.size, unix.MAP_SHARED)
	return m, err
}

// devDAX returns the size and the alignment of the devdax device that a folder of sysfs describes.
// Kernels before 5.10 do not show the alignment beside the size, but below device.
func devDAX(folder string) (length, align int, err error) {
	kind, err := os.Readlink(filepath.Join(folder, "subsystem"))
	if err != nil || filepath.Base(kind) != "dax" {
		return 0, 0, errors.Join(errNotDevDAX, err)
	}
	if length, err = number(filepath.Join(folder, "size")); err != nil {
		return 0, 0, err
	}
	align, err = number(filepath.Join(folder, "align"))
	if errors.Is(err, os.ErrNotExist) {
		align, err = number(filepath.Join(folder, "device", "align"))
	}
	if err != nil {
		return 0, 0, err
	}
	if align&(align-1) != 0 || align%os.Getpagesize() != 0 {
		return 0, 0, fmt.Errorf("%w: an alignment of %d", errNotDevDAX, align)
	}
	return length, align, nil
}

// number reads a positive number from a file of sysfs.
func number(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%w: %s is %q", errNotDevDAX, file, text)
	}
	return n, nil
}
