// Package rxevm is the test machine: a Debian kernel with Soft-RoCE (rdma_rxe)
// under QEMU, in which the library meets real verbs, a real kernel and the C
// programs of rdma-core where there is no RDMA hardware. It is for tests; nothing
// of the library imports it. The command is internal/rxevm/cmd/rxevm.
//
// # A machine
//
// [Prepare] makes the image: packages by name, fetched by an apt of its own into
// a cache whose key is their versions, unpacked without running any of their
// scripts. [Boot] starts QEMU (software emulation, or KVM where a machine has
// really booted with it) on the image's kernel and an initramfs that holds one
// program, the agent, built from this tree. The image is mounted read-only from
// the host with memory above it, so that machines share it and none changes it;
// folders of the host come in the same way, at the same path.
//
//	m, err := rxevm.Boot(ctx, rxevm.Config{})
//	defer m.Close()
//	err = m.Run(ctx, rxevm.Cmd{Argv: []string{"ibv_devinfo"}, Stdout: os.Stdout})
//
// Commands run at once, as many as one likes; each has its output, its exit
// code, its time limit. When a command ends, what is left of its process group
// is killed.
//
// # The network in it
//
// Two devices, rxe0 (10.77.0.1, on r0) and rxe1 (10.77.0.2, on r1), joined by a
// cable (a veth pair) with real packets on it; VERBENA_TEST_DEVICES=rxe0,rxe1 is
// in every command's environment. Traffic between queue pairs of one device
// never becomes a packet: the driver hands it over. tc's netem works on both
// ends.
//
// Machines that are given the same [Cable] have a third device, rxe2 on n0, with
// the address 10.78.0.1, 10.78.0.2 and so on ([Machine.CableAddr]). The cable can
// be cut, so that frames vanish while both ends still see a carrier, and the
// carrier can be taken away ([Machine.SetCarrier]).
//
// # What is a failure
//
// A command fails by its exit code or signal ([*ExitError]), at its limit, when
// the machine is lost ([ErrLost]), and also, whatever its exit code, when the
// kernel has logged a BUG, a WARNING, an oops, a stall or a hung task meanwhile
// ([*KernelError], which carries the log). [Machine.Close] says so once more.
//
// # Nothing hangs
//
// A boot that ends in a panic of the kernel before the agent has said a word is
// done once more, which is told and counted ([BootPanics]). Each boot has a
// deadline, every command has one, the agent answers pings, QEMU
// dies with its parent process, its death ends all that waits, and a machine
// whose host is silent powers off.
package rxevm
