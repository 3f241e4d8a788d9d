// Package rxevm is the test machine: a Debian kernel with Soft-RoCE (rdma_rxe) under QEMU. It
// tests the library against real verbs, a real kernel and the C programs of rdma-core where there
// is no RDMA hardware. It is for tests; no part of the library imports it. The command is
// internal/rxevm/cmd/rxevm.
//
// # A machine
//
// [Prepare] makes the image: packages by name, fetched by a private apt into a cache whose key is
// their versions, unpacked without running any of their scripts. [Boot] starts QEMU (software
// emulation, or KVM where a machine has actually booted with it) on the image's kernel and an
// initramfs that holds one program, the agent, built from this tree. The image is mounted
// read-only from the host with memory above it, so that machines share it and none changes it;
// folders of the host are mounted in the same way, at the same path.
//
//	m, err := rxevm.Boot(ctx, rxevm.Config{})
//	defer m.Close()
//	err = m.Run(ctx, rxevm.Cmd{Argv: []string{"ibv_devinfo"}, Stdout: os.Stdout})
//
// Any number of commands run at the same time; each has its output, its exit code, its time
// limit. When a command ends, the rest of its process group is killed.
//
// # The network in it
//
// Two devices, rxe0 (10.77.0.1, on r0) and rxe1 (10.77.0.2, on r1), joined by a cable (a veth
// pair) that carries real packets; VERBENA_TEST_DEVICES=rxe0,rxe1 is in the environment of all
// commands. Traffic between queue pairs of one device never becomes a packet: the driver passes
// it on directly. tc's netem works on both ends.
//
// Machines with the same [Cable] have a third device, rxe2 on n0, with the address 10.78.0.1,
// 10.78.0.2 and so on ([Machine.CableAddr]). The cable can be cut, so that frames are dropped
// while both ends still see a carrier, and the carrier can be taken away ([Machine.SetCarrier]).
//
// # Persistent memory
//
// With [Config.NVDIMM] the machine has an NVDIMM on a file of the host, and its drivers. It is one namespace
// without labels, /dev/pmem0 at first. ndctl makes a devdax device of it (/dev/dax0.0), or a disk that
// a file system can be mounted on with dax. Both stay for later machines. An emulated processor has no
// caches: what the machine has stored is in the file at once, and [Machine.Kill] shows what a machine
// does that ends at any moment, but not what a processor would have kept back.
//
// # Failures
//
// A command fails by its exit code or signal ([*ExitError]), at its limit, when the machine is
// lost ([ErrLost]), and also, whatever its exit code, when the kernel has logged a BUG, a
// WARNING, an oops, a stall or a hung task meanwhile ([*KernelError], which carries the log).
// [Machine.Close] reports that again.
//
// # Nothing hangs
//
// A boot that ends in a kernel panic before the agent's first message is repeated once, logged
// and counted ([BootPanics]). Boots and commands have deadlines, the agent answers pings, QEMU
// dies with its parent process, its death ends all waits, and a machine whose host is silent
// powers off.
package rxevm
