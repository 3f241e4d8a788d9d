package rxevm

// counts says that this processor has a counter that ticks reads, and that an emulated
// one's is the same (QEMU: cpu_get_host_ticks).
const counts = true

// ticks is the processor's counter: RDTSC.
func ticks() uint64
