//go:build linux

package rxevm

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// The output of fake boots: the kernel's messages, in 6.12 (arch/x86/kernel/apic, check_timer;
// kernel/exit.c, do_exit).
const (
	timerPanic = "[    0.104000] Kernel panic - not syncing: IO-APIC + timer doesn't work!  Boot with apic=debug and send a report."
	agentDied  = "[    3.104000] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100"
	gaveUp     = "verbena: setup: mounting root (9p) at /ro: no such device"
	warned     = "[    0.104000] WARNING: CPU: 0 PID: 1 at kernel/x.c:1 x+0x1/0x2"
)

// up is a fake boot in which the agent sends Hello, and the machine ends with the first message
// that it receives: to power off.
const up = ""

// fakeQEMU replaces QEMU by a program whose n-th start prints boots[n], and the last element from
// then on. It returns an image for it, and a function that returns the arguments of each start.
func fakeQEMU(t *testing.T, boots ...string) (img *Image, started func() []string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for i, said := range boots {
		if said != up {
			write("boot"+strconv.Itoa(i+1), "[    0.000000] Linux version\n"+said+"\n[    0.2] Rebooting\n", 0o644)
		}
	}
	var hello bytes.Buffer
	if err := wire.WriteJSON(&hello, wire.Hello, 0, wire.Greeting{Kernel: "fake"}); err != nil {
		t.Fatal(err)
	}
	write("hello", hello.String(), 0o644)
	write("starts", "", 0o644)
	write(lockName, "", 0o644)
	write(modulesName, "", 0o644)
	// Descriptor 3 is the link (qemu_linux.go, fdLink).
	write("qemu-system-x86_64", `#!/bin/sh
cd "`+dir+`"
echo "$*" >>starts
n=$(wc -l <starts)
[ $n -le `+strconv.Itoa(len(boots))+` ] || n=`+strconv.Itoa(len(boots))+`
if [ -f boot$n ]; then cat boot$n; exit 0; fi
cat hello >&3
head -c 1 <&3 >/dev/null
`, 0o755)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", t.TempDir())
	return &Image{Dir: dir, Key: "fake"}, func() []string {
		text := must.Get(os.ReadFile(filepath.Join(dir, "starts")))(t)
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

// Rule: a boot is repeated once, and only if the kernel panicked by itself before the agent's
// first message; the repetition is logged with the kernel's line, and counted.
func TestPanicAtBootIsTriedOnceMore(t *testing.T) {
	for name, x := range map[string]struct {
		boots          []string
		starts, panics int
		fails          string // text in the error; "" for none
	}{
		"no panic":           {[]string{up}, 1, 0, ""},
		"one panic":          {[]string{timerPanic, up}, 2, 1, ""},
		"a panic each time":  {[]string{timerPanic}, 2, 2, "IO-APIC"},
		"a panic, then none": {[]string{timerPanic, "nothing", up}, 2, 1, "nothing"},
		"the agent ended":    {[]string{agentDied, up}, 1, 0, "kill init"},
		"the agent gave up":  {[]string{gaveUp + "\n" + timerPanic, up}, 1, 0, "mounting root"},
		"a warning":          {[]string{warned, up}, 1, 0, "WARNING"},
		"silence":            {[]string{"nothing", up}, 1, 0, "did not boot"},
	} {
		t.Run(name, func(t *testing.T) {
			img, started := fakeQEMU(t, x.boots...)
			var log bytes.Buffer
			c := Config{Log: &log, BootTimeout: patience, accel: emulation}
			if err := c.validate(); err != nil {
				t.Fatal(err)
			}
			before := BootPanics()
			m, err := bootAgain(t.Context(), &c, img, []byte("agent"))
			if n := len(started()); n != x.starts {
				t.Errorf("QEMU was started %d times, want %d", n, x.starts)
			}
			if n := BootPanics() - before; n != x.panics {
				t.Errorf("%d panics are counted, want %d", n, x.panics)
			}
			want := ""
			if x.panics > 0 {
				want = "rxevm: guest kernel panicked at boot, booting again: " + timerPanic + "\n"
			}
			if log.String() != want {
				t.Errorf("told: %q, want %q", log.String(), want)
			}
			if x.fails != "" {
				if err == nil || !strings.Contains(err.Error(), x.fails) {
					t.Errorf("the boot failed with %v, want %q in it", err, x.fails)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if m != nil {
				if err := m.Close(); err != nil {
					t.Errorf("closing the machine: %v", err)
				}
			}
			if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// Rule: an emulated processor does not recommend the string moves that emulation executes byte by byte.
func TestEmulationHasNoFastStringMoves(t *testing.T) {
	img, started := fakeQEMU(t, up)
	c := Config{BootTimeout: patience, accel: emulation}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	m, err := bootAgain(t.Context(), &c, img, []byte("agent"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("closing the machine: %v", err)
	}
	if args := started()[0]; !strings.Contains(args, " -accel tcg") || !strings.Contains(args, " -cpu max,erms=off,fsrm=off ") {
		t.Errorf("QEMU's arguments are %s", args)
	}
}

// Rule: without a log the repetition is reported on standard error.
func TestPanicAtBootIsToldWithoutALog(t *testing.T) {
	img, _ := fakeQEMU(t, timerPanic, up)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer func(std *os.File) { os.Stderr = std }(os.Stderr)
	os.Stderr = w
	c := Config{BootTimeout: patience, accel: emulation}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	m := must.Get(bootAgain(t.Context(), &c, img, nil))(t)
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if _, err := said.ReadFrom(r); err != nil || !strings.Contains(said.String(), "booting again: "+timerPanic) {
		t.Errorf("the standard error had %q, %v", said.String(), err)
	}
}
