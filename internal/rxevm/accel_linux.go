package rxevm

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// probeTime is how long a machine on KVM may take to boot: it takes one second where KVM works. A
// broken KVM may open, create a machine, and hang.
const probeTime = 15 * time.Second

// verdict is the result of a probe of KVM, valid until the host's next boot.
type verdict struct {
	Boot  string // the host's boot id
	Works bool
}

// accelerator returns the best accelerator known to work: KVM if a machine has booted with it
// since the host's boot, which is tried once; emulation otherwise. VERBENA_RXEVM_ACCEL selects
// one without a probe.
func accelerator(ctx context.Context, img *Image, say func(format string, args ...any)) string {
	if a := os.Getenv("VERBENA_RXEVM_ACCEL"); a != "" {
		return a
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return emulation
	}
	_ = f.Close() // only whether it opens matters
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return emulation
	}
	file := filepath.Join(filepath.Dir(img.Dir), "kvm.json")
	boot := strings.TrimSpace(string(id))
	var known verdict
	if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &known) == nil && known.Boot == boot {
		return named(known.Works)
	}
	say("trying KVM for at most %v", probeTime)
	known = verdict{Boot: boot, Works: probe(ctx, img)}
	if ctx.Err() != nil {
		return emulation // the probe was cut short
	}
	say("KVM works here: %v", known.Works)
	if text, err := json.Marshal(known); err == nil {
		// Without the file the next run tries again.
		_ = replace(file, text)
	}
	return named(known.Works)
}

func named(works bool) string {
	if works {
		return kvm
	}
	return emulation
}

// probe boots a machine on KVM and runs a program in it.
func probe(ctx context.Context, img *Image) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	c := Config{accel: kvm}
	agent, err := buildAgent(ctx)
	if err != nil || c.validate() != nil {
		return false
	}
	m, err := boot(ctx, &c, img, agent)
	if err != nil {
		return false
	}
	err = m.Run(ctx, Cmd{Argv: []string{"true"}})
	return m.Close() == nil && err == nil
}
