package rxevm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// The clocks a machine may have. Emulated processors on a busy host stand still for long,
// and what the kernel measures its processors' counter to be at boot may be wrong by any
// factor then, its time with it (seen: 3.5 seconds in one). So time is the HPET's, whose
// rate is given; or the counter's, with the rate that this host found, which it is told.
const (
	clockHPET    = "tsc=unstable clocksource=hpet"
	clockCounter = "tsc=reliable clocksource=tsc tsc_early_khz=%d"
)

const (
	// rateTime is for how long the counter is watched: what a look at the clock is off by,
	// below a microsecond, is then nothing (a hundredth of a thousandth). The kernel may
	// still refine the rate, by a hundredth at most (tsc_refine_calibration_work).
	rateTime = 100 * time.Millisecond
	// rateLooks is how many looks at clock and counter are made at each end; the one that
	// took the shortest counts.
	rateLooks = 32
)

// clock is what the kernel is told of time: of the counter, if fast says so and this host's
// kernel takes its own for a clock.
func clock(fast bool) string {
	if !fast || !counts {
		return clockHPET
	}
	text, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil || !slices.Contains([]string{"tsc", "kvm-clock", "hyperv_clocksource_tsc_page"}, strings.TrimSpace(string(text))) {
		return clockHPET
	}
	return fmt.Sprintf(clockCounter, counterRate())
}

// counterRate is how many thousands the processor's counter counts in a second.
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
