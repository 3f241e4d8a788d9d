//go:build linux && !portable

package mem

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem/writeback"
	"github.com/verbena-rdma/verbena/internal/must"
)

// describe makes a folder as sysfs has it for a character device.
func describe(t *testing.T, folder, subsystem string, files map[string]string) {
	t.Helper()
	must.Do(t, os.MkdirAll(folder, 0o755))
	must.Do(t, os.Symlink("../../../bus/"+subsystem, filepath.Join(folder, "subsystem")))
	for name, text := range files {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
}

// Rule: size and alignment come from the system's description, new or old, and a description that
// cannot be true is refused.
func TestDevDAXIsDescribed(t *testing.T) {
	for name, c := range map[string]struct {
		subsystem string
		files     map[string]string
		align     int
		err       error
	}{
		"new":               {"dax", map[string]string{"size": "130023424\n", "align": "2097152\n"}, 2 << 20, nil},
		"before Linux 5.10": {"dax", map[string]string{"size": "130023424\n", "device/align": "4096\n"}, 4096, nil},
		"a terminal":        {"tty", map[string]string{"size": "1\n", "align": "4096\n"}, 0, errNotDevDAX},
		"no size":           {"dax", map[string]string{"align": "4096\n"}, 0, os.ErrNotExist},
		"size 0":            {"dax", map[string]string{"size": "0\n", "align": "4096\n"}, 0, errNotDevDAX},
		"size too large":    {"dax", map[string]string{"size": "99999999999999999999\n", "align": "4096\n"}, 0, errNotDevDAX},
		"odd alignment":     {"dax", map[string]string{"size": "130023424\n", "align": "6291456\n"}, 0, errNotDevDAX},
		"below a page":      {"dax", map[string]string{"size": "130023424\n", "align": "64\n"}, 0, errNotDevDAX},
		"no alignment":      {"dax", map[string]string{"size": "130023424\n"}, 0, os.ErrNotExist},
	} {
		folder := filepath.Join(t.TempDir(), "252:0")
		describe(t, folder, c.subsystem, c.files)
		length, align, err := devDAX(folder)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || align != c.align || err == nil && length != 130023424 {
			t.Errorf("%s: size %d, alignment %d, %v; want alignment %d, %v", name, length, align, err, c.align, c.err)
		}
	}
}

// Rule: a device is mapped in whole units of its alignment, never more than it has, and only if its
// bytes can be made persistent. /dev/zero stands in for the device: it can be mapped.
func TestDeviceIsMappedInItsUnits(t *testing.T) {
	const unit = 1 << 16
	deviceFolder = t.TempDir()
	t.Cleanup(func() { deviceFolder = "/sys/dev/char" })
	describe(t, filepath.Join(deviceFolder, "1:5"), "dax", map[string]string{"size": "196608\n", "align": "65536\n"})
	if writeback.Best() == writeback.None {
		if _, err := MapFile("/dev/zero", 1); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a device without an instruction: %v, want ErrUnsupported", err)
		}
		return
	}
	a := mustMapFile(t, "/dev/zero", unit+1)
	if a.Len() != 2*unit || a.Kind() != DevDAX || a.Method() != writeback.Best().String() || !a.Persistent() {
		t.Errorf("%d bytes, %v by %s; want two units, devdax", a.Len(), a.Kind(), a.Method())
	}
	a.Bytes()[5] = 1
	if err := a.Sync(a.Addr(), a.Len()); err != nil {
		t.Error(err)
	}
	if err := a.Sync(a.Addr()+1, a.Len()); !errors.Is(err, ErrSize) {
		t.Errorf("Sync beyond the end: %v, want ErrSize", err)
	}
	if !a.SyncIsQuick(100) || a.SyncIsQuick(1<<30) {
		t.Error("100 bytes are not quick, or 1 GiB is")
	}
	if _, err := MapFile("/dev/zero", 3*unit+1); !errors.Is(err, ErrSize) {
		t.Errorf("more than the device has: %v, want ErrSize", err)
	}
}
