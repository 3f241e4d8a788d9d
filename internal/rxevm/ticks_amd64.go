package rxevm

// counts reports whether this processor has a counter that ticks reads, and that an emulated
// processor has the same one (QEMU: cpu_get_host_ticks).
const counts = true

// ticks reads the processor's counter: RDTSC.
func ticks() uint64
