//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

func provider(t *testing.T, c Config) *Provider {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Each call that needs a missing library returns an error with the name of the library and its
// package; nothing panics.
func TestMissingLibrary(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "libibverbs.so.1")
	p := provider(t, Config{Verbs: absent, RDMACM: absent})
	check := func(call, pkg string, err error) {
		t.Helper()
		var e *LibraryError
		if !errors.As(err, &e) || !errors.Is(err, verbs.ErrNotSupported) {
			t.Fatalf("%s: %v, want a *LibraryError that is ErrNotSupported", call, err)
		}
		if e.Library != absent || !strings.Contains(e.Package, pkg) || !strings.Contains(e.Reason, "No such file") {
			t.Errorf("%s: %+v does not name the library, its package and the reason", call, e)
		}
		for _, part := range []string{absent, pkg, "No such file"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", call, err, part)
			}
		}
	}
	_, err := p.Devices()
	check("Devices", "libibverbs1", err)
	_, err = p.Open("rxe0")
	check("Open", "libibverbs1", err)
	_, err = p.CreateCMChannel()
	check("CreateCMChannel", "librdmacm1", err)
}

// The error for a library without a needed function names both.
func TestMissingSymbol(t *testing.T) {
	so := library(t, "int ibv_get_device_list(void) { return 0; }\n")
	p := provider(t, Config{Verbs: so, RDMACM: so})
	_, err := p.Devices()
	var e *SymbolError
	if !errors.As(err, &e) || e.Library != so || e.Symbol != "ibv_free_device_list" || e.Version != "IBVERBS_1.1" {
		t.Errorf("Devices: %v (%+v), want a *SymbolError for ibv_free_device_list", err, e)
	}
	if _, err = p.CreateCMChannel(); !errors.As(err, &e) || e.Symbol != "rdma_create_event_channel" || !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("CreateCMChannel: %v, want a *SymbolError for rdma_create_event_channel", err)
	}
}

// tiny returns a library with all needed symbols and one device, which cannot be opened.
func tiny(device string) string {
	text := &strings.Builder{}
	text.WriteString("#include <errno.h>\n#include \"vb_verbs.h\"\n")
	for _, name := range needed {
		if name != "ibv_get_device_list" && name != "ibv_get_device_name" && name != "ibv_free_device_list" {
			text.WriteString("void *" + name + "(void) { errno = ENODEV; return 0; }\n")
		}
	}
	text.WriteString("static struct vb_device dev, *list[2] = {&dev, 0};\n" +
		"struct vb_device **ibv_get_device_list(int *n) { *n = 1; return list; }\n" +
		"void ibv_free_device_list(struct vb_device **l) { (void)l; }\n" +
		"const char *ibv_get_device_name(struct vb_device *d) { (void)d; return \"" + device + "\"; }\n")
	return text.String()
}

// Two libraries at two paths serve two providers in one process, each its own.
func TestTwoLibraries(t *testing.T) {
	a, b := provider(t, Config{Verbs: library(t, tiny("one"))}), provider(t, Config{Verbs: library(t, tiny("two"))})
	for p, want := range map[*Provider]string{a: "one", b: "two"} {
		ds, err := p.Devices()
		if err != nil || len(ds) != 1 || ds[0].Name != want || ds[0].Node != -1 {
			t.Errorf("the library of %q lists %+v, error %v", want, ds, err)
		}
	}
}

// The error for an unknown device names the known ones; that for a device that cannot be opened
// names the call and the errno.
func TestOpenErrors(t *testing.T) {
	p := provider(t, Config{Verbs: library(t, tiny("one"))})
	_, err := p.Open("two")
	var d *verbs.DeviceError
	if !errors.As(err, &d) || d.Name != "two" || len(d.Known) != 1 || d.Known[0] != "one" {
		t.Errorf("an unknown device: %v", err)
	}
	_, err = p.Open("one")
	var o *verbs.OpError
	if !errors.As(err, &o) || o.Op != "ibv_open_device" || o.Errno.Error() != "no such device" {
		t.Errorf("a device that does not open: %v", err)
	}
}

// The system's libraries load, where they are installed, and work without a device; where they
// are not, the error names the package to install.
func TestSystemLibraries(t *testing.T) {
	p := Default()
	ds, err := p.Devices()
	t.Logf("devices %+v, error %v", ds, err)
	var lib *LibraryError
	var call *verbs.OpError
	if err != nil && !errors.As(err, &lib) && !(errors.As(err, &call) && call.Op == "ibv_get_device_list" && call.Errno != 0) {
		t.Errorf("Devices: %v", err)
	}
	ch, err := p.CreateCMChannel()
	t.Logf("CM channel %v, error %v", ch, err)
	switch {
	case err == nil:
		if err := ch.Close(); err != nil {
			t.Errorf("closing the channel: %v", err)
		}
	case !errors.As(err, &lib) && !(errors.As(err, &call) && call.Op == "rdma_create_event_channel" && call.Errno != 0):
		t.Errorf("CreateCMChannel: %v", err)
	}
}

// Rule: on a machine whose kernel has no RDMA the libraries' errors name the missing kernel
// module.
func TestKernelWithoutRDMA(t *testing.T) {
	text := strings.Replace(tiny("none"), "{ *n = 1; return list; }", "{ *n = 0; (void)list; errno = ENOSYS; return 0; }", 1)
	_, err := provider(t, Config{Verbs: library(t, text)}).Devices()
	var o *verbs.OpError
	if !errors.As(err, &o) || o.Errno != syscall.ENOSYS || !errors.Is(err, verbs.ErrNotSupported) || !strings.Contains(err.Error(), "modprobe ib_uverbs") {
		t.Errorf("got %v, want ErrNotSupported with ENOSYS and the module's name", err)
	}
}
