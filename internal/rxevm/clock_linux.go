package rxevm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// The clocks of a machine. Emulated processors on a busy host stall for long, and then the
// kernel's measurement of its processors' counter at boot may be wrong by any factor, and its
// time with it (seen: 3.5 seconds in one). So the time source is the counter with the rate that this host
// measured, passed to the kernel: a program reads it as on hardware, in 0.2 µs. Where this host
// does not trust its own counter, it is the HPET, whose rate is fixed: an emulated device, 2.3 µs for each
// reading.
const (
	clockHPET    = "tsc=unstable clocksource=hpet"
	clockCounter = "tsc=reliable clocksource=tsc tsc_early_khz=%d"
)

const (
	// rateTime is the duration of the measurement of the counter. The error of a clock reading,
	// below a microsecond, is then negligible (1e-5). The kernel may still refine the rate, by a
	// hundredth at most (tsc_refine_calibration_work).
	rateTime = 100 * time.Millisecond
	// rateLooks is the number of readings of clock and counter at each end; the one that took the
	// shortest time counts.
	rateLooks = 32
)

// clock returns the kernel parameters for the clock: those for the counter, if this host's kernel
// uses its own counter as a clock.
func clock() string {
	if !counts {
		return clockHPET
	}
	text, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil || !slices.Contains([]string{"tsc", "kvm-clock", "hyperv_clocksource_tsc_page"}, strings.TrimSpace(string(text))) {
		return clockHPET
	}
	return fmt.Sprintf(clockCounter, counterRate())
}

// counterRate returns the rate of the processor's counter in kHz.
func counterRate() uint64 {
	look := func() (at time.Time, n uint64) {
		best := time.Duration(1<<63 - 1)
		for range rateLooks {
			began := time.Now()
			count := ticks()
			if took := time.Since(began); took < best {
				best, at, n = took, began.Add(took/2), count
			}
		}
		return at, n
	}
	from, first := look()
	<-time.After(rateTime)
	to, last := look()
	const perMilli = float64(time.Millisecond)
	return uint64(float64(last-first) / float64(to.Sub(from)) * perMilli)
}
